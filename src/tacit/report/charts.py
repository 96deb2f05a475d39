"""Lines and histograms, as inline SVG: no script, no font, nothing fetched; hovering is <title> and CSS.

Every maker takes plain numbers and the width to draw for, and returns `Markup`. Colours are CSS classes
(c0 … c5), so that one drawing serves light, dark and print.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tacit.report.markup import Markup, join, tag
from tacit.report.svg import (
    COLOURS,
    HUGE,
    NARROW,
    Axis,
    box,
    canvas,
    empty,
    nice_step,
    rule,
    text,
    tick_format,
    ticked,
    ticks,
    x_axis,
    y_axis,
)
from tacit.report.words import count, metric, plural

_MOST_POINTS = 240  # drawn of one line
_MOST_HOVERS = 60  # places of a chart that answer the pointer


@dataclass(frozen=True)
class Series:
    """One line: `x` and `y`, (n,) each; a y that is not finite is a gap."""

    name: str
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True)
class Reference:
    """A level to compare a line with."""

    name: str
    y: float


def legend(names: Sequence[str], colours: Iterable[int] | None = None) -> Markup:
    """The names of series, each with its colour: a box of `colours`, or without them a line with its dash."""
    swatches = map(_line_swatch, range(len(names))) if colours is None else map(_box_swatch, colours)
    keys = (
        tag("li", tag("svg", swatch, viewBox="0 0 26 12", class_="key", aria_hidden="true"), tag("span", name))
        for swatch, name in zip(swatches, names, strict=False)
    )
    return tag("ul", *keys, class_="legend")


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    x_title: str,
    y_title: str,
    references: Sequence[Reference] = (),
    width: float,
    height: float = 300.0,
) -> Markup:
    """Values over rounds. The vertical axis need not start at zero."""
    series = [_thinned(s) for s in series]
    finite = np.clip(np.concatenate([s.y[np.isfinite(s.y)] for s in series] or [np.empty(0)]), -HUGE, HUGE)
    if len(finite) == 0:
        return empty(width, label)
    levels = [r.y for r in references if np.isfinite(r.y)]
    low, high = _range(finite, levels)
    left, right, top, bottom = 58.0, width - (14.0 if len(series) > 1 else 52.0), 34.0, height - 46.0
    below, above = (0.06 + 0.1 * (end in levels) for end in (low, high))  # a level's name needs room
    y = Axis(low - below * (high - low), high + above * (high - low), bottom, top)
    y_ticks = ticks(y.low, y.high, 5)
    x_all = np.concatenate([s.x[np.isfinite(s.y)] for s in series])
    x = Axis(float(x_all.min()), float(x_all.max()), left, right)
    if x.low == x.high:
        x = Axis(x.low - 1, x.high + 1, left, right)
    write = tick_format(y_ticks[1] - y_ticks[0]) if len(y_ticks) > 1 else metric
    x_ticks = ticks(x.low, x.high, 8 if width > NARROW else 4, whole=True)
    parts = [
        text(0, 14, y_title, "title"),
        y_axis(y, y_ticks, left, right, write),
        x_axis(x, x_ticks, bottom, x_title, lambda v: count(int(v))),
    ]
    if float(finite.max()) > y.high:
        parts.append(text(left + 8, top + 12, f"↑ up to {metric(float(finite.max()))}", "note"))
    parts += [rule(left, y(level), right, y(level), "reference") for level in levels]
    for place, s in enumerate(series):
        parts += [_path(s, x, y, place), _end(s, x, y, place, named=len(series) == 1)]
    parts.append(_reference_names(references, series, y, right))
    parts.append(_hovers(series, x, y, top, bottom, x_title))
    return canvas(width, height, label, *parts)


def histogram(
    values: np.ndarray,
    *,
    label: str,
    x_title: str,
    references: Sequence[Reference] = (),
    width: float,
    height: float = 260.0,
) -> Markup:
    """How many users have which value; the last bar is open upwards where a few would stretch the axis.

    Under median and mean stand the `references`, as far as they lie within the axis.
    """
    values = np.clip(values[np.isfinite(values)], -HUGE, HUGE)
    if len(values) == 0:
        return empty(width, label)
    edges, counts, open_ended = binned(values, about=28 if width > NARROW else 16)
    left, right, bottom = 58.0, width - 14.0, height - 46.0
    x = Axis(float(edges[0]), float(edges[-1]), left, right)
    drawn = [r for r in references if x.low <= r.y <= x.high]
    top = 52.0 + 15 * len(drawn)
    y, y_ticks = ticked(0.0, float(counts.max()), bottom, top, 4, whole=True)
    places = max(tick_places(edges[1] - edges[0]), 1)
    write = tick_format(nice_step(x.high - x.low, 8))
    parts = [
        text(0, 14, "Users", "title"),
        y_axis(y, y_ticks, left, right, lambda v: count(int(v))),
        x_axis(x, ticks(x.low, x.high, 8 if width > NARROW else 4), bottom, x_title, write),
    ]
    for place, n in enumerate(counts):
        a, b = float(edges[place]), float(edges[place + 1])
        last = place == len(counts) - 1
        span = f"{metric(a, places)} or more" if last and open_ended else f"{metric(a, places)} to {metric(b, places)}"
        if n:
            title = tag("title", f"{plural(int(n), 'user')}: {span}")
            kind = "fill c0 faint" if last and open_ended else "fill c0"
            parts.append(box(x(a) + 0.5, y(float(n)), x(b) - x(a) - 1, bottom - y(float(n)), kind, title))
    if open_ended:
        words = f"{metric(float(edges[-2]), places)} and more"
        below = [int(n) for n, b in zip(counts, edges[1:], strict=True) if x(float(b)) > right - 7.5 * len(words)]
        parts.append(text(right, y(float(max(below))) - 6, words, "note", "end"))
    middle, mean = float(np.median(values)), float(values.mean())
    shown = {"median": middle} if len(values) == 1 or not np.isfinite(mean) else {"median": middle, "mean": mean}
    marks = [(f"{name} {metric(value)}", value, f"mark m{row}") for row, (name, value) in enumerate(shown.items())]
    marks += [(reference.name, reference.y, "reference") for reference in drawn]
    for row, (words, value, kind) in enumerate(marks):
        at, right_half = x(value), x(value) > (left + right) / 2
        y_text = top - 20 - 15 * len(drawn) + 15 * row
        parts += [
            rule(at, y_text - 10, at, bottom, kind),
            text(at + (-6 if right_half else 6), y_text, words, "note", "end" if right_half else None),
        ]
    return canvas(width, height, label, *parts)


def binned(values: np.ndarray, about: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Round bins of finite values: edges (b+1,), counts (b,) int64, whether the last bin is open upwards."""
    low, high = float(values.min()), float(values.max())
    top = float(np.percentile(values, 99))
    open_ended = high - low > 1.5 * (top - low) > 0
    if low == high:
        width = abs(low) * 0.1 or 0.1
        return np.array([low - width / 2, low + width / 2]), np.array([len(values)]), False
    end = top if open_ended else high
    step = nice_step(end - low, about)
    first = int(np.floor(low / step + 1e-9))
    bins = max(int(np.floor((end / step) + 1e-9)) + 1 - first, 1)
    if not open_ended and bins > 1 and (first + bins - 1) * step >= high - 1e-9 * step:
        bins -= 1  # the largest value closes the last bin
    edges = (first + np.arange(bins + 1 + open_ended)) * step
    place = np.clip(np.floor(values / step + 1e-9).astype(np.int64) - first, 0, bins - 1 + open_ended)
    return edges, np.bincount(place, minlength=len(edges) - 1), bool(open_ended)


def tick_places(step: float) -> int:
    """Digits after the point that a multiple of `step` needs."""
    written = tick_format(step)(step)
    return len(written.partition(".")[2])


def _thinned(s: Series) -> Series:
    """At most `_MOST_POINTS` points: the lowest and highest of each stretch, so that no peak goes unseen."""
    if len(s.x) <= _MOST_POINTS:
        return s
    kept = {0, len(s.x) - 1}
    for stretch in np.array_split(np.arange(len(s.x)), _MOST_POINTS // 2):
        part = s.y[stretch]
        if np.isfinite(part).any():
            kept |= {int(stretch[np.nanargmin(part)]), int(stretch[np.nanargmax(part)])}
    order = np.array(sorted(kept))
    return Series(s.name, s.x[order], s.y[order])


def _range(finite: np.ndarray, levels: Sequence[float]) -> tuple[float, float]:
    """What the vertical axis shows: all, unless a few early values would flatten the rest."""
    low, high = float(finite.min()), float(finite.max())
    usual = float(np.percentile(finite, 85))
    if usual > low and high - low > 12 * (usual - low):
        high = low + 3 * (usual - low)
    low, high = min([low, *levels]), max([high, *levels])
    if low == high:
        pad = abs(low) * 0.1 or 0.5
        return low - pad, high + pad
    return low, high


def _path(s: Series, x: Axis, y: Axis, place: int) -> Markup:
    written, pen = [], "M"
    for a, b in zip(s.x, s.y, strict=True):
        if not np.isfinite(b):
            pen = "M"
            continue
        written.append(f"{pen}{x(float(a)):.1f} {y(float(b)):.1f}")
        pen = "L"
    return tag("path", d="".join(written), class_=f"line c{place % COLOURS} d{place % COLOURS}")


def _end(s: Series, x: Axis, y: Axis, place: int, named: bool) -> Markup:
    known = np.flatnonzero(np.isfinite(s.y))
    if len(known) == 0:
        return Markup("")
    a, b = float(s.x[known[-1]]), float(s.y[known[-1]])
    dot = tag("circle", cx=x(a), cy=y(b), r=4.0, class_=f"fill c{place % COLOURS}")
    return join([dot, text(x(a) + 9, y(b) + 4, metric(b), "value") if named else None])


def _reference_names(references: Sequence[Reference], series: Sequence[Series], y: Axis, right: float) -> Markup:
    """The names of levels, at the right: away from where the lines end, and clear of each other."""
    ends = [float(s.y[np.isfinite(s.y)][-1]) for s in series if np.isfinite(s.y).any()]
    middle = sum(ends) / len(ends)
    known = sorted((r for r in references if np.isfinite(r.y)), key=lambda r: -r.y)
    names, free = [], -np.inf
    for reference in known:
        free = max(y(reference.y) + (15 if reference.y < middle else -6), free + 15)
        names.append(text(right - 4, free, reference.name, "note", "end"))
    return join(names)


def _hovers(series: Sequence[Series], x: Axis, y: Axis, top: float, bottom: float, x_title: str) -> Markup:
    """Bands that answer the pointer: a title for all, and for a single line also a dot and its value."""
    found: dict[float, list[tuple[Series, float]]] = {}
    for s in series:
        for a, b in zip(s.x, s.y, strict=True):
            if np.isfinite(b):
                found.setdefault(float(a), []).append((s, float(b)))
    places = sorted(found)
    if len(places) > _MOST_HOVERS:
        places = [places[k] for k in np.unique(np.linspace(0, len(places) - 1, _MOST_HOVERS).round().astype(int))]
    edges = [x.start, *((x(a) + x(b)) / 2 for a, b in pairwise(places)), x.end]
    bands = []
    for k, a in enumerate(places):
        here = found[a]
        named = ", ".join(f"{s.name} {metric(b)}" if len(series) > 1 else metric(b) for s, b in here)
        parts: list[str | None] = [
            tag("title", f"{x_title} {count(int(a))}: {named}"),
            box(edges[k], top, edges[k + 1] - edges[k], bottom - top, "band"),
        ]
        if len(series) == 1:
            parts.append(tag("circle", cx=x(a), cy=y(here[0][1]), r=4.0, class_="fill c0"))
            parts.append(text(x.end, 14, f"{x_title.lower()} {count(int(a))}: {named}", "value", "end"))
        bands.append(tag("g", *parts, class_="hit"))
    return join(bands)


def _line_swatch(place: int) -> Markup:
    return rule(1, 6, 25, 6, f"line c{place % COLOURS} d{place % COLOURS}")


def _box_swatch(colour: int) -> Markup:
    return box(3, 0, 20, 12, f"fill c{colour}")
