"""The frontier: how well every method does at every ε, and what it sends for it, from the runs of one sweep.

The page's words are in templates/frontier.html.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

import numpy as np

from tacit.report import page
from tacit.report.charts import Reference, Series, line_chart
from tacit.report.metric_names import leading, meaning
from tacit.report.page import Figure
from tacit.report.svg import COLOURS
from tacit.report.words import epsilon, listing, metric, plural, short


@dataclass(frozen=True)
class Point:
    """One method at one ε (infinite without privacy): the summaries of its runs, one per seed."""

    method: str
    epsilon: float
    runs: Sequence[dict[str, Any]]

    @property
    def metrics(self) -> list[str]:
        """The metrics that all runs have."""
        return [name for name in self.runs[0]["metrics"] if all(name in run["metrics"] for run in self.runs)]

    def values(self, name: str) -> list[float]:
        return [run["metrics"][name] for run in self.runs if run["metrics"].get(name) is not None]

    def mean(self, name: str) -> float:
        """The mean over seeds; NaN where no run has the metric."""
        values = self.values(name)
        return fmean(values) if values else math.nan

    def deviation(self, name: str) -> float | None:
        """The standard deviation over seeds; None for one seed."""
        values = self.values(name)
        return stdev(values) if len(values) > 1 else None

    @property
    def bytes_up(self) -> float:
        return fmean(run["bytes_up"] for run in self.runs)

    @property
    def seconds(self) -> float:
        return fmean(run["seconds"] for run in self.runs)

    def to_json(self) -> dict[str, Any]:
        """Means and deviations over seeds; epsilon is null without privacy."""
        metrics = {name: {"mean": self.mean(name), "sd": self.deviation(name)} for name in self.metrics}
        return {
            "method": self.method,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "seeds": len(self.runs),
            "metrics": metrics,
            "bytes_up": self.bytes_up,
            "seconds": self.seconds,
            "runs": [run["run"] for run in self.runs],
        }


@dataclass(frozen=True)
class Frontier:
    """All points of a sweep, and why others are missing.

    Attributes
    ----------
    levels : the points of methods without privacy to compare with, such as ceilings
    refused : method and ε → why it does not run there
    """

    title: str
    points: Sequence[Point]
    levels: Sequence[Point] = ()
    refused: Sequence[tuple[str, str]] = field(default_factory=tuple)

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(point.method for point in self.points))

    @property
    def epsilons(self) -> list[float]:
        return sorted({point.epsilon for point in self.points})

    @property
    def metrics(self) -> list[str]:
        """The metrics of any point, the leading one of rating and of ranking first."""
        return list(dict.fromkeys(name for point in (*self.points, *self.levels) for name in point.metrics))

    def at(self, method: str, value: float) -> Point | None:
        return next((point for point in self.points if (point.method, point.epsilon) == (method, value)), None)

    def best(self, name: str, value: float) -> Point | None:
        """The best method at one ε by the mean over seeds; None where nothing is known."""
        lower = meaning(name).lower_is_better
        known = [p for p in self.points if p.epsilon == value and math.isfinite(p.mean(name))]
        if lower is None or not known:
            return None
        return min(known, key=lambda point: point.mean(name) * (1 if lower else -1))


def shown(name: str) -> bool:
    """Whether a metric has a chart of its own: one for ratings, two for ranking."""
    return name.partition("@")[0] in ("mse", "ndcg", "hr_full")


def frontier_page(frontier: Frontier) -> str:
    """The frontier as one offline HTML page."""
    names = [name for name in frontier.metrics if shown(name)] or [leading(frontier.metrics) or "mse"]
    return page.render(
        "frontier.html",
        title=frontier.title,
        eyebrow=f"Tacit frontier · {plural(sum(len(p.runs) for p in (*frontier.points, *frontier.levels)), 'run')}",
        lede=_lede(frontier, names[0]),
        version=None,
        charts=[(meaning(name), _chart(frontier, name), _table(frontier, name)) for name in names],
        columns=[epsilon_name(value) for value in frontier.epsilons],
        sizes=[_sizes(frontier, method) for method in frontier.methods],
        refused=frontier.refused,
    )


def epsilon_name(value: float) -> str:
    """ε as a column's head: "no privacy" where it is infinite."""
    return "no privacy" if math.isinf(value) else f"ε = {epsilon(value)}"


def _lede(frontier: Frontier, name: str) -> str:
    private = [value for value in frontier.epsilons if math.isfinite(value)]
    if not private:
        return f"{plural(len(frontier.methods), 'method')} without privacy."
    winners = [frontier.best(name, value) for value in private]
    found = list(dict.fromkeys(point.method for point in winners if point is not None))
    if not found:
        return f"{plural(len(frontier.methods), 'method')} at {plural(len(private), 'privacy budget')}."
    if len(found) == 1:
        return f"{found[0]} has the best mean test {meaning(name).short} at every ε tried."
    return f"{listing(found)} share the best mean test {meaning(name).short}, each at some ε."


def _chart(frontier: Frontier, name: str) -> Figure:
    """One line per method over ε on a logarithmic axis, "no privacy" at its end; ceilings and floors as levels."""
    places = _places(frontier.epsilons)
    series: list[Series] = []
    left_out = []
    for method in frontier.methods:
        mine = [frontier.at(method, value) for value in frontier.epsilons]
        y = np.array([math.nan if point is None else point.mean(name) for point in mine])
        if not np.isfinite(y).any():
            continue
        if len(series) < COLOURS:
            series.append(Series(method, np.array([places[value] for value in frontier.epsilons]), y))
        else:
            left_out.append(method)
    levels = [Reference(f"{p.method}, no privacy: {metric(p.mean(name))}", p.mean(name)) for p in frontier.levels]
    seeds = max(len(point.runs) for point in frontier.points)
    way = {True: "lower is better", False: "higher is better", None: "it is not known which way is better"}
    reading = f"Mean test {meaning(name).short} over {plural(seeds, 'seed')} at each ε; "
    reading += f"{way[meaning(name).lower_is_better]}."
    if levels:
        reading += " Dashed levels were trained without privacy."
    if left_out:
        reading += f" Only in the table: {listing(left_out)}."
    drawing = line_chart(
        series,
        label=f"Line chart of test {meaning(name).short} over ε, one line per method.",
        x_title="ε",
        y_title=f"Test {meaning(name).short}",
        references=levels,
        x_names={places[value]: "∞" if math.isinf(value) else epsilon(value) for value in frontier.epsilons},
    )
    return Figure(reading, drawing, [s.name for s in series])


def _places(values: Sequence[float]) -> dict[float, float]:
    """Where each ε is on the axis: its logarithm, and one step further for no privacy."""
    logs = {value: math.log2(value) for value in values if math.isfinite(value)}
    end = max(logs.values(), default=0.0) + 1.0
    return {value: logs.get(value, end) for value in values}


def _table(frontier: Frontier, name: str) -> list[dict[str, Any]]:
    """A row per method and level: mean ± deviation at each ε; the best at each is marked."""
    best = {value: frontier.best(name, value) for value in frontier.epsilons}
    rows = []
    for method in frontier.methods:
        points = [frontier.at(method, value) for value in frontier.epsilons]
        cells = [(cell(p, name), p is not None and p is best[p.epsilon]) for p in points]
        rows.append({"name": short(method, 60), "cells": cells})
    for level in frontier.levels:
        blank = [("", False)] * (len(frontier.epsilons) - 1)
        rows.append({"name": f"{short(level.method, 48)}, no privacy", "cells": [*blank, (cell(level, name), False)]})
    return rows


def cell(point: Point | None, name: str) -> str:
    """The mean over seeds ± its standard deviation, or a dash."""
    if point is None or not math.isfinite(point.mean(name)):
        return "–"
    spread = point.deviation(name)
    return f"{point.mean(name):.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def _sizes(frontier: Frontier, method: str) -> dict[str, Any]:
    """What a method's runs sent at most and how long they took at most, means over seeds."""
    mine = [point for point in frontier.points if point.method == method]
    return {"name": method, "up": max(p.bytes_up for p in mine), "seconds": max(p.seconds for p in mine)}
