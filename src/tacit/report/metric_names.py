"""The names of metrics. What they mean is in templates/components.html, which way is better in `tacit.evaluate`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tacit.evaluate.metrics import METRICS


class Meaning(NamedTuple):
    """A metric: its short name, its long one; `lower_is_better` is None where that is not known."""

    short: str
    long: str
    lower_is_better: bool | None


_NAMES = {
    "mse": ("MSE", "mean squared error"),
    "rmse": ("RMSE", "root mean squared error"),
    "mae": ("MAE", "mean absolute error"),
    "ndcg": ("NDCG", "normalised discounted cumulative gain"),
    "hr": ("HR", "hit rate"),
    "hr_full": ("HR full", "hit rate among all items"),
    "recall": ("Recall", "recall"),
    "precision": ("Precision", "precision"),
    "f1": ("F1", "harmonic mean of precision and recall"),
    "map": ("MAP", "mean average precision"),
    "rank": ("Rank", "mean percentile rank"),
}

# The first of these that a run has is the one that its headline and its charts are about.
_LEADING = ("mse", "rmse", "mae", "ndcg", "hr", "hr_full", "rank", "recall", "map", "f1", "precision")


def meaning(metric: str) -> Meaning:
    """The meaning of a metric such as "mse" or "ndcg@10"; an unknown one has no direction.

    >>> meaning("ndcg@10").short, meaning("ndcg@10").long
    ('NDCG@10', 'normalised discounted cumulative gain')
    """
    name, at, k = metric.partition("@")
    known = METRICS.get(name)
    short, long = _NAMES.get(name, (name, metric))
    return Meaning(short + at + k, long, None if known is None else known.lower_is_better)


def leading(metrics: Iterable[str]) -> str | None:
    """The metric that is most informative; None where there is no metric.

    >>> leading(["hr@10", "ndcg@10", "rmse"])
    'rmse'
    """
    ranked = {stem: place for place, stem in enumerate(_LEADING)}
    return min(metrics, key=lambda name: ranked.get(name.partition("@")[0], len(ranked)), default=None)
