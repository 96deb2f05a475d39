"""`Result`: one number, what it stands beside, and the ratio of the two."""

from __future__ import annotations

from dataclasses import dataclass


class Missing(Exception):
    """A benchmark cannot run here; the message says what it lacks and how to get it."""


@dataclass(frozen=True)
class Result:
    """One measurement.

    Attributes
    ----------
    what : what was measured
    value, unit : how much
    beside : the peer, or the limit
    reference : its measurement, in the same unit
    most : the largest value that is aimed at, in `unit`, or None
    most_ratio : the largest ratio that is aimed at, or None
    """

    what: str
    value: float
    unit: str
    beside: str
    reference: float
    most: float | None = None
    most_ratio: float | None = None

    @property
    def ratio(self) -> float:
        return self.value / self.reference

    @property
    def target(self) -> str:
        """The aim and whether it was met, in a few words; nothing where none was set.

        >>> Result("a", 2.0, "s", "b", 1.0, most_ratio=1.5).target
        '≤ 1.5 ×: missed'
        """
        if self.most_ratio is not None:
            return f"≤ {self.most_ratio:g} ×: {_word(self.ratio <= self.most_ratio)}"
        if self.most is not None:
            return f"≤ {quantity(self.most, self.unit)}: {_word(self.value <= self.most)}"
        return ""


def quantity(value: float, unit: str) -> str:
    """A number with three digits that matter, and its unit.

    >>> quantity(0.0519, "s"), quantity(62.04, "µs")
    ('0.0519 s', '62 µs')
    """
    digits = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{digits} {unit}"


def _word(met: bool) -> str:
    return "met" if met else "missed"
