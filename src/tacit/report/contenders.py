"""A run among others on the same test: its floor, and references without any guarantee, for terminal and page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tacit.report.glossary import leading, meaning
from tacit.report.guarantee_words import brief
from tacit.report.record import RunRecord
from tacit.report.words import decimals, metric, sentence, short

#: The guarantee of references, wherever they are shown.
NON_PRIVATE = "NON-PRIVATE, for comparison; stays with the experimenter"
_RATING = ("mse", "rmse", "mae")


@dataclass(frozen=True)
class Contender:
    """The run, or what it is compared with; `missing` is the reason why there are no metrics."""

    name: str
    what: str
    guarantee: str
    metrics: Mapping[str, float | None]
    intervals: Mapping[str, tuple[float | None, float | None]]
    missing: str = ""

    def value(self, name: str) -> float | None:
        """A metric's value; None where it is not known."""
        value = self.metrics.get(name)
        return value if value is not None and math.isfinite(value) else None

    def interval(self, name: str) -> tuple[float, float] | None:
        low, high = self.intervals.get(name, (None, None))
        return None if low is None or high is None else (low, high)


def contenders(record: RunRecord) -> list[Contender]:
    """This run, its floor and its references; empty where there are no others."""
    summary, floor = record.summary, record.about.floor
    found = [
        Contender("this run", record.about.method.name, brief(record.guarantee), summary.metrics, summary.intervals)
    ]
    if floor is not None:
        name, what, why = f"{floor.name}, the floor", "item and user biases of all parties", short(floor.missing, 300)
        found.append(Contender(name, what, brief(floor.guarantee), floor.metrics, floor.intervals, why))
    if summary.metrics_shared and len(record.about.references) + (floor is not None):
        what = "this run, before each party fine-tuned it locally"
        found.append(Contender("before tuning", what, brief(record.guarantee), summary.metrics_shared, {}))
    found += [
        Contender(
            short(one.name, 40), short(one.what, 120), NON_PRIVATE, one.metrics, one.intervals, short(one.missing, 300)
        )
        for one in record.about.references[:10]
    ]
    return found if len(found) > 1 else []


def compared_metrics(record: RunRecord) -> list[str]:
    """The metrics that they are compared by: the leading error, and the leading measure of rankings."""
    known = [name for name, value in record.summary.metrics.items() if value is not None and math.isfinite(value)]
    rating = leading(name for name in known if name in _RATING)
    ranking = leading(name for name in known if name not in _RATING)
    return [name for name in (rating, ranking) if name is not None]


def remarks(record: RunRecord) -> list[str]:
    """Which references without any learning together do better than the run, and by what."""
    found = contenders(record)
    found_better = []
    for name in compared_metrics(record):
        lower = meaning(name).lower_is_better
        for one in found[1:]:
            its, mine = one.value(name), found[0].value(name)
            if one.name not in ("local", "popularity") or its is None or mine is None or lower is None:
                continue
            if its != mine and (its < mine) == lower:
                places = decimals([its, mine])
                numbers = f"{metric(its, places)} against {metric(mine, places)}"
                found_better.append(sentence(f"{one.name} does better by {meaning(name).short}: {numbers}"))
    return found_better


def missing(record: RunRecord) -> list[str]:
    """Why some of them have no metrics."""
    return [sentence(f"{one.name}: {one.missing}") for one in contenders(record) if one.missing]
