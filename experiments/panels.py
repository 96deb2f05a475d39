"""Small charts side by side, one file a figure: lines with error bars on white ground, from the report's own SVG.

A figure has rows of panels; a panel has lines over the same few places (ε, or rounds), evenly spaced. Lines look the
same in every figure of their name: see `look`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files

from markupsafe import escape

from experiments.results import NOT_RUN, Cell
from tacit.report.svg import (
    Axis,
    Box,
    Dot,
    Format,
    Group,
    Mark,
    Path,
    Rule,
    Text,
    svg,
    tick_format,
    ticked,
    x_axis,
    y_axis,
)

WIDTH, PLOT = 880.0, 170.0
GUTTER, EDGE = 58.0, 14.0  # left of a panel, for its numbers; around the figure
HEAD, FOOT = 46.0, 56.0  # above a row of panels, and below it
DODGE = 5.0  # pixels between the error bars of two lines
STEEP = 3.0  # an axis is logarithmic where the largest value is more than so many times the smallest
MOST_BESIDE = 3
FLOOR, HOME = "bias", "local, without privacy"
_SHAPES = 4
_OUTLINES = {
    "d1": ((-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)),
    "d2": ((0, -5), (5, 0), (0, 5), (-5, 0)),
    "d3": ((0, -4.6), (4.6, 3.6), (-4.6, 3.6)),
}

Lift = Callable[[float], float]

#: The colour and the dash of each line, by its name.
Looks = Mapping[str, tuple[int, str]]


@dataclass(frozen=True)
class Line:
    """A name and one cell for each place of the axis; a level has the same one at all of them."""

    name: str
    cells: Sequence[Cell]
    level: bool = False


@dataclass(frozen=True)
class Panel:
    """One chart: whose data it shows, what sets it apart from its neighbours, and its lines."""

    data: str
    facets: dict[str, str]
    axis: str
    places: Sequence[str]
    lines: Sequence[Line]

    def cells(self) -> list[Cell]:
        return [cell for line in self.lines for cell in line.cells]

    def begun(self) -> Panel | None:
        """The panel with those places alone at which something was run; None for a panel without any."""
        tried = [line for line in self.lines if not line.level]
        kept = [k for k in range(len(self.places)) if any(line.cells[k].by_seed for line in tried)]
        lines = [replace(line, cells=[line.cells[k] for k in kept]) for line in self.lines]
        return replace(self, places=[self.places[k] for k in kept], lines=lines) if kept else None


@dataclass(frozen=True)
class Row:
    """Panels side by side, under a title that names what they have in common; `shared` gives them one vertical axis."""

    title: str
    panels: Sequence[Panel]
    shared: bool = False


def figure(title: str, note: str, rows: Sequence[Row]) -> str:
    """The whole file. Without rows it says that nothing was run."""
    lines = {line.name: line for row in rows for panel in row.panels for line in panel.lines}
    looks = {name: look(name, [other for other in lines if other not in (FLOOR, HOME)]) for name in lines}
    marks: list[Mark] = [Text(EDGE, 26, title, "head"), Text(EDGE, 45, note, "note")]
    keys, y = _legend(lines.values(), looks, 68.0)
    marks += keys
    columns = max((len(row.panels) for row in rows), default=1)
    beside = min(MOST_BESIDE, len(rows)) if columns == 1 else 1  # rows of one panel stand beside each other
    share = (WIDTH - EDGE) / max(columns * beside, 2)
    turned = []
    for place, row in enumerate(rows):
        x = share * (place % beside)
        marks.append(_row(row, looks, share, x, y))
        turned.append(_turned(x + EDGE + 2, y + HEAD + PLOT / 2))
        if place % beside == beside - 1 or place == len(rows) - 1:
            y += HEAD + PLOT + FOOT
    height = y + 4
    opening = '<svg xmlns="http://www.w3.org/2000/svg" role="img" '
    opening += f'width="{WIDTH:g}" height="{height:g}" viewBox="0 0 {WIDTH:g} {height:g}">'
    head = f"<title>{escape(title)}</title><style>{_style()}</style>"
    drawing = f"{opening}{head}{svg([Box(0, 0, WIDTH, height, 'ground'), *marks])}{''.join(turned)}</svg>"
    return re.sub(r"(?=<(?:g|text|path|rect)\b)", "\n", drawing) + "\n"


def _turned(x: float, y: float) -> str:
    """The title of a vertical axis."""
    place = f"translate({x:g} {y:g}) rotate(-90)"
    return f'<text class="title" text-anchor="middle" transform="{place}">test MSE</text>'


def look(name: str, others: Sequence[str]) -> tuple[int, str]:
    """The floor is grey and dashed, what has no privacy is dotted; others have the colours in their order."""
    if name == FLOOR:
        return 5, "floor"
    if name == HOME:
        return 6, "home"
    place = others.index(name)
    return place % 5, f"d{place % _SHAPES}"


def _legend(lines: Iterable[Line], looks: Looks, y: float) -> tuple[list[Mark], float]:
    """The names of all lines, and where what follows may begin."""
    marks: list[Mark] = []
    x = EDGE
    for line in lines:
        colour, dash = looks[line.name]
        words = f"{line.name} (the floor)" if line.name == FLOOR else line.name
        width = 44 + 7.0 * len(words) + 18
        if x + width > WIDTH:
            x, y = EDGE, y + 20
        marks.append(Rule(x, y, x + 32, y, f"line c{colour} {dash}"))
        if not line.level:
            marks += _mark(x + 16, y, colour, dash)
        marks.append(Text(x + 40, y + 4, words))
        x += width
    return marks, y + 14


def _row(row: Row, looks: Looks, share: float, x: float, y: float) -> Group:
    top, bottom = y + HEAD, y + HEAD + PLOT
    together = [cell for panel in row.panels for cell in panel.cells()]
    marks: list[Mark] = [Text(x + EDGE, y + 20, row.title, "row")]
    for place, panel in enumerate(row.panels):
        title = ", ".join(words for words in panel.facets.values() if words not in row.title)
        left, right = x + place * share + GUTTER + 6, x + (place + 1) * share - 4
        cells = together if row.shared else panel.cells()
        marks.append(_panel(panel, title, cells, looks, left, right, top, bottom))
    return Group(marks)


def _panel(
    panel: Panel,
    title: str,
    cells: Sequence[Cell],
    looks: Looks,
    left: float,
    right: float,
    top: float,
    bottom: float,
) -> Group:
    known = [cell for cell in cells if cell.n]
    if not known:
        return Group([Text(left, top - 8, title, "note"), Text(left, top + 20, NOT_RUN, "note")])
    height, values, write, logarithmic = scale(known, bottom, top)
    across = Axis(-0.5, len(panel.places) - 0.5, left, right)
    places = [float(k) for k in range(len(panel.places))]
    marks: list[Mark] = [
        Text(left, top - 8, f"{title} (log scale)" if logarithmic else title, "note"),
        *y_axis(height, values, left, right, write),
        *x_axis(across, places, bottom, panel.axis, lambda k: panel.places[int(k)]),
    ]
    lifted: Lift = math.log10 if logarithmic else float
    free = [line for line in panel.lines if not line.level]
    for line in panel.lines:
        marks += _level(line, looks[line.name], left, right, height, lifted) if line.level else []
    for order, line in enumerate(free):
        at = [across(k) + DODGE * (order - (len(free) - 1) / 2) for k in places]
        marks += _line(panel, line, looks[line.name], at, height, lifted)
    return Group(marks)


def scale(cells: Sequence[Cell], bottom: float, top: float) -> tuple[Axis, list[float], Format, bool]:
    """The vertical axis for these cells: its ticks, how they are written, and whether it is logarithmic.

    It never shows less than 2 % of the values, so that what does not differ does not look as if it did.
    """
    low = min(cell.mean - _spread(cell) for cell in cells)
    high = max(cell.mean + _spread(cell) for cell in cells)
    if low > 0 and high > STEEP * low:
        axis = Axis(math.log10(low / 1.06), math.log10(high * 1.06), bottom, top)
        values = [math.log10(v) for v in log_ticks(low / 1.06, high * 1.06)]
        return axis, values, lambda v: f"{10**v:.3g}", True
    missing = max(0.0, 0.02 * abs(high + low) / 2 - (high - low)) or 0.04 * (high - low)
    axis, values = ticked(low - missing / 2, high + missing / 2, bottom, top, 5)
    return axis, values, tick_format(values[1] - values[0]), False


def log_ticks(low: float, high: float) -> list[float]:
    """At least four round values between low and high, where the coarsest of these steps gives so many.

    >>> log_ticks(0.8, 4.5)
    [1.0, 1.5, 2.0, 3.0]
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for steps in ((1,), (1, 3), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)):
        found = [round(step * 10.0**power, 12) for power in powers for step in steps]
        found = [value for value in found if low <= value <= high]
        if len(found) >= 4:
            break
    return found


def _line(
    panel: Panel,
    line: Line,
    style: tuple[int, str],
    at: Sequence[float],
    height: Axis,
    lifted: Lift,
) -> list[Mark]:
    """One line with its error bars and marks; a seed that diverged, or was not run, is a gap."""
    colour, dash = style
    path, pen = "", "M"
    marks: list[Mark] = []
    for x, place, cell in zip(at, panel.places, line.cells, strict=True):
        if not cell.n:
            pen = "M"
            continue
        middle = height(lifted(cell.mean))
        path, pen = f"{path}{pen}{x:.1f} {middle:.1f}", "L"
        low, high = (height(lifted(cell.mean + side * _spread(cell))) for side in (-1, 1))
        bars = [Rule(x, low, x, high, f"bar c{colour}")]
        bars += [Rule(x - 3, end, x + 3, end, f"bar c{colour}") for end in (low, high)]
        title = f"{line.name}, {panel.axis} {place}: {cell.written()}"
        marks.append(Group([*bars, *_mark(x, middle, colour, dash)], title))
    return [Path(path, f"line c{colour} {dash}"), *marks] if path else marks


def _level(line: Line, style: tuple[int, str], left: float, right: float, height: Axis, lifted: Lift) -> list[Mark]:
    """A line across, in a pale band of one standard deviation to both sides."""
    (colour, dash), cell = style, line.cells[0]
    if not cell.n:
        return []
    y = height(lifted(cell.mean))
    low, high = (height(lifted(cell.mean + side * _spread(cell))) for side in (-1, 1))
    band = Box(left, high, right - left, low - high, f"band c{colour}")
    return [Group([band, Rule(left, y, right, y, f"line c{colour} {dash}")], f"{line.name}: {cell.written()}")]


def _mark(x: float, y: float, colour: int, dash: str) -> list[Mark]:
    """A dot, square, diamond or triangle, so that lines differ without their colours."""
    if dash == "floor":
        return [Rule(x - 3, y - 3, x + 3, y + 3, "bar c5"), Rule(x - 3, y + 3, x + 3, y - 3, "bar c5")]
    if dash not in _OUTLINES:
        return [Dot(x, y, 3.6, f"fill c{colour}")]
    corners = "L".join(f"{x + a:.1f} {y + b:.1f}" for a, b in _OUTLINES[dash])
    return [Path(f"M{corners}Z", f"fill c{colour}")]


def _spread(cell: Cell) -> float:
    return 0.0 if math.isnan(cell.sd) else min(cell.sd, 0.999 * abs(cell.mean))


@cache
def _style() -> str:
    """Rules with the report's light colours written out, since a picture in a page is styled by nobody else."""
    sheet = files("tacit.report").joinpath("templates/style.css").read_text(encoding="utf-8").partition("@media")[0]
    palette = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", sheet))
    hues = [palette[f"c{k}"] for k in range(6)] + [palette["ink"]]
    rules = [
        'text { font: 12.5px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif; '
        f"fill: {palette['ink']}; }}",
        f".ground {{ fill: #ffffff; stroke: {palette['rule']}; }}",
        f".tick, .title, .note {{ fill: {palette['soft']}; }}",
        ".head { font-weight: 600; font-size: 15px; }",
        ".row { font-weight: 600; }",
        f".grid {{ stroke: {palette['grid']}; }}",
        f".base {{ stroke: {palette['soft']}; }}",
        ".line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }",
        ".bar { stroke-width: 1.2; }",
        ".band { opacity: 0.12; }",
        ".floor { stroke-dasharray: 6 4; }",
        ".home { stroke-dasharray: 1.5 4; stroke-linecap: round; stroke-width: 2.2; }",
    ]
    for k, hue in enumerate(hues):
        rules.append(f".line.c{k}, .bar.c{k} {{ stroke: {hue}; }} .fill.c{k}, .band.c{k} {{ fill: {hue}; }}")
    return "\n".join(["", *rules, ""])
