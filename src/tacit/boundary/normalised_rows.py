"""Per item a vector, summed over users, every user's whole contribution having ℓ2 norm 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.boundary.clipped_sums import (
    Bounded,
    bounded_rows,
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
from tacit.secure.quantize import Contributions

#: Numbers that are held at a time.
AT_ONCE = 4_000_000


@dataclass(frozen=True)
class NormalisedRows(Query):
    """Σ_u w_u·x_uj per item j with x_uj of q numbers and w_u = 1/√(Σ_j ‖x_uj‖²); `block` (m, q) is the answer.

    Guarantee
    ---------
    There is one rating per user and item, so the vectors of one user fall in different rows, and all of them together
    have norm 1, or 0 for a user without ratings or with zeros only. The sum moves by at most 1 when a record is
    emptied: sensitivity 1 per user under zero-out and add/remove, 2 under replace. Per rating 2 under every relation,
    since w_u and all of x_u may change with it. In floating point norms are cut to 1 − 2⁻²⁰, and contributions to a
    grid on which sums are exact.

    >>> NormalisedRows("slopes").sensitivity(Unit.USER, Relation.ZERO_OUT)
    1.0
    """

    block: str

    @property
    def clip(self) -> float:
        return 1.0

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.clip, unit, relation)

    def over(self, ratings: Ratings, rows: Array, present: Array | None = None) -> NormalisedRowsSum:
        return NormalisedRowsSum(self, ratings, rows, present)


class NormalisedRowsSum(Bounded):
    """`NormalisedRows` over a party's ratings.

    `rows` is (nnz, q); a user's rows may depend on their own record and on released state only.
    """

    def __init__(self, query: NormalisedRows, ratings: Ratings, rows: Array, present: Array | None = None) -> None:
        check_ratings(ratings)
        if np.ndim(rows) != 2 or len(rows) != len(ratings.items):
            raise DataError(f"Normalised rows need a vector for each of the {len(ratings.items):,} ratings.")
        self.query, self.ratings, self.rows = query, ratings, np.asarray(rows)
        self.present = participants(present, ratings.n_users)

    def bounded_values(self, first: int, last: int) -> Array:
        """What every rating of users first … last − 1 adds, (…, q) float64."""
        indptr, q = self.ratings.indptr, self.rows.shape[1]
        starts = indptr[first : last + 1] - indptr[first]
        x = np.ascontiguousarray(self.rows[indptr[first] : indptr[last]], dtype=np.float64)
        flat = bounded_rows(q * starts, x.reshape(1, -1), 1.0, exactly=True).reshape(x.shape)
        flat *= np.repeat(self.present[first:last], np.diff(starts))[:, None]
        return on_grid(flat, 1.0, self.ratings.n_users)

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Contributions]:
        """A user's vectors are one contribution; some users at a time."""
        for first, last in self._batches():
            yield self._of(first, last)

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """What each user adds, all at once."""
        return self._of(0, self.ratings.n_users)

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        m, q = self.ratings.n_items, self.rows.shape[1]
        total = np.zeros((m, q))
        for first, last in self._batches():
            items = self.ratings.items[self.ratings.indptr[first] : self.ratings.indptr[last]]
            values = self.bounded_values(first, last)
            for c in range(q):
                total[:, c] += np.bincount(items, weights=values[:, c], minlength=m)
        return {self.query.block: total}

    def _batches(self) -> Iterator[tuple[int, int]]:
        return user_batches(self.ratings.indptr, AT_ONCE // max(1, self.rows.shape[1]))

    def _of(self, first: int, last: int) -> Contributions:
        indptr, q = self.ratings.indptr, self.rows.shape[1]
        items = self.ratings.items[indptr[first] : indptr[last]].astype(np.int64)
        cells = (items[:, None] * q + np.arange(q)).ravel()
        starts = q * (indptr[first : last + 1] - indptr[first]).astype(np.int64)
        return Contributions(starts, cells, self.bounded_values(first, last).ravel(), self.ratings.n_items * q)
