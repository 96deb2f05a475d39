"""P0's claims, each of the form "this error is below that one", held against the table seed by seed."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from scipy.stats import t as student

from experiments.p0 import EPSILONS, SWEEPS, UNITS
from experiments.results import AFTER, BEFORE, NOT_RUN, SETS, STAGES, Cell, Results
from tacit.report.words import metric

HOLDS, NONE, REVERSED, DIFFER = "holds", "no difference", "reversed", "differ"
FEW, DIVERGED = "one seed", "diverged"

#: How far apart two errors may lie that a claim calls alike, in parts of the second.
ALIKE = 0.02

RULE = (
    "**The rule.** Two runs with one seed share split and partition, so their errors are subtracted seed by seed. A "
    "claim *holds* where the 95 % interval of the mean difference (Student's t with n − 1 degrees of freedom: at n = 3 "
    "a mean that is 2.5 standard deviations of the differences from 0) lies below 0, is *reversed* where it lies "
    "above, and else there is *no difference* that so few seeds can show. Of comparisons without any difference about "
    "one in twenty comes out as one. Where a claim is about the best or worst of several, that one is taken by its "
    f"mean and named. “Alike” *holds* where the means are within {100 * ALIKE:g} %, else they *differ*."
)


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a variant of a sweep, or the best (or the worst) of several by its mean.

    Parameters
    ----------
    fixed : columns in which this side has its own value
    but : columns that this side does not have
    """

    sweep: str
    variants: Sequence[str]
    worst: bool = False
    fixed: Mapping[str, object] = field(default_factory=dict)
    but: Sequence[str] = ()

    def cell(self, results: Results, data: str, what: str, at: Mapping[str, object]) -> tuple[str, Cell]:
        """The name and the numbers of this side; what was not run is chosen last."""
        where = {name: value for name, value in {**at, **self.fixed}.items() if name not in self.but}
        found = [(name, results.cell(self.sweep, data, what, variant=name, **where)) for name in self.variants]
        sign = -1 if self.worst else 1
        name, cell = min(found, key=lambda each: sign * each[1].mean if each[1].n else math.inf)
        return ", ".join([name, *(f"{_short(column)} = {value}" for column, value in self.fixed.items())]), cell


@dataclass(frozen=True)
class Claim:
    """`lower` is below `upper`, or alike, for all values of the axes and at each stage."""

    words: str
    lower: Side
    upper: Side
    axes: Mapping[str, Sequence[Any]]
    stages: Sequence[str] = ()
    alike: bool = False

    def on(self, results: Results, data: str) -> Iterator[Ordering]:
        for stage in self.stages or (AFTER,):
            words = f"{self.words}, {STAGES[stage]}" if self.stages else self.words
            for values in product(*self.axes.values()):
                at = dict(zip(self.axes, values, strict=True))
                lower, upper = (side.cell(results, data, stage, at) for side in (self.lower, self.upper))
                where = ", ".join(f"{_short(name)} = {value}" for name, value in at.items() if name != "unit")
                yield Ordering(words, data, at["unit"], where, lower, upper, self.alike)


@dataclass(frozen=True)
class Ordering:
    """One comparison: `lower` should be below `upper`, or alike."""

    claim: str
    data: str
    unit: str
    where: str
    lower: tuple[str, Cell]
    upper: tuple[str, Cell]
    alike: bool = False

    @property
    def differences(self) -> list[float]:
        """Lower minus upper, by the seeds that both have."""
        a, b = self.lower[1].by_seed, self.upper[1].by_seed
        return [a[seed] - b[seed] for seed in a if seed in b]

    @property
    def interval(self) -> tuple[float, float]:
        """The mean difference, and half the width of its 95 % interval."""
        d = self.differences
        if len(d) < 2:
            return (d[0] if d else math.nan), math.nan
        return statistics.fmean(d), float(student.ppf(0.975, len(d) - 1)) * statistics.stdev(d) / math.sqrt(len(d))

    @property
    def verdict(self) -> str:
        if not self.differences:
            return NOT_RUN
        if not all(map(math.isfinite, self.differences)):
            return DIVERGED
        mean, half = self.interval
        if self.alike:
            return HOLDS if abs(mean) <= ALIKE * self.upper[1].mean else DIFFER
        if math.isnan(half):
            return FEW
        return HOLDS if mean + half < 0 else REVERSED if mean - half > 0 else NONE


def _short(column: str) -> str:
    return {"parties": "s", "epsilon": "ε"}.get(column, column)


_CLIPS = [variant for variant in SWEEPS["clipping"].variants if variant.startswith("gradient")]
_USER, _BOTH = {"unit": ("user",)}, {"unit": UNITS}
_VERTICAL = {**_BOTH, "parties": (2, 5, 10), "epsilon": EPSILONS}
_FEW_EPSILONS = {**_BOTH, "epsilon": (1, 4)}
_HORIZONTAL = {**_USER, "parties": (10, 40), "epsilon": EPSILONS}
_HOME = Side("alone", ["local, without privacy"], but=("unit", "epsilon"))
_TURNS = Side("rounds", ["T=1", "T=20", "T=100", "T=1000"], worst=True)

CLAIMS: Sequence[Claim] = (
    Claim(
        "embedding clipping below gradient clipping at its best C",
        Side("clipping", ["embedding"]),
        Side("clipping", _CLIPS),
        {**_BOTH, "epsilon": EPSILONS},
    ),
    *(
        Claim(
            f"{lower} below {upper}",
            Side("methods", [lower]),
            Side("methods", [upper]),
            {**_USER, "epsilon": EPSILONS},
            (BEFORE,),
        )
        for lower, upper in pairwise(("sgdmf", "dp-sgld", "objective perturbation"))
    ),
    Claim("vertical: together below alone", Side("parties", ["together"]), Side("parties", ["alone"]), _VERTICAL),
    *(
        Claim(
            "vertical: more parties below fewer",
            Side("parties", ["together"], fixed={"parties": more}),
            Side("parties", ["together"], fixed={"parties": fewer}),
            {**_BOTH, "epsilon": EPSILONS},
        )
        for fewer, more in pairwise((2, 5, 10))
    ),
    Claim(
        "vertical: the better of T = 20 and 100 below the better of T = 1 and 1000",
        Side("rounds", ["T=20", "T=100"]),
        Side("rounds", ["T=1", "T=1000"]),
        _FEW_EPSILONS,
    ),
    Claim("vertical: the worst T below alone", _TURNS, Side("rounds", ["alone"]), _FEW_EPSILONS),
    Claim(
        "vertical: items divided by genre and at random alike",
        Side("genre", ["genre"]),
        Side("genre", ["random"]),
        _FEW_EPSILONS,
        alike=True,
    ),
    Claim(
        "horizontal: users pre-trained below trained together",
        Side("pretrain", ["pretrained"]),
        Side("pretrain", ["together"]),
        {**_USER, "parties": (2, 10, 40), "epsilon": (1, 4, 8)},
        (BEFORE, AFTER),
    ),
    Claim(
        "horizontal: sgdmf below synsgd",
        Side("synsgd", ["sgdmf"]),
        Side("synsgd", ["synsgd"]),
        _HORIZONTAL,
        (BEFORE, AFTER),
    ),
    Claim(
        "horizontal: sgdmf below local training without privacy",
        Side("synsgd", ["sgdmf"]),
        _HOME,
        {**_HORIZONTAL, "parties": (40,)},
        (BEFORE,),
    ),
    Claim(
        "horizontal: sgdmf below local training without privacy",
        Side("synsgd", ["sgdmf"]),
        _HOME,
        _HORIZONTAL,
        (AFTER,),
    ),
    Claim("(ours) vertical: sgdmf below bias", Side("parties", ["together"]), Side("parties", ["bias"]), _VERTICAL),
    Claim(
        "(ours) horizontal: sgdmf below bias",
        Side("synsgd", ["sgdmf"]),
        Side("synsgd", ["bias"]),
        _HORIZONTAL,
        (BEFORE, AFTER),
    ),
    Claim(
        "(ours) horizontal: users noised below the better replace case",
        Side("per-rating", ["noised"]),
        Side("per-rating", ["pretrained", "together"]),
        {"unit": ("rating",), "parties": (10,), "epsilon": (1, 4, 8)},
        (BEFORE, AFTER),
    ),
    Claim(
        "(ours) horizontal: corrected noise below the paper's at the same ε",
        Side("noise", ["corrected"]),
        Side("noise", ["paper"]),
        {**_USER, "parties": (10,), "epsilon": EPSILONS},
        (BEFORE, AFTER),
    ),
)


def orderings(results: Results) -> list[Ordering]:
    """Every comparison, run or not, data set by data set."""
    return [found for data in SETS for claim in CLAIMS for found in claim.on(results, data)]


def counted(found: Sequence[Ordering]) -> str:
    """How often comparisons came out how.

    >>> counted([])
    'not run'
    """
    verdicts = Counter(each.verdict for each in found)
    missing = verdicts[NOT_RUN]
    if missing == len(found):
        return NOT_RUN
    order = [verdict for verdict in (HOLDS, NONE, REVERSED, DIFFER, FEW, DIVERGED) if verdicts[verdict]]
    counts = ", ".join(f"{verdict} {verdicts[verdict]}" for verdict in order)
    return f"{counts} of {len(found) - missing}" + (f" ({missing} {NOT_RUN})" if missing else "")


def difference(each: Ordering) -> str:
    """The mean difference and its 95 % interval, as text."""
    mean, half = each.interval
    if math.isnan(mean):
        return "–"
    places = 4 if abs(each.upper[1].mean) < 10 else 3
    return metric(mean, places) + ("" if math.isnan(half) else f" ± {metric(half, places)}")
