"""Gradients in which each *record* is clipped as a whole: what one user adds, over all ratings, has norm ≤ C."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    bounded_rows,
    check_ratings,
    finite,
    on_grid,
    participants,
    positive,
    record_sensitivity,
    user_batches,
)
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings, Scale
from tacit.errors import DataError
from tacit.guarantee import Relation, Unit
from tacit.kernels.clipped import bounded_slopes
from tacit.kernels.embed import embed
from tacit.kernels.entries import shifted
from tacit.secure.quantize import Contributions

#: Entries that are held at a time.
AT_ONCE = 4_000_000


@dataclass(frozen=True)
class RecordGradient(Query):
    """Per item j, Σ_i w_i·2(u_i·v_j − r_ij)·u_i over all who rated j, w_i = min(1, C/‖g_i‖), g_i all of i's terms.

    Attributes
    ----------
    scale : declared, of span R; r − low is clipped into [0, R]
    limit : C

    Guarantee
    ---------
    One block, "items", (m, p). A user's terms fall in different rows and together have norm at most C, by their own
    w_i; so the sum moves by at most C when the record is emptied. Sensitivity C per user, 2C under replace, and 2C per
    rating under every relation: one rating may change u_i and w_i. Infinite on a scale read off the data. The bound
    holds in floating point: norms are cut by `MARGIN`, terms to a grid on which sums are exact.
    """

    scale: Scale
    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", positive("limit", self.limit))

    @property
    def clip(self) -> float:
        return self.limit

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.limit, unit, relation) if self.scale.declared else math.inf

    def counted(self, unit: Unit) -> tuple[Unit, Relation]:
        """A rating moves factors fitted at home, and so all that its user adds: the replace case of the user."""
        return Unit.USER, Relation.ZERO_OUT if unit is Unit.USER else Relation.REPLACE

    def over(self, ratings: Ratings, users: Array, items: Array, present: Array | None = None) -> RecordSum:
        return RecordSum(self, ratings, users, items, present)


class RecordSum(Bounded):
    """`RecordGradient` over a party's ratings, one per user and item.

    `users` is U (n, p): row i may depend on i's own record, on what was released, and on secret randomness. `items` is
    V (m, p), of whatever origin: Π is applied to both.
    """

    def __init__(
        self, query: RecordGradient, ratings: Ratings, users: Array, items: Array, present: Array | None = None
    ) -> None:
        check_ratings(ratings)
        if len(users) != ratings.n_users or len(items) != ratings.n_items or users.shape[1] != items.shape[1]:
            raise DataError(f"Factors of shapes {users.shape} and {items.shape} do not fit the ratings.")
        self.query, self.ratings = query, ratings
        self.users, self.items = (finite(embed(x, query.scale.span)) for x in (users, items))
        self.present = participants(present, ratings.n_users)

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Contributions]:
        """What each user adds, some users at a time: a record has p numbers for every rating."""
        for first, last in user_batches(self.ratings.indptr, AT_ONCE // self.items.shape[1]):
            yield self._of(first, last)

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """What each user adds, all at once."""
        return self._of(0, self.ratings.n_users)

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        total = np.zeros(self.items.size)
        for part in self.chunks(state, stream):
            total += np.bincount(part.cells, weights=part.values, minlength=part.size)
        return {"items": total.reshape(self.items.shape)}

    def _of(self, first: int, last: int) -> Contributions:
        indptr, p = self.ratings.indptr, self.items.shape[1]
        entries = np.arange(indptr[first], indptr[last])
        starts = indptr[first : last + 1] - indptr[first]
        mine, scale, limit = self.ratings.items[entries], self.query.scale, self.query.limit
        u = self.users[first:last] * self.present[first:last, None]
        rated = shifted(self.ratings.values, entries, scale.low, scale.span)
        slopes = bounded_slopes(starts, mine, rated, u, self.items, math.inf)
        owners = np.repeat(np.arange(last - first), np.diff(starts))
        lengths = np.sqrt(np.einsum("nf,nf->n", u, u))
        clipped = bounded_rows(starts, (slopes * lengths[owners])[None], limit)[0]
        unit = u * np.divide(MARGIN, lengths, out=np.zeros_like(lengths), where=lengths > 0)[:, None]
        values = on_grid(clipped[:, None] * unit[owners], limit, self.ratings.n_users)
        cells = mine.astype(np.int64)[:, None] * p + np.arange(p)
        return Contributions(starts.astype(np.int64) * p, cells.ravel(), values.ravel(), self.items.size)
