"""Lines and histograms, as inline SVG for wide and for narrow screens.

Colours are CSS classes (c0 … c5), so one drawing serves light, dark and print. There is no script: hovering is <title>
and CSS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from markupsafe import Markup

from tacit.report import svg
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


def line_chart(
    series: Sequence[Series],
    *,
    label: str,
    x_title: str,
    y_title: str,
    references: Sequence[Reference] = (),
    x_names: Mapping[float, str] | None = None,
    height: float = 300.0,
) -> Markup:
    """Values over rounds, or over the places that `x_names` names. The vertical axis need not start at zero."""
    series = [_thinned(s) for s in series]
    finite = np.clip(np.concatenate([s.y[np.isfinite(s.y)] for s in series] or [np.empty(0)]), -svg.HUGE, svg.HUGE)
    if len(finite) == 0:
        return svg.nothing(label)
    references = [r for r in references if np.isfinite(r.y)]
    levels = [r.y for r in references]
    low, high = _range(finite, levels)
    below, above = (0.06 + 0.1 * (end in levels) for end in (low, high))  # a level's name needs room
    x_all = np.concatenate([s.x[np.isfinite(s.y)] for s in series])
    first, last = float(x_all.min()), float(x_all.max())
    pad = 1.0 if first == last else 0.0
    hovers = _hovers(series, x_title, x_names)

    def named(place: float) -> str:
        return f"{place:,.0f}" if x_names is None else x_names[place]

    def draw(width: float) -> tuple[float, list[svg.Mark]]:
        left, right, top, bottom = 58.0, width - (14.0 if len(series) > 1 else 52.0), 34.0, height - 46.0
        y = svg.Axis(low - below * (high - low), high + above * (high - low), bottom, top)
        x = svg.Axis(first - pad, last + pad, left, right)
        y_ticks = svg.ticks(y.low, y.high, 5)
        write = svg.tick_format(y_ticks[1] - y_ticks[0]) if len(y_ticks) > 1 else metric
        x_ticks = list(x_names or svg.ticks(x.low, x.high, 8 if width > svg.NARROW else 4, whole=True))
        marks: list[svg.Mark] = [svg.Text(0, 14, y_title, "title"), *svg.y_axis(y, y_ticks, left, right, write)]
        marks += svg.x_axis(x, x_ticks, bottom, x_title, named)
        if float(finite.max()) > y.high:
            marks.append(svg.Text(left + 8, top + 12, f"↑ up to {metric(float(finite.max()))}", "note"))
        marks += [svg.Rule(left, level, right, level, "reference") for level in y(levels)]
        for place, s in enumerate(series):
            marks += _line(s, x, y, place, named=len(series) == 1)
        marks += _reference_names(references, series, y, right)
        return height, marks + _bands(hovers, x, y, top, bottom)

    return svg.both(label, draw)


def _thinned(s: Series) -> Series:
    """At most `_MOST_POINTS` points: the lowest and highest of each stretch, so that no peak goes unseen."""
    if len(s.x) <= _MOST_POINTS:
        return s
    chosen = {0, len(s.x) - 1}
    for stretch in np.array_split(np.arange(len(s.x)), _MOST_POINTS // 2):
        part = s.y[stretch]
        if np.isfinite(part).any():
            chosen |= {int(stretch[np.nanargmin(part)]), int(stretch[np.nanargmax(part)])}
    order = np.array(sorted(chosen))
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


def _line(s: Series, x: svg.Axis, y: svg.Axis, place: int, named: bool) -> list[svg.Mark]:
    """A line with gaps where values are missing, and a dot at its end with the value where it is `named`."""
    known = np.flatnonzero(np.isfinite(s.y))
    if len(known) == 0:
        return []
    across, along, colour = x(s.x), y(s.y), place % svg.COLOURS
    pens = ["L" if k and np.isfinite(s.y[k - 1]) else "M" for k in known]
    path = "".join(f"{pen}{across[k]:.1f} {along[k]:.1f}" for pen, k in zip(pens, known, strict=True))
    a, b = float(across[known[-1]]), float(along[known[-1]])
    end = [svg.Text(a + 9, b + 4, metric(float(s.y[known[-1]])), "value")] if named else []
    return [svg.Path(path, f"line c{colour} d{colour}"), svg.Dot(a, b, 4.0, f"fill c{colour}"), *end]


def _reference_names(
    references: Sequence[Reference], series: Sequence[Series], y: svg.Axis, right: float
) -> list[svg.Mark]:
    """The names of levels, at the right: away from where the lines end, and clear of each other."""
    ends = [float(s.y[np.isfinite(s.y)][-1]) for s in series if np.isfinite(s.y).any()]
    middle = sum(ends) / len(ends)
    names, free = [], -np.inf
    for after, reference in enumerate(sorted(references, key=lambda r: -r.y), start=1 - len(references)):
        wanted = max(float(y(reference.y)) + (15 if reference.y < middle else -6), free + 15)
        free = min(wanted, y.start - 5 + 15 * after)  # above the axis, with room for those that follow
        names.append(svg.Text(right - 4, free, reference.name, "note", "end"))
    return list(names)


def _hovers(
    series: Sequence[Series], x_title: str, x_names: Mapping[float, str] | None = None
) -> list[tuple[float, str, float | None]]:
    """The places that answer the pointer: where, with which words, and at which height for a single line."""
    found: dict[float, list[tuple[Series, float]]] = {}
    for s in series:
        for a, b in zip(s.x, s.y, strict=True):
            if np.isfinite(b):
                found.setdefault(float(a), []).append((s, float(b)))
    places = sorted(found)
    if len(places) > _MOST_HOVERS:
        places = [places[k] for k in np.unique(np.linspace(0, len(places) - 1, _MOST_HOVERS).round().astype(int))]
    hovers: list[tuple[float, str, float | None]] = []
    for a in places:
        values = ", ".join(f"{s.name} {metric(b)}" if len(series) > 1 else metric(b) for s, b in found[a])
        at = count(int(a)) if x_names is None else x_names[a]
        hovers.append((a, f"{x_title} {at}: {values}", found[a][0][1] if len(series) == 1 else None))
    return hovers


def _bands(
    hovers: Sequence[tuple[float, str, float | None]], x: svg.Axis, y: svg.Axis, top: float, bottom: float
) -> list[svg.Mark]:
    """A title for every place, and for a single line also a dot and its value."""
    at = x([a for a, _words, _value in hovers])
    edges = [x.start, *((a + b) / 2 for a, b in pairwise(at)), x.end]
    bands: list[svg.Mark] = []
    for k, (_a, words, value) in enumerate(hovers):
        marks: list[svg.Mark] = [svg.Box(edges[k], top, edges[k + 1] - edges[k], bottom - top, "band")]
        if value is not None:
            marks += [svg.Dot(at[k], float(y(value)), 4.0, "fill c0"), svg.Text(x.end, 14, words, "value", "end")]
        bands.append(svg.Group(marks, words, "hit"))
    return bands


def histogram(
    values: np.ndarray, *, label: str, x_title: str, references: Sequence[Reference] = (), height: float = 260.0
) -> Markup:
    """How many users have which value; the last bar is open upwards where a few would stretch the axis.

    Median, mean and those `references` that lie within the axis are marked.
    """
    values = np.clip(values[np.isfinite(values)], -svg.HUGE, svg.HUGE)
    if len(values) == 0:
        return svg.nothing(label)
    middle, mean = float(np.median(values)), float(values.mean())
    known = [("median", middle)] if len(values) == 1 or not np.isfinite(mean) else [("median", middle), ("mean", mean)]
    levels = [(f"{name} {metric(value)}", value, f"mark m{row}") for row, (name, value) in enumerate(known)]

    def draw(width: float) -> tuple[float, list[svg.Mark]]:
        edges, counts, open_ended = binned(values, about=28 if width > svg.NARROW else 16)
        left, right, bottom = 58.0, width - 14.0, height - 46.0
        x = svg.Axis(float(edges[0]), float(edges[-1]), left, right)
        drawn = [(r.name, r.y, "reference") for r in references if x.low <= r.y <= x.high]
        top = 52.0 + 15 * len(drawn)
        y, y_ticks = svg.ticked(0.0, float(counts.max()), bottom, top, 4, whole=True)
        write = svg.tick_format(svg.nice_step(x.high - x.low, 8))
        marks: list[svg.Mark] = [
            svg.Text(0, 14, "Users", "title"),
            *svg.y_axis(y, y_ticks, left, right, "{:,.0f}".format),
        ]
        marks += svg.x_axis(x, svg.ticks(x.low, x.high, 8 if width > svg.NARROW else 4), bottom, x_title, write)
        marks += _columns(edges, counts, open_ended, x, y)
        for row, (words, value, kind) in enumerate([*levels, *drawn]):
            at, below = float(x(value)), 32.0 + 15 * row
            side = ("end", -6) if at > (left + right) / 2 else ("", 6)
            marks += [svg.Rule(at, below - 10, at, bottom, kind), svg.Text(at + side[1], below, words, "note", side[0])]
        return height, marks

    return svg.both(label, draw)


def _columns(edges: np.ndarray, counts: np.ndarray, open_ended: bool, x: svg.Axis, y: svg.Axis) -> list[svg.Mark]:
    """The bars of a histogram; one that is open upwards is paler, with its lower edge in words."""
    places = max(svg.tick_places(edges[1] - edges[0]), 1)
    names, across, tops = [metric(float(edge), places) for edge in edges], x(edges), y(counts)
    marks: list[svg.Mark] = []
    for k in np.flatnonzero(counts):
        last = open_ended and k == len(counts) - 1
        span = f"{names[k]} or more" if last else f"{names[k]} to {names[k + 1]}"
        width, kind = across[k + 1] - across[k] - 1, "fill c0 faint" if last else "fill c0"
        column = svg.Box(across[k] + 0.5, tops[k], width, y.start - tops[k], kind)
        marks.append(svg.Group([column], f"{plural(int(counts[k]), 'user')}: {span}"))
    if open_ended:
        words = f"{names[-2]} and more"
        under = tops[across[1:] > x.end - 7.5 * len(words)]
        marks.append(svg.Text(x.end, float(under.min()) - 6, words, "note", "end"))
    return marks


def binned(values: np.ndarray, about: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """Round bins of finite values: edges (b+1,), counts (b,) int64, whether the last bin is open upwards."""
    low, high = float(values.min()), float(values.max())
    top = float(np.percentile(values, 99))
    open_ended = high - low > 1.5 * (top - low) > 0
    if low == high:
        width = abs(low) * 0.1 or 0.1
        return np.array([low - width / 2, low + width / 2]), np.array([len(values)]), False
    end = top if open_ended else high
    step = svg.nice_step(end - low, about)
    first = int(np.floor(low / step + 1e-9))
    bins = max(int(np.floor((end / step) + 1e-9)) + 1 - first, 1)
    if not open_ended and bins > 1 and (first + bins - 1) * step >= high - 1e-9 * step:
        bins -= 1  # the largest value closes the last bin
    edges = (first + np.arange(bins + 1 + open_ended)) * step
    place = np.clip(np.floor(values / step + 1e-9).astype(np.int64) - first, 0, bins - 1 + open_ended)
    return edges, np.bincount(place, minlength=len(edges) - 1), bool(open_ended)
