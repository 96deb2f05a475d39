"""SVG from marks: text, lines, boxes, dots and paths on a canvas, and axes with round ticks.

A chart is a list of marks; `svg` writes them all at once and escapes their text.
"""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup, escape

WIDE, NARROW = 680.0, 390.0  # a chart is drawn for both, and the page shows the one that fits
COLOURS = 6  # classes c0 … c5 of the style sheet
HUGE = 1e290  # drawn at most; beyond it, differences overflow
Format = Callable[[float], str]


Text = namedtuple("Text", "x y words kind anchor", defaults=("", ""))
Rule = namedtuple("Rule", "x1 y1 x2 y2 kind")
Box = namedtuple("Box", "x y width height kind")
Dot = namedtuple("Dot", "x y radius kind")
Path = namedtuple("Path", "d kind")
Group = namedtuple("Group", "marks title kind", defaults=("", ""))  # browsers show the title under the pointer
Mark = Text | Rule | Box | Dot | Path | Group


def svg(marks: Sequence[Mark]) -> Markup:
    """The marks as SVG elements."""
    return Markup("".join(map(_element, marks)))


def both(label: str, draw: Callable[[float], tuple[float, Sequence[Mark]]]) -> Markup:
    """A chart for wide and for narrow screens, announced by its label; `draw` returns height and marks for a width."""
    drawings = []
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        height, marks = draw(width)
        opening = f'<svg role="img" aria-label="{escape(label)}" viewBox="0 0 {width:g} {height:g}" class="{kind}">'
        drawings.append(f"{opening}{svg(marks)}</svg>")
    return Markup("".join(drawings))


def nothing(label: str) -> Markup:
    return both(label, lambda _width: (60.0, [Text(0, 34, "Nothing to show.", "note")]))


def _element(mark: Mark) -> str:
    match mark:
        case Text(x, y, words, kind, anchor):
            anchored = f' text-anchor="{anchor}"' if anchor else ""
            return f'<text x="{x:g}" y="{y:g}"{_class(kind)}{anchored}>{escape(words)}</text>'
        case Rule(x1, y1, x2, y2, kind):
            return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{_class(kind)}/>'
        case Box(x, y, width, height, kind):
            size = f'width="{max(width, 0):g}" height="{max(height, 0):g}"'
            return f'<rect x="{x:g}" y="{y:g}" {size}{_class(kind)}/>'
        case Dot(x, y, radius, kind):
            return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}"{_class(kind)}/>'
        case Path(d, kind):
            return f'<path d="{d}"{_class(kind)}/>'
        case Group(marks, title, kind):
            named = f"<title>{escape(title)}</title>" if title else ""
            return f"<g{_class(kind)}>{named}{''.join(map(_element, marks))}</g>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


@dataclass(frozen=True)
class Axis:
    """Values low … high, laid out from pixel `start` to pixel `end`; values outside stop at the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, values: Any) -> Any:
        share = (np.clip(values, self.low, self.high) - self.low) / ((self.high - self.low) or 1.0)
        return self.start + np.nan_to_num(share) * (self.end - self.start)


def nice_step(span: float, about: int, whole: bool = False) -> float:
    """The round step (1, 2, 2.5 or 5 times a power of ten) that cuts `span` into at most `about` parts.

    >>> nice_step(97, 5), nice_step(0.31, 5), nice_step(19, 8, whole=True)
    (20.0, 0.1, 5.0)
    """
    if not (math.isfinite(span) and span > 0):
        return 1.0
    rough = span / max(about, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    steps = (f * power for f in (1, 2, 2.5, 5, 10, 20) if not whole or (f * power) % 1 == 0)
    return float(next((step for step in steps if step >= rough * (1 - 1e-9)), 1.0))


def ticks(low: float, high: float, about: int = 5, whole: bool = False) -> list[float]:
    """Round values between low and high.

    >>> ticks(0.7, 1.25, 4)
    [0.8, 1.0, 1.2]
    """
    step = nice_step(high - low, about, whole)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, min(last, first + 50) + 1)]


def ticked(low: float, high: float, start: float, end: float, about: int, whole: bool = False) -> tuple[Axis, list]:
    """An axis widened to round ticks at both ends, and these ticks."""
    step = nice_step(high - low, about, whole)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    values = [round(k * step, 12) for k in range(first, max(last, first + 1) + 1)]
    return Axis(values[0], values[-1], start, end), values


def tick_places(step: float) -> int:
    """Digits after the point that a multiple of `step` needs."""
    places = 0
    while places < 8 and abs(step * 10**places - round(step * 10**places)) > 1e-6:
        places += 1
    return places


def tick_format(step: float) -> Format:
    """Numbers with just enough digits for neighbouring ticks to differ."""
    places = tick_places(step)
    return lambda value: (f"{value:.3g}" if step >= 1e9 else f"{value:,.{places}f}").replace("-", "−")


def y_axis(axis: Axis, values: Sequence[float], left: float, right: float, write: Format) -> list[Mark]:
    """Light lines across, with their values at the left."""
    marks: list[Mark] = []
    for value, y in zip(values, axis(values), strict=True):
        marks += [Rule(left, y, right, y, "grid"), Text(left - 8, y + 4, write(value), "tick", "end")]
    return marks


def x_axis(axis: Axis, values: Sequence[float], bottom: float, title: str, write: Format) -> list[Mark]:
    """A base line with ticks below it, and its title in the middle."""
    marks: list[Mark] = [Rule(axis.start, bottom, axis.end, bottom, "base")]
    for value, x in zip(values, axis(values), strict=True):
        marks += [Rule(x, bottom, x, bottom + 5, "base"), Text(x, bottom + 19, write(value), "tick", "middle")]
    return [*marks, Text((axis.start + axis.end) / 2, bottom + 37, title, "title", "middle")]
