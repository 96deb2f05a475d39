"""Which items users have in common: sums over users of x·xᵀ, where x says with 0 and 1 which of K items a user rated.

How often or how high something was rated is not looked at. The K items, the head of the catalogue, are public or were
chosen from released counts; which they are changes no bound. Sums are upper triangles, row by row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    check_ratings,
    on_grid,
    participants,
    record_sensitivity,
    user_batches,
)
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import DataError
from tacit.guarantee import Relation, Unit
from tacit.kernels.pairs import add_pairs, list_pairs
from tacit.secure.quantize import Contributions

#: Pairs that are held at a time.
AT_ONCE = 4_000_000


class Counted(Query):
    """Counts of users as they are: nothing bounds what one user adds, so they are for runs without privacy.

    A user adds 0 or 1 to each cell: hidden in integers, a sum is exact, and a cell as small as the number of users.
    """

    resolution = 1.0

    @property
    def largest(self) -> float:
        return 1.0

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf


@dataclass(frozen=True)
class ItemCounts(Counted):
    """How many users rated each item, as "counts", (m,)."""

    def over(self, ratings: Ratings, present: Array | None = None) -> ItemCountSum:
        return ItemCountSum(self, ratings, present)


class ItemCountSum(Bounded):
    """`ItemCounts` over a party's ratings."""

    def __init__(self, query: ItemCounts, ratings: Ratings, present: Array | None = None) -> None:
        check_ratings(ratings)
        self.query, self.ratings, self.present = query, ratings, participants(present, ratings.n_users)

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        here = np.repeat(self.present, np.diff(self.ratings.indptr))
        counts = np.bincount(self.ratings.items[here], minlength=self.ratings.n_items)
        return {"counts": counts.astype(np.float64)}


@dataclass(frozen=True)
class PairCounts(Counted):
    """Σ_u x_u·x_uᵀ as "pairs": how many users rated both of two items; on the diagonal, how many rated one."""

    def weights(self, counts: Array, users: int) -> tuple[Array, Array]:
        return np.ones(len(counts)), np.ones(len(counts))

    def over(self, ratings: Ratings, head: Array, present: Array | None = None) -> PairSum:
        return PairSum(self, ratings, head, present)


@dataclass(frozen=True)
class PairShares(Query):
    """Σ_u x_u·x_uᵀ/c_u as "pairs", where x_u ∈ {0, 1}^K has c_u ones; cells beside the diagonal times √2.

    Guarantee
    ---------
    A block of shape (K(K+1)/2,). A user with c ≥ 1 of the K items adds 1/c to c cells of the diagonal and √2/c to
    c(c−1)/2 cells beside it: the squared norm is c/c² + 2·(c(c−1)/2)/c² = 1, that is ‖x·xᵀ/c‖_F = ‖x‖²/c = 1. A user
    with none of them adds exactly 0, so an empty record does. What a user adds is a function of their own set of items
    and of the K items alone; these are public or released, and any K items will do. So the sensitivity per user is 1
    under zero-out and add/remove, and 2 under replace. Per rating it is 2 under every relation: c changes with each
    rating, and everything that the user adds with it. (Two such matrices lie √2 apart at most; but in a sum of integers
    they are rounded one by one, and 2 is what holds there too.) Were x the ratings or plays themselves, or the matrix
    divided by anything but c, the norm would be another. The bound holds in floating point: weights are cut by `MARGIN`
    and to a grid on which sums are exact.

    >>> PairShares().sensitivity(Unit.USER, Relation.ZERO_OUT)
    1.0
    """

    @property
    def clip(self) -> float:
        return 1.0

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.clip, unit, relation)

    def weights(self, counts: Array, users: int) -> tuple[Array, Array]:
        """What a user with so many of the items adds to a cell on the diagonal and beside it, (n,) each."""
        share = MARGIN / np.maximum(counts, 1)
        return on_grid(share, 1.0, users), on_grid(math.sqrt(2) * share, 1.0, users)

    def over(self, ratings: Ratings, head: Array, present: Array | None = None) -> PairSum:
        return PairSum(self, ratings, head, present)


class PairSum(Bounded):
    """`PairCounts` or `PairShares` over a party's ratings; `head` (K,) are the items, increasing."""

    def __init__(
        self, query: PairCounts | PairShares, ratings: Ratings, head: Array, present: Array | None = None
    ) -> None:
        check_ratings(ratings)
        m, head = ratings.n_items, np.asarray(head, dtype=np.int64)
        if head.ndim != 1 or (len(head) and not (head[0] >= 0 and head[-1] < m and np.all(head[1:] > head[:-1]))):
            raise DataError(f"The items of a sum over pairs have to be some of the {m:,} in the catalogue, in order.")
        self.query, self.size, here = query, len(head), participants(present, ratings.n_users)
        place = np.full(m, -1, dtype=np.int64)
        place[head] = np.arange(self.size)
        places = place[ratings.items]
        kept = (places >= 0) & np.repeat(here, np.diff(ratings.indptr))
        self.indptr = np.concatenate([[0], np.cumsum(kept)]).astype(np.int64)[ratings.indptr]
        self.places = places[kept]

    def _weights(self) -> tuple[Array, Array]:
        diagonal, beside = self.query.weights(np.diff(self.indptr), len(self.indptr) - 1)
        return diagonal, beside

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return {"pairs": add_pairs(self.indptr, self.places, *self._weights(), self.size)}

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """All pairs of a user's items are one contribution."""
        return self._of(0, len(self.indptr) - 1)

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Contributions]:
        """The same, some users at a time: c items make c(c+1)/2 pairs."""
        c = np.diff(self.indptr)
        pairs = np.concatenate([[0], np.cumsum(c * (c + 1) // 2)])
        for first, last in user_batches(pairs, AT_ONCE):
            yield self._of(first, last)

    def _of(self, first: int, last: int) -> Contributions:
        diagonal, beside = self._weights()
        indptr = self.indptr[first : last + 1]
        places = self.places[indptr[0] : indptr[-1]]
        starts, cells, values = list_pairs(
            indptr - indptr[0], places, diagonal[first:last], beside[first:last], self.size
        )
        return Contributions(starts, cells, values, self.size * (self.size + 1) // 2)
