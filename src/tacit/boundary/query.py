"""Queries: what may be asked of a party's data, and how far one unit can move the answer.

A query is public: a frozen value without data, the same in a plan and at every party. `over` binds it to data, and what
that returns computes the answer. So a bound is stated once, by the query, and the answer takes its limits from there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Protocol

import numpy as np

from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Summands

Blocks = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Rows:
    """A block of `n` rows that is 0 except in a few, as a gradient over sampled users is.

    `rows` (k,) int64, increasing, are those that may be non-zero; `values` (k, p) float64 are their values.
    """

    n: int
    rows: Array
    values: Array

    def dense(self) -> Array:
        """The whole block, (n, p) float64."""
        block = np.zeros((self.n, self.values.shape[1]))
        block[self.rows] = self.values
        return block


Exact = Array | Rows


class Mechanism(StrEnum):
    """How an answer is noised: a closed set."""

    NORMAL = "normal"  # the exact answer plus Gaussian noise; Skellam on integers where a sum is sealed or deployed
    RESPONSE = "response"  # reports that each device randomises by itself; the multiplier z means ε₀ = 1/z
    PERTURBED = "perturbed"  # minimisers of convex objectives with the noise inside them


def cells_of(shapes: Mapping[str, Sequence[int]]) -> int:
    """How many numbers blocks of these shapes have together."""
    return sum(math.prod(shape) for shape in shapes.values())


class Query:
    """The base class of queries, which are frozen dataclasses.

    Attributes
    ----------
    mechanism : how the answer is noised
    sampling : the rate at which the query itself draws a fresh, secret Poisson sample of the units; 1 for no sampling
    mixes : whether its reports can hide among those of other devices: all are by the same ε₀-local randomiser
    resolution : in how many steps to `largest` a hidden sum without noise travels: as fine as float32, or 1 for counts
    """

    mechanism: ClassVar[Mechanism] = Mechanism.NORMAL
    mixes: ClassVar[bool] = True
    resolution: ClassVar[float] = 2.0**24
    sampling: float = 1.0

    @property
    def clip(self) -> float | None:
        """The largest ℓ2 norm of a user's or rating's contribution; None: it cannot be summed in integers."""
        return None

    @property
    def reports(self) -> int:
        """How many randomised reports of one release a unit is in, of a query that is answered by reports."""
        return 1

    @property
    def largest(self) -> float | None:
        """The most that one user adds to a cell, to which un-noised integers are cut; None: it cannot be hidden."""
        return self.clip

    def nonzero_coordinates(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """How many coordinates of one contribution may be non-zero; `shapes` are those of the step's blocks."""
        return cells_of(shapes)

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        """The largest ℓ2 distance between the answers of two neighbours; infinite where nothing bounds it."""
        raise NotImplementedError(f"{type(self).__name__} must say how far one unit can move its answer.")

    def counted(self, unit: Unit) -> tuple[Unit, Relation]:
        """The unit and relation that are accounted for where `unit` is promised."""
        return unit, Relation.ZERO_OUT

    def over(self, *data: Any, **options: Any) -> Any:
        """What answers this query over a party's data: an `Answering`, a `Reporting` or a `Solving`, by mechanism.

        The class that is returned documents its data. All take `present`, (n,) bool: which users take part; None: all.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how it is answered.")


class Answering(Protocol):
    """A query over a party's data."""

    def __call__(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        """The answer at `state` in float32, one array per block; `stream` is the party's own randomness."""

    def exact(self, state: Blocks, stream: np.random.Generator) -> Mapping[str, Exact]:
        """The answer in float64, for which the bound holds without tolerance: noise is added to this one."""


class Summable(Answering, Protocol):
    """An answer that is a sum of contributions, each of which can be rounded to integers by itself."""

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Summands]:
        """What each user, or each rating, adds to the answer's blocks, flattened in the order of their names."""


class Reporting(Protocol):
    """Single reports that each device randomises by itself, so that they reveal little whatever the device holds."""

    def reports(self, stream: np.random.Generator, coins: Source, epsilon: float) -> dict[str, Array]:
        """As many reports of every device that takes part as its query says, along the first axis of every array.

        Any two records make any report within a factor e^epsilon as likely; infinite: nothing is randomised. Reports of
        one device are independent given its record. `stream`
        makes draws that do not depend on data, such as which coordinate is reported; the coins come from `coins`.
        """


class Solving(Protocol):
    """Convex problems over a party's data, to be solved with a random linear term in each."""

    def blank(self) -> dict[str, Array]:
        """Zeros where linear terms go."""

    def minimisers(self, linear: Blocks, multiplier: float | None, stream: np.random.Generator) -> dict[str, Array]:
        """The exact minimisers with these linear terms; without a multiplier nothing is protected."""


Answer = Callable[[Blocks, np.random.Generator], dict[str, Array]]
Update = Callable[[dict[str, Any], dict[str, Array], int], dict[str, Any]]


@dataclass(frozen=True)
class Unbounded(Query):
    """A query that claims nothing: its sensitivity is infinite, so no mechanism can protect it.

    >>> Unbounded().sensitivity(Unit.USER, Relation.ZERO_OUT)
    inf
    """

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, answer: Answer, present: Array | None = None) -> UnboundedAnswer:
        return UnboundedAnswer(self, answer)


class UnboundedAnswer:
    """The value of a function, which handles absent users itself."""

    def __init__(self, query: Unbounded, answer: Answer) -> None:
        self.query, self._answer = query, answer

    def __call__(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return self._answer(state, stream)

    exact = __call__
