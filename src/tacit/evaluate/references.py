"""What a run is compared with: its floor, and references without privacy, on the same split and test.

The floor has the metrics of `bias` on the same parties, at the same guarantee: a model that does not beat item and user
biases has learned nothing. References are local training, popularity and central training; they are only computed where
that is cheap compared to the run, and where it is not, `missing` has the reason.

Both are for simulations, where the experimenter holds all data. The floor's ledgers are temporary, no budget is
charged, nothing of it is released, and a deployment has no floor. References are NON-PRIVATE.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tacit.data.ratings import Ratings
from tacit.errors import TacitError
from tacit.evaluate.evaluation import Evaluation, evaluate_as_configured
from tacit.evaluate.paired import compare_paired
from tacit.federation import Facts
from tacit.methods import chosen, find
from tacit.model import Fitted, Linear, Part, Predictor, assemble
from tacit.partition import Setting
from tacit.prepare.loaded import LoadedRun
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.progress import ProgressLine
from tacit.prepare.simulate import train, with_newcomers
from tacit.prepare.simulated_ledgers import Records

#: Training ratings up to which all of them are pooled and trained on once more.
CENTRAL = 100_000
#: Users × items up to which what rates is ranked too, and up to which popularity is ranked.
RANKED, POPULAR = 5_000_000, 30_000_000
#: How many ratings' worth of the mean a bias and a level start with.
SHRINKAGE = 5.0

#: Judges a predictor as the run was judged; takes `ranking`, whether to rank items.
Judge = Callable[..., Evaluation]


def references(prepared: LoadedRun, evaluation: Evaluation, judge: Judge) -> list[dict[str, Any]]:
    """Entries for about.json: `name`, `what`, `metrics` and `intervals`; `missing` instead of metrics.

    `evaluation` is of the run's final model; if it has no ranking metrics, nothing is ranked. `judge` is
    `evaluate` with the run's test ratings and [evaluate].
    """
    ranks = any(name == "rank" or "@" in name for name in evaluation.metrics)
    cells = prepared.test.n_users * prepared.test.n_items
    bias = find("bias")
    found: list[dict[str, Any]] = []

    def add(name: str, what: str, make: Callable[[], Predictor], ranked: bool, missing: str = "") -> None:
        if prepared.run.method.name == name:
            return
        entry: dict[str, Any] = {"name": name, "what": what}
        try:
            judged = None if missing else judge(make(), ranking=ranked)
        except TacitError as error:
            judged, missing = None, str(error)
        if judged is None:
            found.append({**entry, "missing": missing})
            return
        spans = {metric: list(interval) for metric, interval in judged.intervals.items()}
        found.append({**entry, "metrics": judged.metrics, "intervals": spans})

    rated, few = prepared.parties.feedback in bias.feedback, prepared.train.n_ratings <= CENTRAL
    clicked = not rated and ranks and few and cells <= RANKED
    if rated or (clicked and prepared.parties.setting is not Setting.DEVICE):
        alone = "each device alone: its user's mean rating"
        if prepared.parties.setting is not Setting.DEVICE:
            alone = "each silo alone: " + ("the method local" if few else "item and user biases of its own ratings")
        add("local", alone, lambda: _trained(prepared, "local") if few else _local(prepared), ranks and cells <= RANKED)
    large = f"not ranked here, since {prepared.test.n_users:,} users × {prepared.test.n_items:,} items are many"
    if ranks:
        what = "the items that most users rated, the same for everyone"
        add("popularity", what, lambda: _popular(prepared.train), True, "" if cells <= POPULAR else large)
    if rated or clicked:
        many = f"not trained here, since {prepared.train.n_ratings:,} ratings are many; tacit compare shows a run of it"
        what = "als for ratings and ease for the ranking, on all ratings in one place"
        what = what if rated else "ease, on all of it in one place"
        add("central", what, lambda: _trained(prepared, "central"), ranks and cells <= RANKED, "" if few else many)
    return found


def _popular(ratings: Ratings) -> Fitted:
    counts = np.bincount(ratings.items, minlength=ratings.n_items).astype(np.float32)
    return Fitted.same_for_all(Linear.scores(counts, ratings.scale, rates=False), ratings.n_users)


def _trained(prepared: LoadedRun, name: str) -> Predictor:
    method, parameters = chosen({"name": name})
    facts = Facts.of(prepared.parties, prepared.file.seed)  # counted: it carries no guarantee
    trained = train(PreparedRun.of(method, parameters, facts), prepared.parties)
    return with_newcomers(trained, prepared.support, prepared.test.n_users)


def _local(prepared: LoadedRun) -> Predictor:
    parties = prepared.parties
    if parties.setting is Setting.DEVICE:
        return _leveled(prepared.train, items=False)
    parts = [Part(s.users, s.items, _leveled(s.ratings)) for s in parties]
    by_item = parties.setting is Setting.VERTICAL
    return assemble(parts, parties.n_users, parties.n_items, by_item=by_item)


def _leveled(ratings: Ratings, items: bool = True) -> Fitted:
    levels, biases = local_biases(ratings, items)
    return Fitted(Linear.levels(biases, ratings.scale, SHRINKAGE), levels[:, None])


def local_biases(ratings: Ratings, items: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Users' levels (n,) and items' biases (m,), float32, each shrunk; without `items` all biases are 0.

    b_j = Σ_u (r_uj − μ)/(n_j + k),   level_u = (Σ_j (r_uj − b_j) + k·μ)/(n_u + k),   μ shrunk to the scale's middle
    """
    k, values, scale = SHRINKAGE, ratings.values.astype(np.float64), ratings.scale
    middle = scale.low + scale.span / 2
    mean = (values.sum() + k * middle) / (len(values) + k)
    biases = np.zeros(ratings.n_items)
    if items:
        rated = np.bincount(ratings.items, minlength=ratings.n_items)
        biases = np.bincount(ratings.items, weights=values - mean, minlength=ratings.n_items) / (rated + k)
    sums = np.bincount(ratings.users, weights=values - biases[ratings.items], minlength=ratings.n_users)
    base = mean if items else middle  # a device knows its own user's ratings only
    levels = (sums + k * base) / (ratings.counts + k)
    return levels.astype(np.float32), biases.astype(np.float32)


def bias_floor(
    prepared: LoadedRun, evaluation: Evaluation | None = None, make_line: Callable[[], ProgressLine] | None = None
) -> dict[str, Any] | None:
    """The floor of a run, for about.json; None for `bias` itself and for feedback that it cannot learn from.

    `evaluation` is of the run's final model, to compare the two user by user; `make_line` makes a progress line.

    Returns
    -------
    `method`, `metrics`, `intervals` and `guarantee` as in a summary; `user_means`, the means over users of every
    metric; `paired`, by metric, the run minus the floor. If the floor failed, `missing` has the reason.
    """
    method = find("bias")
    if prepared.run.method.name == method.name or prepared.parties.feedback not in method.feedback:
        return None
    try:
        line = None if make_line is None else make_line()
        if line is not None:
            line.phase("training")
        floor = prepared.run.comparison(method.name)
        with TemporaryDirectory(prefix="tacit-floor-") as folder:
            records = Records.unlimited(floor, Path(folder))
            shown = None if line is None else prepared.test
            trained = train(floor, prepared.parties, records=records, test=shown, watch=line)
        predictor = with_newcomers(trained, prepared.support, prepared.test.n_users)
        file, progress = prepared.file, None if line is None else partial(line.phase, "evaluating")
        mine = evaluate_as_configured(predictor, prepared.test, prepared.train, file.evaluate, file.seed, progress)
    except TacitError as error:
        return {"method": method.name, "metrics": {}, "missing": str(error)}
    return {
        "method": method.name,
        "metrics": mine.metrics,
        "intervals": {name: list(interval) for name, interval in mine.intervals.items()},
        "guarantee": floor.guarantee.to_json(),
        "user_means": {name: float(np.nanmean(values)) for name, values in mine.per_user.items()},
        "paired": {} if evaluation is None else _paired(evaluation, mine, prepared.test),
    }


def _paired(run: Evaluation, floor: Evaluation, test: Ratings) -> dict[str, Mapping[str, Any]]:
    """The run against the floor, user by user: run − floor by squared error, or by NDCG where a run only ranks."""
    both = [metric for metric in run.per_user if metric in floor.per_user]
    name = "mse" if "mse" in both else next((metric for metric in both if metric.startswith("ndcg")), None)
    if name is None:
        return {}
    weights = test.counts.astype(np.float64) if name == "mse" else None
    result = compare_paired(run.per_user[name], floor.per_user[name], metric=name, weights=weights)
    interval = None if np.isnan(result.interval).any() else list(result.interval)
    return {
        name: {
            "users": result.users,
            "difference": result.difference,
            "interval": interval,
            "p_value": result.p_value,
            "share_better": result.share_better,
            "share_worse": result.share_worse,
        }
    }
