"""Item gradients of implicit feedback, summed over users: what depends on the items that a user took, and the rest.

Minto, Haller, Haddadi and Livshits 2021, eqs. (5) and (6): Σ_u c_uj·(p_uj − x_u·v_j)·x_u over *all* users, of whom most
did not take item j. What they add there is −(x_u·v_j)·x_u = −(x_u·x_uᵀ)·v_j, so that Σ_u x_u·x_uᵀ says it for all items
at once, and a contribution has numbers for a user's own items, and a triangle:

    items[j] = Σ_{u took j} s_uj·x_u,   s_uj = 1 + α·r_uj − α·r_uj·x_u·v_j,        whole = Σ_u x_u·x_uᵀ

The gradient is −2·(items − V·whole). It is the same sum with far fewer numbers that one user moves.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    check_ratings,
    finite,
    on_grid,
    participants,
    record_sensitivity,
    user_batches,
)
from tacit.boundary.least_squares import packed
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import DataError, UsageError
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Contributions

#: Numbers that are held at a time.
AT_ONCE = 4_000_000
#: s is cut to multiples of this, so that products with x on the grid of 1/STEP fall on a grid too.
STEP = 2.0**-16
#: Without a bound, what one user adds to a cell of a hidden sum is cut to this; numbers are of the order of 1 to 10.
LARGEST = 256.0
#: Numbers are cut to this size before anything is squared.
HUGE = 1e60


@dataclass(frozen=True)
class ItemGradients(Query):
    """Per item Σ_u w_u·s_uj·x_u over those who took it ("items", (m, F)), and Σ_u w_u·x_u·x_uᵀ over all ("whole").

    The triangle is packed with off-diagonals times √2, at its Frobenius norm.

    Attributes
    ----------
    confidence : α
    bounded : whether w_u makes the length of all that user u adds 1; else w_u = 1, and nothing bounds it

    Guarantee
    ---------
    Sensitivity 1 per user under zero-out and add/remove where it is bounded: a user's numbers are in different cells,
    since there is one rating per user and item, and their squares add up to ‖x‖²·Σ_j s² + ‖x‖⁴, which w_u² divides
    out. It holds whatever x and V are, also where a peer sent V; a user without items adds exactly 0, and nothing is
    divided by a count of users. 2 under replace. Per rating 2 under every relation: x_u and w_u change with each of a
    user's ratings, and ‖y − y'‖ ≤ ‖y‖ + ‖y'‖. In floating point lengths are met early by `MARGIN`, and contributions
    are cut towards 0 to a grid on which sums are exact. Infinite where it is not bounded.

    >>> ItemGradients(1.0).sensitivity(Unit.USER, Relation.REPLACE), ItemGradients(1.0, bounded=False).clip
    (2.0, None)
    """

    confidence: float
    bounded: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.confidence < math.inf:
            raise UsageError(f"A confidence of {self.confidence:g} is not possible; give a finite one of 0 or more.")

    @property
    def clip(self) -> float | None:
        return 1.0 if self.bounded else None

    @property
    def largest(self) -> float:
        return 1.0 if self.bounded else LARGEST

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(1.0, unit, relation) if self.bounded else math.inf

    def over(self, ratings: Ratings, users: Array, items: Array, present: Array | None = None) -> GradientSums:
        return GradientSums(self, ratings, users, items, present)


class GradientSums(Bounded):
    """`ItemGradients` over a party's histories.

    `users` is X (n, F): row u may depend on u's own history, on what was released, and on fresh secret randomness.
    `items` is V (m, F), of whatever origin.
    """

    def __init__(
        self, query: ItemGradients, ratings: Ratings, users: Array, items: Array, present: Array | None = None
    ) -> None:
        check_ratings(ratings)
        if len(users) != ratings.n_users or len(items) != ratings.n_items or users.shape[1] != items.shape[1]:
            raise DataError(f"Factors of shapes {users.shape} and {items.shape} do not fit the ratings.")
        self.query, self.ratings = query, ratings
        self._users, self._items = (np.clip(finite(x), -HUGE, HUGE) for x in (users, items))
        self.here = participants(present, ratings.n_users) & (np.diff(ratings.indptr) > 0)

    @cached_property
    def slopes(self) -> Array:
        """s, (nnz,) float64, over the user's largest, and cut towards 0."""
        cut: Array = np.trunc(self._scaled[0] / STEP) * STEP
        return cut

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """What a user adds about an item for each unit of `slopes`, (n, F), and their triangle; float64."""
        _slopes, squares, x, triangle, peaks = self._scaled
        n = len(peaks)
        if not self.query.bounded:
            peaks = (self.here * peaks)[:, None]
            return x * peaks, triangle * peaks
        length = np.square(x).sum(axis=1) * squares + np.square(triangle).sum(axis=1)
        scale = (self.here * MARGIN / np.sqrt(np.where(length > 0, length, 1.0)))[:, None]
        return on_grid(x * scale, 1 / STEP, n), on_grid(triangle * scale, 1.0, n)

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        ratings, (x, triangle) = self.ratings, self.rows
        slopes, counts, sums = self.slopes, np.diff(ratings.indptr), np.empty((ratings.n_items, x.shape[1]))
        for f in range(x.shape[1]):
            sums[:, f] = np.bincount(ratings.items, slopes * np.repeat(x[:, f], counts), minlength=ratings.n_items)
        return {"items": sums, "whole": triangle.sum(axis=0)}

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """What each user adds, all at once."""
        return self._of(0, len(self.here))

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Contributions]:
        """The same, some users at a time."""
        x, triangle = self.rows
        numbers = x.shape[1] * self.ratings.indptr + triangle.shape[1] * np.arange(len(self.here) + 1)
        for first, last in user_batches(numbers, AT_ONCE):
            yield self._of(first, last)

    def _of(self, first: int, last: int) -> Contributions:
        """A user's items, one after the other, and then the triangle."""
        indptr, (x, triangle) = self.ratings.indptr, self.rows
        p, q, mine = x.shape[1], triangle.shape[1], slice(indptr[first], indptr[last])
        owners, items = self.ratings.users[mine], self.ratings.items[mine].astype(np.int64)
        starts = p * (indptr[first : last + 1] - indptr[first]) + q * np.arange(last - first + 1)
        whole = (starts[1:] - q)[:, None] + np.arange(q)
        about = np.ones(starts[-1], dtype=bool)
        about[whole] = False
        cells, values = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
        cells[whole], values[whole] = self.ratings.n_items * p + np.arange(q), triangle[first:last]
        cells[about] = (items[:, None] * p + np.arange(p)).ravel()
        values[about] = (self.slopes[mine, None] * x[owners]).ravel()
        return Contributions(starts.astype(np.int64), cells, values, self.ratings.n_items * p + q)

    @cached_property
    def _scaled(self) -> tuple[Array, Array, Array, Array, Array]:
        """s over the user's largest, the sum of its squares, x, x·xᵀ, and what all of s·x and x·xᵀ were divided by.

        After that the largest number of every user is about 1, so that no square overflows or vanishes.
        """
        ratings, x = self.ratings, self._users
        most = np.abs(x).max(axis=1, initial=0)
        x, most = np.where(most > 1 / HUGE, 1, 0)[:, None] * x, np.maximum(most, 1 / HUGE)
        slopes = self._slopes(x)
        counts = np.diff(ratings.indptr)
        some = np.flatnonzero(counts)
        largest, squares = np.zeros(len(x)), np.zeros(len(x))
        if len(some):
            largest[some] = np.maximum.reduceat(np.abs(slopes), ratings.indptr[some])
        largest = np.where(largest > 1 / HUGE, largest, 1.0)
        slopes /= np.repeat(largest, counts)
        if len(some):
            squares[some] = np.add.reduceat(np.square(slopes), ratings.indptr[some])
        peaks = most * np.maximum(largest, most)
        return slopes, squares, x * (largest / peaks)[:, None], packed(x / np.sqrt(peaks)[:, None]), peaks

    def _slopes(self, x: Array) -> Array:
        """s of every rating."""
        ratings, slopes = self.ratings, np.empty(len(self.ratings.items))
        for first, last in user_batches(ratings.indptr, AT_ONCE // x.shape[1]):
            mine = slice(ratings.indptr[first], ratings.indptr[last])
            predicted = np.einsum("ef,ef->e", x[ratings.users[mine]], self._items[ratings.items[mine]])
            r = np.maximum(finite(ratings.values[mine]), 0)
            slopes[mine] = (r > 0) * (1 + self.query.confidence * r) - self.query.confidence * r * predicted
        return slopes
