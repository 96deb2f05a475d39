"""Bars, stacks and intervals, as inline SVG: who sent what, when, and how runs compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.report.markup import Markup, tag
from tacit.report.svg import (
    COLOURS,
    DOWN,
    FLOOR,
    HUGE,
    NARROW,
    UP,
    Axis,
    box,
    canvas,
    empty,
    fitting,
    nice_step,
    rule,
    size_format,
    text,
    tick_format,
    ticks,
    x_axis,
    y_axis,
)
from tacit.report.words import count, metric, size


@dataclass(frozen=True)
class Bar:
    """One row of a bar chart: what went up and what came down."""

    name: str
    up: float
    down: float


@dataclass(frozen=True)
class Estimate:
    """A value with its interval (either end may be missing), for side-by-side comparison.

    A `floor` is what the others are to beat: grey, with a line across the whole chart.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    floor: bool = False


def bars(rows: Sequence[Bar], *, label: str, width: float, names: tuple[str, str] = ("up", "down")) -> Markup:
    """Bytes up and down, one row for each party."""
    if not rows:
        return empty(width, label)
    narrow = width <= NARROW
    row_height, head = (54.0, 18.0) if narrow else (35.0, 0.0)
    left, right = (0.0 if narrow else _name_width([row.name for row in rows])), width - 66
    largest = max(max(row.up, row.down) for row in rows) or 1.0
    x = Axis(0.0, largest, left, right)
    parts = []
    for place, row in enumerate(rows):
        y = 4 + place * row_height
        name = fitting(row.name, width if narrow else left - 16)
        at = text(0, y + 13, name, "name") if narrow else text(left - 12, y + 18, name, "name", "end")
        pair: list[str | None] = [
            tag("title", f"{row.name}: {size(row.up)} {names[0]}, {size(row.down)} {names[1]}"),
            at,
        ]
        for line, (value, kind) in enumerate(((row.up, f"fill c{UP}"), (row.down, f"fill c{DOWN}"))):
            top = y + head + 1 + 14 * line
            pair += [
                box(left, top, max(x(value) - left, 1.5 if value else 0), 12, kind),
                text(max(x(value), left) + 6, top + 10.5, size_format(value), "tick"),
            ]
        parts.append(tag("g", *pair))
    return canvas(width, 4 + row_height * len(rows), label, *parts)


def stacked_rounds(
    rounds: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    *,
    label: str,
    width: float,
    height: float = 240.0,
) -> Markup:
    """Bytes per round: up above the line, down below it, each step in its colour. `up`, `down` are (r, s)."""
    if len(rounds) == 0 or not (up.any() or down.any()):
        return empty(width, label)
    starts, ends, up, down = _gathered(rounds, up, down, 120 if width > NARROW else 52)
    left, right, top, bottom = 70.0, width - 14.0, 30.0, height - 46.0
    most_down, most_up = (1.06 * float(table.sum(axis=1).max()) for table in (down, up))
    y = Axis(-most_down, most_up, bottom, top)
    y_ticks = ticks(y.low, y.high, 5)
    x = Axis(float(starts[0]) - 0.5, float(ends[-1]) + 0.5, left, right)
    parts = [
        text(0, 14, "Up (above) and down (below) per round", "title"),
        y_axis(y, y_ticks, left, right, size_format),
    ]
    for place, (a, b) in enumerate(zip(starts, ends, strict=True)):
        name = f"Round {count(int(a))}" if a == b else f"Rounds {count(int(a))} to {count(int(b))}, each"
        pieces: list[str | None] = [
            tag("title", f"{name}: {size(float(up[place].sum()))} up, {size(float(down[place].sum()))} down")
        ]
        from_x, to_x = x(a - 0.5), x(b + 0.5)
        gap = 1.0 if to_x - from_x > 8 else 0.0
        for amounts, sign in ((up[place], 1), (down[place], -1)):
            base = 0.0
            for step, amount in enumerate(amounts):
                if amount:
                    one, other = y(sign * base), y(sign * (base + float(amount)))
                    kind = f"fill c{min(step, COLOURS - 1)}" + ("" if sign > 0 else " below")
                    pieces.append(box(from_x + gap, min(one, other), to_x - from_x - 2 * gap, abs(other - one), kind))
                base += float(amount)
        parts.append(tag("g", *pieces))
    x_ticks = ticks(x.low + 0.5, x.high - 0.5, 8 if width > NARROW else 4, whole=True)
    parts += [
        x_axis(x, x_ticks, bottom, "Round", lambda v: count(int(v))),
        rule(left, y(0.0), right, y(0.0), "base"),
    ]
    return canvas(width, height, label, *parts)


def estimates(rows: Sequence[Estimate], *, label: str, x_title: str, width: float) -> Markup:
    """Values with their intervals, one under the other, on one scale."""
    known = [v for r in rows for v in (r.value, r.low, r.high) if v is not None and np.isfinite(v)]
    finite = [min(max(v, -HUGE), HUGE) for v in known]
    if not finite:
        return empty(width, label)
    narrow = width <= NARROW
    row_height, left = (50.0, 12.0) if narrow else (34.0, _name_width([row.name for row in rows]))
    right, bottom = width - 60.0, 8 + row_height * len(rows) + 6
    pad = 0.06 * (max(finite) - min(finite)) or 0.05 * abs(finite[0]) or 0.5
    x = Axis(min(finite) - pad, max(finite) + pad, left, right)
    x_ticks = ticks(x.low, x.high, 4 if narrow else 6)
    write = tick_format(nice_step(x.high - x.low, 4 if narrow else 6))
    parts: list[str | None] = [rule(x(t), 4, x(t), bottom, "grid") for t in x_ticks]
    for place, row in enumerate(rows):
        y = 8 + row_height * place + (34 if narrow else row_height / 2)
        colour = f"c{FLOOR if row.floor else place % COLOURS}"
        shown = f"{row.name}: {metric(row.value)}"
        name = fitting(row.name, width if narrow else left - 16)
        at = text(0, y - 16, name, "name") if narrow else text(left - 12, y + 4, name, "name", "end")
        pieces: list[str | None] = [at]
        if row.low is not None and row.high is not None and np.isfinite(row.low) and np.isfinite(row.high):
            shown += f", interval {metric(row.low)} to {metric(row.high)}"
            pieces.append(rule(x(row.low), y, x(row.high), y, f"line {colour}"))
            pieces += [rule(x(end), y - 5, x(end), y + 5, f"line {colour}") for end in (row.low, row.high)]
        if row.floor and np.isfinite(row.value):
            pieces.append(rule(x(row.value), 4, x(row.value), bottom, "reference"))
        if np.isfinite(row.value):
            pieces.append(tag("circle", cx=x(row.value), cy=float(y), r=5.0, class_=f"fill {colour}"))
        pieces.append(text(right + 8, y + 4, metric(row.value), "tick"))
        parts.append(tag("g", tag("title", shown), *pieces))
    parts.append(x_axis(x, x_ticks, bottom, x_title, write))
    return canvas(width, bottom + 46, label, *parts)


def _name_width(names: Sequence[str]) -> float:
    """Room for names at the left of a chart: as much as they need, up to a third of it."""
    return min(max(7.0 * max(map(len, names)) + 18, 60.0), 230.0)


def _gathered(
    rounds: np.ndarray, up: np.ndarray, down: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Neighbouring rounds put together, at most `most` groups; bytes are means of a group."""
    width = -(-len(rounds) // most)
    first = np.arange(0, len(rounds), width)
    last = np.minimum(first + width, len(rounds)) - 1
    n = (last - first + 1)[:, None]
    return rounds[first], rounds[last], np.add.reduceat(up, first) / n, np.add.reduceat(down, first) / n
