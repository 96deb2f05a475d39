"""`evaluate`: all metrics of a predictor on held-out ratings, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.config import EvaluateSection
from tacit.data.ratings import Feedback, Ratings
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, UsageError, check_integer, check_type, with_article
from tacit.evaluate.metrics import PerUser, check_test, metric_named, rating_errors
from tacit.evaluate.paired import bootstrap_interval
from tacit.evaluate.positions import Positions, find_positions
from tacit.evaluate.ranking import mean_percentile, ranking_metrics
from tacit.model.predictor import FittedEstimator, Predictor
from tacit.rng import id_keys


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Metrics of one predictor.

    Attributes
    ----------
    metrics : name → value over all users
    intervals : name → (low, high), 95 %, bootstrapped over users; a metric of a single user has none
    per_user : name → (n,) float32, NaN for a user who has no test rating, no relevant item or was not sampled
    users : (u,) int64, the rows that were ranked
    notes : what a reader must know to interpret the numbers
    """

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    per_user: dict[str, np.ndarray]
    users: np.ndarray
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        width = max(len(name) for name in ("metric", *self.metrics))
        spans = {name: f"{_short(low)} … {_short(high)}" for name, (low, high) in self.intervals.items()}
        span_width = max(len(span) for span in ("95 % interval", *spans.values()))
        lines = [f"{'metric':<{width}}  {'value':>9}  {'95 % interval':<{span_width}}  better"]
        for name, value in self.metrics.items():
            better = metric_named(name).better
            lines.append(f"{name:<{width}}  {_short(value):>9}  {spans.get(name, '–'):<{span_width}}  {better}")
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        shown = ", ".join(f"{name} {_short(value)}" for name, value in list(self.metrics.items())[:4])
        return f"Evaluation({shown}{', …' if len(self.metrics) > 4 else ''})"

    def to_arrow(self, user_ids: Vocabulary | np.ndarray) -> pa.Table:
        """One row per user and metric with a value: scope ("user"), round (null), user, metric, value."""
        ids = user_ids.ids if isinstance(user_ids, Vocabulary) else np.asarray(user_ids)
        short = [name for name, values in self.per_user.items() if len(values) != len(ids)]
        if short:
            raise UsageError(
                f"These are {len(ids):,} ids for {len(self.per_user[short[0]]):,} users; pass test.user_ids."
            )
        rows = {name: np.flatnonzero(~np.isnan(values)) for name, values in self.per_user.items()}
        users = np.concatenate([*rows.values(), np.zeros(0, dtype=np.int64)])
        names = np.repeat(np.array(list(rows), dtype=object), [len(r) for r in rows.values()])
        values = np.concatenate([*(self.per_user[n][r] for n, r in rows.items()), np.zeros(0, dtype=np.float32)])
        return pa.table(
            {
                "scope": pa.repeat(pa.scalar("user"), len(users)),
                "round": pa.nulls(len(users), pa.int64()),
                "user": pa.array(ids).take(pa.array(users)),
                "metric": pa.array(names, pa.string()),
                "value": pa.array(values.astype(np.float64)),
            }
        )


def evaluate(
    predictor: Predictor | FittedEstimator,
    test: Ratings,
    *,
    seen: Ratings | None = None,
    k: int | Sequence[int] = 10,
    negatives: int = 99,
    relevance: float | None = None,
    seed: int = 7,
    at_most_users: int = 20_000,
    bootstrap: int = 1000,
    ranking: bool = True,
    progress: Callable[[float], None] | None = None,
) -> Evaluation:
    """Every metric of `predictor` on the held-out ratings `test`, per user and over all, with 95 % intervals.

    Errors ("mse", "rmse", "mae") are means over test ratings, of unclipped predictions, if the predictor `rates`.
    Ranking metrics are means over the users who have a relevant test item: a rating of `relevance` or more (by default
    the scale's upper quarter, 4 on 1…5), or any test item where feedback is implicit or a count. The candidates are all
    items that the user has not `seen`.

        hr@k         the share of the user's relevant items that are in the top k among themselves and
                     `negatives` items drawn from those that the user has neither seen nor in the test set
        hr_full@k    the same among themselves and all candidates but the user's other relevant items
        ndcg@k, precision@k, recall@k, f1@k, map@k     of the top k candidates, with binary gain
        rank         Σ x·percentile / Σ x over all test ratings x: 0 is best, 0.5 random. On a scale that
                     starts below 0 the weight x is the distance from its lower end

    Ties count by their expected value. A user's negatives are one draw, derived from (seed, user id): neither
    order nor blocks nor other users change it. Intervals resample users, with all their ratings.

    Parameters
    ----------
    predictor : a Predictor, or a fitted estimator, whose training ratings are the default of `seen`
    seen : training ratings, with the vocabularies of `test`; their items are not candidates
    k : the cut-off, or several
    at_most_users : with more users than this, ranking metrics use a sample derived from (seed, user id)
    bootstrap : resamples for the intervals; 0 for none
    ranking : False to measure errors only
    progress : called with the fraction of users ranked so far
    """
    check_type(test, Ratings, "evaluate", "held-out ratings as its second argument, as tacit.split returns them")
    if not hasattr(predictor, "rates") and not isinstance(predictor, FittedEstimator):
        got = type(predictor).__name__
        raise UsageError(
            f"evaluate takes a fitted estimator or a predictor, and got {with_article(got)}; fit it first."
        )
    if isinstance(predictor, FittedEstimator):
        seen = predictor.seen_ if seen is None else seen
        predictor = predictor.predictor_
    cuts = tuple(k) if isinstance(k, Sequence) else (k,)
    _check(predictor, test, seen, cuts, negatives, relevance, at_most_users, bootstrap, ranking)
    columns: dict[str, PerUser] = rating_errors(predictor, test) if predictor.rates else {}
    users, notes = np.zeros(0, dtype=np.int64), []
    if ranking:
        users = np.flatnonzero(test.counts)
        if len(users) > at_most_users:
            notes.append(f"Ranking metrics are of a seeded sample: {at_most_users:,} of {len(users):,} users.")
            draw = id_keys(seed, "evaluate: sample of users", test.user_ids[users])
            users = np.sort(users[np.argpartition(draw, at_most_users - 1)[:at_most_users]])
        positions = find_positions(predictor, test, seen, users, negatives=negatives, seed=seed, progress=progress)
        ranked, remarks = _ranking(positions, test, relevance, cuts, negatives)
        columns |= {name: _on_all_rows(column, users, test.n_users) for name, column in ranked.items()}
        notes += remarks
        if seen is None:
            notes.append("No seen ratings were given: items that users know from training compete with test items.")
    return _summarised(columns, users, notes, bootstrap, seed)


def evaluate_as_configured(
    predictor: Predictor,
    test: Ratings,
    seen: Ratings,
    wanted: EvaluateSection,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Evaluation:
    """`evaluate` with a run file's [evaluate]; a predictor that only ranks is always ranked, with a note."""
    only_ranks = not (wanted.ranking or predictor.rates)
    judged = evaluate(
        predictor,
        test,
        seen=seen,
        k=wanted.k,
        negatives=wanted.negatives,
        relevance=wanted.relevance,
        seed=seed,
        at_most_users=wanted.users,
        ranking=wanted.ranking or only_ranks,
        progress=progress,
    )
    note = "There are ranking metrics although [evaluate] ranking = false: this method only ranks."
    return replace(judged, notes=(*judged.notes, note)) if only_ranks else judged


def _short(value: float) -> str:
    return f"{value:.4f}" if abs(value) < 1e4 else f"{value:.3g}"


def _check(
    predictor: Predictor,
    test: Ratings,
    seen: Ratings | None,
    cuts: tuple[int, ...],
    negatives: int,
    relevance: float | None,
    at_most_users: int,
    bootstrap: int,
    ranking: bool,
) -> None:
    if not cuts:
        raise UsageError("k is empty; give an integer of 1 or more, or several.")
    for value in cuts:
        check_integer("k", value)
    check_integer("negatives", negatives)
    check_integer("at_most_users", at_most_users)
    check_integer("bootstrap", bootstrap, 0)
    if relevance is not None and not np.isfinite(relevance):
        raise UsageError(f"relevance = {relevance} is not possible; give a rating, such as 4.")
    check_test(test)
    if not ranking and not predictor.rates:
        raise UsageError("This predictor only ranks, so with ranking=False there is nothing to measure.")
    if seen is not None:
        ids = ((test.user_ids, seen.user_ids, "users"), (test.item_ids, seen.item_ids, "items"))
        for mine, other, kind in ids:
            if mine is not other and mine != other:
                raise DataError(
                    f"The test ratings ({len(mine):,} {kind}) and the seen ones ({len(other):,}) do not have "
                    f"the same {kind}; split both from one set of ratings."
                )


def _ranking(
    positions: Positions, test: Ratings, relevance: float | None, cuts: tuple[int, ...], negatives: int
) -> tuple[dict[str, PerUser], list[str]]:
    values = test.values[positions.entries]
    if relevance is None and test.feedback is Feedback.EXPLICIT:
        relevance = test.scale.low + 0.75 * test.scale.span
    if relevance is None:
        relevant, which = np.ones(len(values), dtype=bool), "every test item"
    else:
        # Both sides as float32: a rating of 0.7 is stored as slightly less.
        relevant, which = values >= np.float32(relevance), f"a test rating of {relevance:g} or more"
    weights = values.astype(np.float64) - min(test.scale.low, 0.0)
    weights = np.maximum(weights, 0.0)  # a rating below the scale weighs nothing
    if not relevant.any():
        note = f"No test item is relevant ({which}), so rank is the only ranking metric."
        return {"rank": mean_percentile(positions, weights)}, [note]
    notes = [f"{which[0].upper()}{which[1:]} counts as relevant."]
    owners = np.bincount(positions.owner[relevant], minlength=len(positions.users)) > 0
    if not owners.all():
        without = np.count_nonzero(~owners)
        notes.append(
            f"{without:,} of {len(owners):,} users have no relevant item; of ranking metrics, only rank counts them."
        )
    short = np.count_nonzero(owners & (positions.negatives < negatives))
    if short:
        hits = ", ".join(f"hr@{k}" for k in cuts)
        notes.append(f"For {short:,} users with fewer than {negatives} unseen items, {hits} uses those.")
    ranked: dict[str, PerUser] = {}
    for k in cuts:
        ranked |= ranking_metrics(positions, relevant, weights, k)
    return ranked | {"rank": ranked.pop("rank")}, notes


def _on_all_rows(column: PerUser, users: np.ndarray, n: int) -> PerUser:
    numerator, denominator = np.zeros(n), np.zeros(n)
    numerator[users], denominator[users] = column
    return PerUser(numerator, denominator)


def _summarised(
    columns: dict[str, PerUser], users: np.ndarray, notes: list[str], bootstrap: int, seed: int
) -> Evaluation:
    columns = {name: column for name, column in columns.items() if column.denominator.any()}
    metrics: dict[str, float] = {}
    intervals: dict[str, tuple[float, float]] = {}
    per_user: dict[str, np.ndarray] = {}
    ends = np.full((2, len(columns)), np.nan)
    if bootstrap and columns:
        numerators = np.column_stack([c.numerator for c in columns.values()])
        denominators = np.column_stack([c.denominator for c in columns.values()])
        ends = bootstrap_interval(numerators, denominators, resamples=bootstrap, seed=seed)

    def keep(name: str, value: Any, interval: np.ndarray, each: np.ndarray) -> None:
        metrics[name] = float(value)
        per_user[name] = np.minimum(each, np.finfo(np.float32).max).astype(np.float32)  # none overflows
        if not np.isnan(interval).any():
            intervals[name] = (float(interval[0]), float(interval[1]))

    for place, (name, (numerator, denominator)) in enumerate(columns.items()):
        value = numerator.sum() / denominator.sum()
        each = np.divide(numerator, denominator, out=np.full(len(numerator), np.nan), where=denominator > 0)
        keep(name, value, ends[:, place], each)
        if name == "mse":
            keep("rmse", np.sqrt(value), np.sqrt(ends[:, place]), np.sqrt(each))
    return Evaluation(metrics, intervals, per_user, users, tuple(notes))
