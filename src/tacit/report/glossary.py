"""What each metric means to a reader. Which way is better is `tacit.evaluate`'s to say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tacit.evaluate.metrics import METRICS


@dataclass(frozen=True)
class Meaning:
    """A metric: its short name, its long one, what it says; `lower_is_better` is None where nobody knows."""

    short: str
    long: str
    what: str
    lower_is_better: bool | None


_WORDS = {
    "mse": (
        "MSE",
        "mean squared error",
        "The average, over the test ratings, of the squared difference between rating and prediction.",
    ),
    "rmse": (
        "RMSE",
        "root mean squared error",
        "The square root of the MSE: a typical error, in the units of the rating scale.",
    ),
    "mae": (
        "MAE",
        "mean absolute error",
        "The average distance between rating and prediction, in the units of the rating scale.",
    ),
    "ndcg": (
        "NDCG",
        "normalised discounted cumulative gain",
        "How far up the first {k} recommendations the relevant held-out items stand: "
        "1 when they lead, 0 when none appears.",
    ),
    "hr": (
        "HR",
        "hit rate",
        "How often a relevant held-out item is among the first {k} when it is ranked together with a sample "
        "of items that the user has not seen.",
    ),
    "hr_full": (
        "HR full",
        "hit rate among all items",
        "How often a relevant held-out item is among the first {k} when it is ranked together with all items "
        "that are neither seen nor relevant.",
    ),
    "recall": (
        "Recall",
        "recall",
        "The share of a user's relevant held-out items that appear among the first {k} recommendations.",
    ),
    "precision": (
        "Precision",
        "precision",
        "The share of the first {k} recommendations that are relevant held-out items.",
    ),
    "f1": ("F1", "harmonic mean of precision and recall", "High only where precision and recall both are."),
    "map": (
        "MAP",
        "mean average precision",
        "Precision at each place where a relevant item appears among the first {k}, averaged.",
    ),
    "rank": (
        "Rank",
        "mean percentile rank",
        "How far down the ranking the held-out items stand, weighted by rating: 0 is the top, 0.5 is chance.",
    ),
}

# The first of these that a run has is the one that its headline and its charts are about.
_LEADING = ("mse", "rmse", "mae", "ndcg", "hr", "hr_full", "rank", "recall", "map", "f1", "precision")


def meaning(metric: str) -> Meaning:
    """The meaning of a metric such as "mse" or "ndcg@10"; an unknown one keeps its name and claims nothing.

    >>> meaning("ndcg@10").short, meaning("ndcg@10").long
    ('NDCG@10', 'normalised discounted cumulative gain')
    """
    name, at, k = metric.partition("@")
    known = METRICS.get(name)
    direction = None if known is None else known.lower_is_better
    if name not in _WORDS:
        return Meaning(
            metric, metric, "" if known is None else f"{known.about[:1].upper()}{known.about[1:]}.", direction
        )
    short, long, what = _WORDS[name]
    return Meaning(short + at + k, long, what.format(k=k or "few"), direction)


def leading(metrics: Iterable[str]) -> str | None:
    """The metric that tells most, or None where there is none.

    >>> leading(["hr@10", "ndcg@10", "rmse"])
    'rmse'
    """
    ranked = {stem: place for place, stem in enumerate(_LEADING)}
    return min(metrics, key=lambda name: ranked.get(name.partition("@")[0], len(ranked)), default=None)
