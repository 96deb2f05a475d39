"""The long table of a sweep, read back: means over seeds, and what one seed's run is compared with."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from experiments.sweep import read
from tacit.report.words import metric

NOT_RUN = "not run"

#: The names of the data sets in text.
SETS = {"ml-1m": "MovieLens 1M", "jester-1": "Jester", "ml-10m-shape": "MovieLens 10M's shape (synthetic)"}

#: Test MSE as a run ends, and before its silos fine-tune at home. A method that does not fine-tune has one for both.
AFTER, BEFORE = "mse", "mse_shared"
STAGES = {BEFORE: "before fine-tuning", AFTER: "after fine-tuning"}


@dataclass(frozen=True)
class Cell:
    """One quantity of one setting, by seed."""

    by_seed: Mapping[str, float]

    @cached_property
    def values(self) -> list[float]:
        return [value for value in self.by_seed.values() if math.isfinite(value)]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def diverged(self) -> int:
        return len(self.by_seed) - self.n

    @cached_property
    def mean(self) -> float:
        return statistics.fmean(self.values) if self.values else math.nan

    @cached_property
    def sd(self) -> float:
        """The standard deviation over seeds, with n − 1; not a number for one seed."""
        return statistics.stdev(self.values) if self.n > 1 else math.nan

    def written(self, usual: int = 0) -> str:
        """Mean ± standard deviation; n too, where it is not the usual one.

        >>> Cell({"7": 0.75, "8": 0.76}).written(2), Cell({"7": 0.75}).written(3), Cell({}).written(3)
        ('0.755 ± 0.007', '0.750 (n = 1)', 'not run')
        """
        if not self.by_seed:
            return NOT_RUN
        places = 3 if self.mean < 10 else 2
        spread = f" ± {metric(self.sd, places)}" if self.n > 1 else ""
        remarks = [f"n = {self.n}"] if self.n != usual else []
        remarks += [f"{self.diverged} diverged"] if self.diverged else []
        return metric(self.mean, places) + spread + (f" ({', '.join(remarks)})" if remarks else "")


EMPTY = Cell({})


class Results:
    """All rows of a table."""

    def __init__(self, rows: Iterable[Mapping[str, str]]) -> None:
        self._rows: dict[tuple[str, str], list[Mapping[str, str]]] = defaultdict(list)
        for row in rows:
            self._rows[row["sweep"], row["data"]].append(row)

    @classmethod
    def read(cls, table: Path) -> Results:
        return cls(read(table))

    def sets(self, *sweeps: str) -> list[str]:
        """The data sets on which any of these sweeps was begun."""
        return [data for data in SETS if any((sweep, data) in self._rows for sweep in sweeps)]

    def cell(self, sweep: str, data: str, what: str = AFTER, **where: object) -> Cell:
        """The column `what` of the rows whose other columns are as `where` says, by seed."""
        told = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in where.items()}
        found = {}
        for row in self._rows.get((sweep, data), ()):
            value = row[what] or (row[AFTER] if what == BEFORE else "")
            if value and all(row[name] == wanted for name, wanted in told.items()):
                found[row["seed"]] = float(value)
        return Cell(dict(sorted(found.items()))) if found else EMPTY


def usual_n(cells: Iterable[Cell]) -> int:
    """The n that most of these cells have; the larger of two that are as frequent."""
    counts = [cell.n for cell in cells if cell.n]
    return max(statistics.multimode(counts), default=0)


def said_n(cells: Sequence[Cell]) -> str:
    """Over how many seeds these cells are means, in words."""
    counts = sorted({cell.n for cell in cells if cell.n})
    if not counts:
        return NOT_RUN
    seeds = sorted({seed for cell in cells for seed in cell.by_seed}, key=int)
    span = f"n = {counts[0]}" if len(counts) == 1 else f"n = {counts[0]} to {counts[-1]}"
    return f"{span} ({'seed' if len(seeds) == 1 else 'seeds'} {', '.join(seeds)})"
