"""Queries: what may be asked of a party's data, and how far one unit can move the answer.

A query is public: a frozen value without data, the same in a plan and at every party. `over` binds it to data, and what
that returns answers. So a bound is stated once, by the query, and whoever answers takes its limits from there.
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
from tacit.secure.quantize import Contributions

Blocks = Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Rows:
    """A block of an exact answer that is 0 but in a few rows, as a gradient over sampled users is.

    Attributes
    ----------
    n : how many rows there are
    rows : (k,) int64, increasing: those that may be other than 0
    values : (k, p) float64, what is in them
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
    """What may be asked of a party's data, without the data: the base class of frozen dataclasses.

    Attributes
    ----------
    mechanism : how the answer is noised
    sampling : the rate at which the query itself draws a fresh, secret Poisson sample of the units; 1 for no sampling
    """

    mechanism: ClassVar[Mechanism] = Mechanism.NORMAL
    sampling: float = 1.0

    @property
    def clip(self) -> float | None:
        """The ℓ2 norm that no piece exceeds, a piece being what one user, or one rating, adds to a sum.

        None: the answer is not a sum of bounded pieces and cannot be sealed.
        """
        return None

    @property
    def largest(self) -> float | None:
        """The largest absolute value that one user adds to a cell of a sum: what un-noised integers are cut to.

        None: nothing bounds it, and the sum cannot be hidden.
        """
        return self.clip

    def nonzero_coordinates(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """How many coordinates of one piece may be other than 0; `shapes` are those of the step's blocks, by name."""
        return cells_of(shapes)

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        """The largest ℓ2 distance between the answers of two neighbours; infinite where nothing bounds it."""
        raise NotImplementedError(f"{type(self).__name__} must say how far one unit can move its answer.")

    def counted(self, unit: Unit) -> tuple[Unit, Relation]:
        """The unit and relation that are accounted for where `unit` is promised."""
        return unit, Relation.ZERO_OUT

    def over(self, *data: Any, **options: Any) -> Any:
        """What answers this query over a party's data: an `Answering`, a `Reporting` or a `Solving`, by mechanism.

        Each query says what data it takes. All take `present`, (n,) bool: which users take part; None means all.
        """
        raise NotImplementedError(f"{type(self).__name__} must say how it is answered.")


class Answering(Protocol):
    """A query over a party's data."""

    def __call__(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        """The answer at `state` in float32, one array per block; `stream` is the party's own randomness."""

    def exact(self, state: Blocks, stream: np.random.Generator) -> Mapping[str, Exact]:
        """The answer in float64, for which the bound holds without tolerance: what noise is added to."""


class Summable(Answering, Protocol):
    """An answer that is a sum of pieces, each of which can be made integers by itself."""

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Contributions]:
        """What each user, or each rating, adds to the answer's blocks, flattened in the order of their names."""


class Reporting(Protocol):
    """Single reports that each device randomises by itself, so that they reveal little whatever the device holds."""

    def reports(self, stream: np.random.Generator, coins: Source, epsilon: float) -> dict[str, Array]:
        """One report of every device that takes part, one entry each along the first axis of every array.

        Any two records make any report within a factor e^epsilon as likely; infinite means that nothing is randomised.
        `stream` makes draws that any device would make alike, such as which coordinate it reports; the randomising
        coins come from `coins`.
        """


class Solving(Protocol):
    """Convex problems over a party's data, to be solved with a random linear term in each."""

    def blank(self) -> dict[str, Array]:
        """Zeros where linear terms go."""

    def minimisers(self, linear: Blocks, multiplier: float | None, stream: np.random.Generator) -> dict[str, Array]:
        """The exact minimisers with these linear terms; without a multiplier nothing is protected."""


Answer = Callable[[Blocks, np.random.Generator], dict[str, Array]]


@dataclass(frozen=True)
class Unbounded(Query):
    """A query that claims nothing: its sensitivity is infinite, so no mechanism can protect it.

    >>> Unbounded().sensitivity(Unit.USER, Relation.ZERO_OUT)
    inf
    """

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, answer: Answer, present: Array | None = None) -> UnboundedAnswer:
        """What calls `answer`, which looks after who is present by itself."""
        return UnboundedAnswer(self, answer)


class UnboundedAnswer:
    """A function's value as it is."""

    def __init__(self, query: Unbounded, answer: Answer) -> None:
        self.query, self._answer = query, answer

    def __call__(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return self._answer(state, stream)

    exact = __call__


Update = Callable[[dict[str, Any], dict[str, Array], int], dict[str, Any]]
