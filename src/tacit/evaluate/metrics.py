"""The metrics by name; errors of predicted ratings, and the check that predictions are finite."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tacit.data.ratings import Ratings
from tacit.errors import DataError, UsageError, did_you_mean
from tacit.model.predictor import Predictor


@dataclass(frozen=True)
class Metric:
    """One metric. Ranking metrics with a cut-off carry it in their name: "ndcg@10"."""

    name: str
    lower_is_better: bool
    about: str

    @property
    def better(self) -> str:
        """ "lower" or "higher"."""
        return "lower" if self.lower_is_better else "higher"


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("mse", True, "mean squared error over test ratings"),
        Metric("rmse", True, "square root of mse"),
        Metric("mae", True, "mean absolute error over test ratings"),
        Metric("hr", False, "how often a relevant item is in the top k among itself and sampled unseen items"),
        Metric("hr_full", False, "the same among itself and all items that are neither seen nor relevant"),
        Metric("ndcg", False, "discounted gain of the top k over that of the best possible list"),
        Metric("precision", False, "share of the top k that is relevant"),
        Metric("recall", False, "share of the relevant items that is in the top k"),
        Metric("f1", False, "harmonic mean of precision and recall"),
        Metric("map", False, "precision at each relevant position of the top k, averaged"),
        Metric("rank", True, "mean percentile of test items, weighted by rating; 0 is the top, random is 0.5"),
    )
}


def metric_named(name: str) -> Metric:
    """The metric that "ndcg@10" or "mse" names.

    >>> metric_named("ndcg@10").better
    'higher'
    """
    base = name.partition("@")[0]
    if base not in METRICS:
        raise UsageError(f'There is no metric "{name}".{did_you_mean(base, METRICS)} Known: {", ".join(METRICS)}.')
    return METRICS[base]


def lower_is_better(name: str) -> bool:
    """True of errors and of "rank".

    >>> lower_is_better("rmse"), lower_is_better("hr@10")
    (True, False)
    """
    return metric_named(name).lower_is_better


PAIRS = 1 << 18  # pairs predicted at once: with 20 factors, two gathers of 21 MB


class PerUser(NamedTuple):
    """A metric as Σ numerator / Σ denominator over users; 0 and 0 for a user without one. (n,) float64."""

    numerator: np.ndarray
    denominator: np.ndarray


def rating_errors(predictor: Predictor, test: Ratings) -> dict[str, PerUser]:
    """Sums per user of squared and of absolute errors, with the counts of ratings, as "mse" and "mae"."""
    n = test.n_users
    squared, absolute = np.zeros(n), np.zeros(n)
    for users, error in _residuals(predictor, test):
        squared += np.bincount(users, error * error, minlength=n)
        absolute += np.bincount(users, np.abs(error), minlength=n)
    counts = test.counts.astype(np.float64)
    return {"mse": PerUser(squared, counts), "mae": PerUser(absolute, counts)}


def check_test(test: Ratings) -> None:
    """Refuse a test set without ratings, or with one that is not finite."""
    if not test.n_ratings:
        raise DataError(
            f'There are no test ratings in "{test.name}": nothing can be measured; hold out a larger share.'
        )
    bad = np.flatnonzero(~np.isfinite(test.values))
    if len(bad):
        raise DataError(
            f'{len(bad):,} of {test.n_ratings:,} test ratings in "{test.name}" are NaN or infinite, the '
            f"first at entry {bad[0] + 1}; remove them."
        )


def check_finite(predictions: np.ndarray, of: str) -> None:
    """Refuse NaN and infinite predictions, with their number."""
    finite = np.isfinite(predictions)
    if not finite.all():
        bad = predictions.size - int(np.count_nonzero(finite))
        raise DataError(
            f"{bad:,} of {predictions.size:,} {of} are NaN or infinite; the model has diverged, "
            "so train it with a smaller rate or more regularization."
        )


def _residuals(predictor: Predictor, test: Ratings) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows and prediction − rating, float64, block by block in the order of the test ratings."""
    users = test.users
    for start in range(0, test.n_ratings, PAIRS):
        block = slice(start, start + PAIRS)
        predicted = np.asarray(predictor.predict(users[block], test.items[block]))
        if predicted.shape != users[block].shape:
            raise UsageError(
                f"predict() returned, for {len(users[block]):,} pairs, an array of shape {predicted.shape}; "
                f"return ({len(users[block])},)."
            )
        error = np.subtract(predicted, test.values[block], dtype=np.float64)
        with np.errstate(over="ignore"):
            total = np.einsum("i,i->", error, error)
        if not np.isfinite(total):  # one pass over the data; the exact count only when it is needed
            check_finite(predicted, "predicted test ratings")
            raise DataError(
                f"Predicted test ratings reach {np.abs(predicted).max():.1g}, which cannot be squared; "
                "the model has diverged, so train it with a smaller rate or more regularization."
            )
        yield users[block], error
