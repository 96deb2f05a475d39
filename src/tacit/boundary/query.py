"""Queries: what may be asked of a party's data, and how far one unit can move the answer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.boundary.source import Source
from tacit.boundary.wire import Array
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Pieces

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


class Sensitive(Protocol):
    """Whatever knows how far one unit can move it."""

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        """The largest ℓ2 distance between the answers of two neighbours; infinite where nothing bounds it."""


class Query(Sensitive, Protocol):
    """A function of a party's data that knows its own sensitivity."""

    def __call__(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        """The answer at `state`, one array per block; `stream` is the party's own randomness."""

    def exact(self, state: Blocks, stream: np.random.Generator) -> Mapping[str, Exact]:
        """The answer in float64, for which the bound holds without tolerance: what noise is added to."""

    @property
    def sampling(self) -> float:
        """The rate at which the query itself draws a fresh, secret Poisson sample of the units; 1 for no sampling."""


class Summable(Query, Protocol):
    """A query that is a sum of pieces, each of which can be made whole numbers by itself."""

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Pieces]:
        """What each user, or each rating, adds to the answer's blocks, flattened in the order of their names."""


class Randomised(Protocol):
    """Single reports that each device randomises by itself, so that they tell little whatever the device holds."""

    @property
    def epsilon(self) -> float:
        """ε₀: any two records make any report within a factor e^ε₀ as likely."""

    def reports(self, stream: np.random.Generator, coins: Source) -> dict[str, Array]:
        """One report of every device that takes part, one entry each along the first axis of every array.

        `stream` makes draws that any device would make alike, such as which coordinate it reports; the randomising
        coins come from `coins`.
        """


class Unbounded:
    """A query that claims nothing: its sensitivity is infinite, so no mechanism can protect it.

    >>> Unbounded(lambda state, stream: {}).sensitivity(Unit.USER, Relation.ZERO_OUT)
    inf
    """

    sampling = 1.0

    def __init__(self, answer: Callable[[Blocks, np.random.Generator], dict[str, Array]]) -> None:
        self._answer = answer

    def __call__(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return self._answer(state, stream)

    exact = __call__

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf


Update = Callable[[dict[str, Any], dict[str, Array], int], dict[str, Any]]
