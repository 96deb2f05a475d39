"""Gradients in which each *record* is clipped as a whole: what one user adds, over all of her ratings, has norm ≤ C."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from tacit.boundary.bounded import ROOM, Bounded, attendance, bounded_rows, finite, of_record, on_grid, positive
from tacit.boundary.query import Blocks
from tacit.boundary.trim import check_rows
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import DataError
from tacit.guarantee import Relation, Unit
from tacit.kernels.bounded import bounded_slopes
from tacit.kernels.embed import embed
from tacit.kernels.entries import shifted
from tacit.secure.quantize import Pieces

#: Entries that are held at a time.
AT_ONCE = 4_000_000


class RecordGradient(Bounded):
    """Per item j, Σ_i w_i·2(u_i·v_j − r_ij)·u_i over all who rated j, w_i = min(1, C/‖g_i‖), g_i all of i's terms.

    Parameters
    ----------
    ratings : one per user and item, on a declared scale; r − low is clipped into [0, R]
    clip : C, public
    users : U (n, p); row i may depend on i's own record, on what was released, and on secret coins
    items : V (m, p), of whatever origin: Π is applied to both
    present : (n,) bool, who takes part; None means all

    Guarantee
    ---------
    One block, "items", (m, p). A user's terms fall in different rows and together have norm at most C, by her own
    w_i; so the sum moves by at most C when her record is emptied. Sensitivity C per user, 2C under replace, and 2C per
    rating under every relation: one rating may change u_i and w_i. Infinite on a scale read off the data. The bound
    holds in floating point: norms are cut by `ROOM`, terms to a grid on which sums are exact.
    """

    def __init__(self, ratings: Ratings, clip: float, users: Array, items: Array, present: Array | None = None) -> None:
        check_rows(ratings.indptr, ratings.items, ratings.n_items)
        if len(users) != ratings.n_users or len(items) != ratings.n_items or users.shape[1] != items.shape[1]:
            raise DataError(f"Factors of shapes {users.shape} and {items.shape} do not fit the ratings.")
        self.ratings, self.clip, span = ratings, positive("clip", clip), ratings.scale.span
        self.users, self.items = (finite(embed(x, span)) for x in (users, items))
        self.present = attendance(present, ratings.n_users)

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Pieces]:
        """What each user adds, some users at a time: a record has p numbers for every rating."""
        indptr, p = self.ratings.indptr, self.items.shape[1]
        first = 0
        while first < self.ratings.n_users:
            reach = indptr[first] + max(1, AT_ONCE // p)
            last = max(first + 1, int(np.searchsorted(indptr, reach, side="right")) - 1)
            yield self._of(first, min(last, self.ratings.n_users))
            first = last

    def pieces(self, state: Blocks, stream: np.random.Generator) -> Pieces:
        """What each user adds, all at once."""
        return self._of(0, self.ratings.n_users)

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        total = np.zeros(self.items.size)
        for part in self.chunks(state, stream):
            total += np.bincount(part.cells, weights=part.values, minlength=part.size)
        return {"items": total.reshape(self.items.shape)}

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return self.bound(self.clip, unit, relation) if self.ratings.scale.declared else math.inf

    @staticmethod
    def bound(clip: float, unit: Unit, relation: Relation) -> float:
        """The sensitivity of such a sum, before there is data."""
        return of_record(clip, unit, relation)

    def _of(self, first: int, last: int) -> Pieces:
        """The pieces of users first … last − 1."""
        indptr, p = self.ratings.indptr, self.items.shape[1]
        entries = np.arange(indptr[first], indptr[last])
        starts = indptr[first : last + 1] - indptr[first]
        mine, scale = self.ratings.items[entries], self.ratings.scale
        u = self.users[first:last] * self.present[first:last, None]
        rated = shifted(self.ratings.values, entries, scale.low, scale.span)
        slopes = bounded_slopes(starts, mine, rated, u, self.items, math.inf)
        owners = np.repeat(np.arange(last - first), np.diff(starts))
        lengths = np.sqrt(np.einsum("nf,nf->n", u, u))
        clipped = bounded_rows(starts, (slopes * lengths[owners])[None], self.clip)[0]
        unit = u * np.divide(ROOM, lengths, out=np.zeros_like(lengths), where=lengths > 0)[:, None]
        values = on_grid(clipped[:, None] * unit[owners], self.clip, self.ratings.n_users)
        cells = mine.astype(np.int64)[:, None] * p + np.arange(p)
        return Pieces(starts.astype(np.int64) * p, cells.ravel(), values.ravel(), self.items.size)
