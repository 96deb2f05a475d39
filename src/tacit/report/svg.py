"""The ground under every chart: a canvas, axes with round ticks, text that stays legible when narrow."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tacit.report.markup import Markup, join, tag
from tacit.report.words import short, size

WIDE, NARROW = 680.0, 390.0  # a chart is drawn for both, and the page shows the one that fits
COLOURS = 6  # classes c0 … c5 of the style sheet
UP, DOWN = 0, 5  # the colours of the two directions
FLOOR = 5  # the colour of what models are to beat
HUGE = 1e290  # drawn at most; beyond it, differences overflow
Format = Callable[[float], str]


@dataclass(frozen=True)
class Axis:
    """Values low … high, laid out from pixel `start` to pixel `end`; values outside stop at the edge."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        if math.isnan(value):
            return self.start
        share = (min(max(value, self.low), self.high) - self.low) / ((self.high - self.low) or 1.0)
        return self.start + share * (self.end - self.start)


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


def tick_format(step: float) -> Format:
    """Numbers with just enough digits to tell neighbouring ticks apart."""
    places = 0
    while places < 8 and abs(step * 10**places - round(step * 10**places)) > 1e-6:
        places += 1
    return lambda value: (f"{value:.3g}" if step >= 1e9 else f"{value:,.{places}f}").replace("-", "−")


def size_format(value: float) -> str:
    """Bytes on an axis, where both directions are positive."""
    return "0" if value == 0 else size(abs(value)).replace(" bytes", " B").replace(" byte", " B")


def canvas(width: float, height: float, label: str, *children: str | None) -> Markup:
    """A chart that a screen reader announces by its label."""
    return tag(
        "svg",
        *children,
        role="img",
        aria_label=label,
        viewBox=f"0 0 {width:g} {height:g}",
        class_="wide" if width == WIDE else "narrow",
    )


def both(draw: Callable[[float], Markup]) -> Markup:
    """A chart drawn for wide and for narrow screens."""
    return join([draw(WIDE), draw(NARROW)])


def text(x: float, y: float, words: object, kind: str = "", anchor: str | None = None) -> Markup:
    return tag("text", str(words), x=float(x), y=float(y), class_=kind or None, text_anchor=anchor)


def rule(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=kind)


def box(x: float, y: float, width: float, height: float, kind: str, *children: str | None) -> Markup:
    return tag(
        "rect",
        *children,
        x=float(x),
        y=float(y),
        width=max(float(width), 0.0),
        height=max(float(height), 0.0),
        class_=kind,
    )


def y_axis(axis: Axis, values: list[float], left: float, right: float, write: Format) -> Markup:
    """Light lines across, with their values at the left."""
    return join(
        join(
            [
                rule(left, axis(v), right, axis(v), "grid"),
                text(left - 8, axis(v) + 4, write(v), "tick", "end"),
            ]
        )
        for v in values
    )


def x_axis(axis: Axis, values: list[float], bottom: float, title: str, write: Format) -> Markup:
    """A base line with ticks below it, and its title in the middle."""
    parts: list[str | None] = [rule(axis.start, bottom, axis.end, bottom, "base")]
    for v in values:
        parts += [
            rule(axis(v), bottom, axis(v), bottom + 5, "base"),
            text(axis(v), bottom + 19, write(v), "tick", "middle"),
        ]
    parts.append(text((axis.start + axis.end) / 2, bottom + 37, title, "title", "middle"))
    return join(parts)


def fitting(words: object, pixels: float, per_character: float = 7.0) -> str:
    """Text cut to about so many pixels."""
    return short(words, max(int(pixels / per_character), 4))


def ticked(
    low: float, high: float, start: float, end: float, about: int, whole: bool = False
) -> tuple[Axis, list[float]]:
    """An axis widened to round ticks at both ends."""
    step = nice_step(high - low, about, whole)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    values = [round(k * step, 12) for k in range(first, last + 1)]
    return Axis(values[0], values[-1], start, end), values


def empty(width: float, label: str) -> Markup:
    return canvas(width, 60.0, label, text(0, 34, "Nothing to show.", "note"))
