"""References for a run: local biases, popularity and central training, on the same split and test.

They are for simulations, where the experimenter holds all data, and NON-PRIVATE. They are only computed where that is
cheap compared to the run; where it is not, `missing` has the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tacit.data.ratings import Ratings
from tacit.errors import TacitError
from tacit.evaluate.evaluation import Evaluation
from tacit.federation import Facts
from tacit.methods import chosen, find
from tacit.model import Fitted, Linear, Part, Predictor, assemble
from tacit.partition import Setting
from tacit.prepare.loaded import LoadedRun
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train, with_newcomers

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

    if prepared.parties.feedback in bias.feedback:
        alone = "each device alone: its user's mean rating"
        if prepared.parties.setting is not Setting.DEVICE:
            alone = "each silo alone: item and user biases of its own ratings"
        add("local", alone, lambda: _local(prepared), ranks and cells <= RANKED)
    large = f"not ranked here, since {prepared.test.n_users:,} users × {prepared.test.n_items:,} items are many"
    if ranks:
        what = "the items that most users rated, the same for everybody"
        add("popularity", what, lambda: _popular(prepared.train), True, "" if cells <= POPULAR else large)
    if prepared.parties.feedback in bias.feedback:
        many = f"not trained here, since {prepared.train.n_ratings:,} ratings are many; tacit compare shows a run of it"
        what = "matrix factorization on all ratings in one place"
        small = prepared.train.n_ratings <= CENTRAL
        add("central", what, lambda: _central(prepared), ranks and cells <= RANKED, "" if small else many)
    return found


def _popular(ratings: Ratings) -> Fitted:
    counts = np.bincount(ratings.items, minlength=ratings.n_items).astype(np.float32)
    return Fitted.same_for_all(Linear.scores(counts, ratings.scale, rates=False), ratings.n_users)


def _central(prepared: LoadedRun) -> Predictor:
    method, parameters = chosen({"name": "central"})
    facts = Facts.of(prepared.parties, prepared.file.seed)  # counted: it carries no guarantee
    trained = train(PreparedRun.of(method, parameters, facts), prepared.parties)
    return with_newcomers(trained, prepared.support, prepared.test.n_users)


def _local(prepared: LoadedRun) -> Predictor:
    """Every party's own biases, for its own users and items."""
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
