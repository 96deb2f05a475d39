"""The metrics by name: what each measures, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.errors import UsageError, did_you_mean


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
