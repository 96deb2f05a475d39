"""Bars, stacks and intervals, as inline SVG for wide and for narrow screens: who sent what, and how runs compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from tacit.report import svg
from tacit.report.words import metric, short, size

UP, DOWN = 0, 5  # the colours of the two directions
_FLOOR = 5  # the colour of floors


@dataclass(frozen=True)
class Bar:
    """One row of a bar chart: its name, and (bytes, colour) of each of its bars."""

    name: str
    values: Sequence[tuple[float, int]]


@dataclass(frozen=True)
class Estimate:
    """A value with its interval (either end may be missing), for side-by-side comparison.

    A `floor` is what the others should beat: grey, with a line across the chart.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    floor: bool = False


def bars(rows: Sequence[Bar], *, label: str, names: Sequence[str] = ("",)) -> Markup:
    """Bytes, one row for each party, run or step; `names` are those of a row's bars, for the pointer."""
    if not rows:
        return svg.nothing(label)
    largest = max(value for row in rows for value, _colour in row.values) or 1.0
    shown = [[size(value) for value, _colour in row.values] for row in rows]

    def draw(width: float) -> tuple[float, list[svg.Mark]]:
        narrow = width <= svg.NARROW
        head, left = (18.0, 0.0) if narrow else (0.0, _name_width([row.name for row in rows]))
        row_height = head + 8.0 + 14.0 * max(len(row.values) for row in rows)
        x = svg.Axis(0.0, largest, left, width - 66)
        marks: list[svg.Mark] = []
        for place, row in enumerate(rows):
            y = 4 + place * row_height
            line: list[svg.Mark] = [
                _name(row.name, narrow, width, left, y + (13 if narrow else 4 + 7 * len(row.values)))
            ]
            for k, ((value, colour), words) in enumerate(zip(row.values, shown[place], strict=True)):
                top, end = y + head + 1 + 14 * k, max(float(x(value)), left + (1.5 if value else 0))
                line.append(svg.Box(left, top, end - left, 12, f"fill c{colour}"))
                line.append(svg.Text(end + 6, top + 10.5, _brief(words), "tick"))
            titles = (f"{words} {name}".strip() for words, name in zip(shown[place], names, strict=False))
            marks.append(svg.Group(line, f"{row.name}: {', '.join(titles)}"))
        return 4 + row_height * len(rows), marks

    return svg.both(label, draw)


def stacked_rounds(
    rounds: np.ndarray, up: np.ndarray, down: np.ndarray, *, label: str, height: float = 240.0
) -> Markup:
    """Bytes per round: up above the line, down below it, each step in its colour. `up`, `down` are (r, s)."""
    if len(rounds) == 0 or not (up.any() or down.any()):
        return svg.nothing(label)

    def draw(width: float) -> tuple[float, list[svg.Mark]]:
        starts, ends, ups, downs = _gathered(rounds, up, down, 120 if width > svg.NARROW else 52)
        left, right, top, bottom = 70.0, width - 14.0, 30.0, height - 46.0
        y = svg.Axis(-1.06 * float(downs.sum(axis=1).max()), 1.06 * float(ups.sum(axis=1).max()), bottom, top)
        x = svg.Axis(float(starts[0]) - 0.5, float(ends[-1]) + 0.5, left, right)
        x_ticks = svg.ticks(x.low + 0.5, x.high - 0.5, 8 if width > svg.NARROW else 4, whole=True)
        marks: list[svg.Mark] = [svg.Text(0, 14, "Up (above) and down (below) per round", "title")]
        marks += svg.y_axis(y, svg.ticks(y.low, y.high, 5), left, right, lambda v: _brief(size(abs(v))))
        marks += _stacks(starts, ends, (ups, downs), x, y)
        marks += svg.x_axis(x, x_ticks, bottom, "Round", "{:,.0f}".format)
        return height, [*marks, svg.Rule(left, float(y(0.0)), right, float(y(0.0)), "base")]

    return svg.both(label, draw)


def _stacks(
    starts: np.ndarray, ends: np.ndarray, tables: tuple[np.ndarray, np.ndarray], x: svg.Axis, y: svg.Axis
) -> list[svg.Mark]:
    lefts, rights = x(starts - 0.5), x(ends + 0.5)
    gap = np.where(rights - lefts > 8, 1.0, 0.0)
    edges = [y(sign * np.pad(t.cumsum(axis=1), ((0, 0), (1, 0)))) for sign, t in zip((1, -1), tables, strict=True)]
    marks: list[svg.Mark] = []
    for k, (a, b) in enumerate(zip(starts, ends, strict=True)):
        name = f"Round {a:,}" if a == b else f"Rounds {a:,} to {b:,}, each"
        boxes = [
            svg.Box(
                lefts[k] + gap[k],
                edge[k, step : step + 2].min(),
                rights[k] - lefts[k] - 2 * gap[k],
                abs(edge[k, step + 1] - edge[k, step]),
                f"fill c{min(step, svg.COLOURS - 1)}{kind}",
            )
            for table, edge, kind in zip(tables, edges, ("", " below"), strict=True)
            for step in np.flatnonzero(table[k])
        ]
        up, down = (size(float(table[k].sum())) for table in tables)
        marks.append(svg.Group(boxes, f"{name}: {up} up, {down} down"))
    return marks


def _gathered(
    rounds: np.ndarray, up: np.ndarray, down: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Neighbouring rounds put together, at most `most` groups; bytes are means of a group."""
    width = -(-len(rounds) // most)
    first = np.arange(0, len(rounds), width)
    last = np.minimum(first + width, len(rounds)) - 1
    n = (last - first + 1)[:, None]
    return rounds[first], rounds[last], np.add.reduceat(up, first) / n, np.add.reduceat(down, first) / n


def estimates(rows: Sequence[Estimate], *, label: str, x_title: str) -> Markup:
    """Values with their intervals, one under the other, on one scale."""
    known = [v for r in rows for v in (r.value, r.low, r.high) if v is not None and np.isfinite(v)]
    if not known:
        return svg.nothing(label)
    finite = np.clip(known, -svg.HUGE, svg.HUGE)
    low, high = float(finite.min()), float(finite.max())
    pad = 0.06 * (high - low) or 0.05 * abs(low) or 0.5

    def draw(width: float) -> tuple[float, list[svg.Mark]]:
        narrow = width <= svg.NARROW
        row_height, left = (50.0, 12.0) if narrow else (34.0, _name_width([row.name for row in rows]))
        right, bottom, about = width - 60.0, 8 + row_height * len(rows) + 6, 4 if narrow else 6
        x = svg.Axis(low - pad, high + pad, left, right)
        x_ticks = svg.ticks(x.low, x.high, about)
        marks: list[svg.Mark] = [svg.Rule(at, 4, at, bottom, "grid") for at in x(x_ticks)]
        for place, row in enumerate(rows):
            y = 8 + row_height * place + (34 if narrow else row_height / 2)
            line = _estimate(row, x, y, bottom, _FLOOR if row.floor else place % svg.COLOURS)
            name = _name(row.name, narrow, width, left, y - 16 if narrow else y + 4)
            title = f"{row.name}: {metric(row.value)}"
            if row.low is not None and row.high is not None and np.isfinite([row.low, row.high]).all():
                title += f", interval {metric(row.low)} to {metric(row.high)}"
            marks.append(svg.Group([name, *line, svg.Text(right + 8, y + 4, metric(row.value), "tick")], title))
        marks += svg.x_axis(x, x_ticks, bottom, x_title, svg.tick_format(svg.nice_step(x.high - x.low, about)))
        return bottom + 46, marks

    return svg.both(label, draw)


def _estimate(row: Estimate, x: svg.Axis, y: float, bottom: float, colour: int) -> list[svg.Mark]:
    marks: list[svg.Mark] = []
    if row.low is not None and row.high is not None and np.isfinite([row.low, row.high]).all():
        low, high = x([row.low, row.high])
        marks.append(svg.Rule(low, y, high, y, f"line c{colour}"))
        marks += [svg.Rule(end, y - 5, end, y + 5, f"line c{colour}") for end in (low, high)]
    if np.isfinite(row.value):
        at = float(x(row.value))
        marks += [svg.Rule(at, 4, at, bottom, "reference")] if row.floor else []
        marks.append(svg.Dot(at, y, 5.0, f"fill c{colour}"))
    return marks


def _name(name: str, narrow: bool, width: float, left: float, y: float) -> svg.Text:
    """A row's name, cut to its room: above its bars where the screen is narrow, else at their left."""
    room = max(int((width if narrow else left - 16) / 7.0), 4)
    return svg.Text(0 if narrow else left - 12, y, short(name, room), "name", "" if narrow else "end")


def _name_width(names: Sequence[str]) -> float:
    """Room for names at the left of a chart: as much as they need, up to a third of it."""
    return min(max(7.0 * max(map(len, names)) + 18, 60.0), 230.0)


def _brief(words: str) -> str:
    return "0" if words == "0 bytes" else words.replace(" bytes", " B").replace(" byte", " B")
