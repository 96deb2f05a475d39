"""Least-squares sums per item and sums per user in one answer, all that a user adds being one vector of length 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    block_names,
    check_blocks,
    check_ratings,
    clipped_rows,
    finite,
    on_grid,
    participants,
    positive,
    record_sensitivity,
    user_batches,
)
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import DataError, UsageError
from tacit.guarantee import Relation, Unit
from tacit.kernels.posteriors import moment_sums
from tacit.secure.quantize import Contributions, Repeated

#: Numbers that are held at a time.
AT_ONCE = 1_000_000
#: Ratings are cut to multiples of this, so that products with them fall on a grid too.
STEP = 2.0**-16
#: Numbers are cut to this size, and a user whose numbers are all below 1/LARGE adds nothing about items.
LARGE = 1e100


@dataclass(frozen=True)
class ScaledRecords(Query):
    """Σ_u s_u·M_u and Σ_u s_u·r_uj·x_u per item j over those who rated it, and Σ_u c_u·p_u over all who rated anything.

    M_u is what a user says about each of their items alike, r_uj·x_u what depends on the rating, and p_u what they say
    once. s_u makes the length of all of the first √(1 − share), c_u that of the second √share at most: p is cut to
    `limit` and multiplied by √share/limit. Blocks are "moments" (m, P), "targets" (m, d) and those of p, `own`.

    Guarantee
    ---------
    Sensitivity 1 per user under zero-out and add/remove: the parts fall in different cells, there is one rating per
    user and item, and so a user adds a vector of squared length (1 − share) + share at most, whatever M, r, x and p
    are, since all of it is inside s_u and c_u; an empty record adds exactly 0. 2 under replace. Per rating 2 under
    every relation: M, x, p and both scales are computed from the whole record, so one rating may move all of it. In
    floating point lengths are met early by `MARGIN`, and contributions are cut to a grid on which sums are exact.

    >>> ScaledRecords(("joint",), 0.1, 2.0).sensitivity(Unit.RATING, Relation.ZERO_OUT)
    2.0
    """

    own: tuple[str, ...]
    share: float
    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "own", block_names("own", self.own))
        object.__setattr__(self, "limit", positive("limit", self.limit))
        if not 0 < self.share < 1:
            raise UsageError(f"share = {self.share!r} is not possible; it is above 0 and below 1.")

    @property
    def clip(self) -> float:
        return 1.0

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.clip, unit, relation)

    def over(
        self, ratings: Ratings, moments: Array, means: Array, values: Array, own: Blocks, present: Array | None = None
    ) -> ScaledSum:
        return ScaledSum(self, ratings, moments, means, values, own, present)


class ScaledSum(Bounded):
    """`ScaledRecords` over a party's ratings.

    Parameters
    ----------
    moments, means : M (n, P) and x (n, d), functions of a user's own record and of what was released
    values : r, (nnz,), of the order of 1
    own : p, name → (n, …)
    """

    def __init__(
        self,
        query: ScaledRecords,
        ratings: Ratings,
        moments: Array,
        means: Array,
        values: Array,
        own: Blocks,
        present: Array | None = None,
    ) -> None:
        check_ratings(ratings)
        check_blocks("own", query.own, own)
        n = ratings.n_users
        if any(np.ndim(x) != 2 or len(x) != n for x in (moments, means, *own.values())):
            raise DataError(f"Scaled records need one row of numbers for each of the {n:,} users.")
        if np.shape(values) != (len(ratings.items),):
            raise DataError(f"Scaled records need one number for each of the {len(ratings.items):,} ratings.")
        self.query, self.ratings, self._given, self._values = query, ratings, (moments, means), values
        self.own = {name: own[name] for name in sorted(own)}
        self.here = participants(present, n) & (np.diff(ratings.indptr) > 0)

    @cached_property
    def values(self) -> Array:
        """r, each cut towards 0."""
        cut: Array = np.trunc(np.clip(finite(self._values), -LARGE, LARGE) / STEP) * STEP
        return cut

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """s·M and s·x of every user, float64. A user's largest number is divided out before squaring."""
        moments, means = (np.clip(finite(x), -LARGE, LARGE) for x in self._given)
        users, n, counts = self.ratings.users, len(self.here), np.diff(self.ratings.indptr)
        largest = np.zeros(n)
        np.maximum.at(largest, users, np.abs(self.values))
        r = np.where(largest > 0, largest, 1.0)  # |r| is a multiple of STEP, so never small
        squares = np.bincount(users, weights=np.square(self.values / r[users]), minlength=n)
        means = means * largest[:, None]
        peak = np.maximum(*(np.abs(x).max(axis=1, initial=0) for x in (moments, means)))
        some = self.here & (peak > 1 / LARGE)
        peak = np.where(some, peak, 1.0)[:, None]
        moments, means = moments / peak, means / peak
        length = np.sqrt(np.square(moments).sum(axis=1) * counts + np.square(means).sum(axis=1) * squares)
        scale = some * MARGIN * math.sqrt(1 - self.query.share) / np.where(some, length, 1.0)
        # r·x falls on the grid of 1.0 where x is on that of 1/STEP
        return on_grid(moments * scale[:, None], 1.0, n), on_grid(means * (scale / r)[:, None], 1 / STEP, n)

    def said(self, first: int, last: int) -> dict[str, Array]:
        """c·p of users first … last − 1, float64."""
        share, limit, n = self.query.share, self.query.limit, len(self.here)
        flat = clipped_rows(np.concatenate([x[first:last] for x in self.own.values()], axis=1), limit)
        flat = on_grid(flat * (self.here[first:last, None] * math.sqrt(share) / limit), 1.0, n)
        ends = np.cumsum([x.shape[1] for x in self.own.values()])
        return dict(zip(self.own, np.split(flat, ends[:-1], axis=1), strict=True))

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        order = np.argsort(self.ratings.items, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(self.ratings.items, minlength=self.ratings.n_items))])
        moments, targets = moment_sums(indptr, self.ratings.users[order], self.values[order], *self.rows)
        said = self.said(0, len(self.here))
        return {"moments": moments, "targets": targets, **{name: x.sum(axis=0) for name, x in said.items()}}

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """What each user adds, all at once and number by number."""
        return self._of(0, len(self.here)).each

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Repeated]:
        """The same, some users at a time; M is one row for all of a user's items."""
        each, once = self.rows[1].shape[1], sum(x.shape[1] for x in (self.rows[0], *self.own.values()))
        numbers = each * self.ratings.indptr + once * np.arange(len(self.here) + 1)
        for first, last in user_batches(numbers, AT_ONCE):
            yield self._of(first, last)

    def _of(self, first: int, last: int) -> Repeated:
        """What users first … last − 1 add to the blocks, which follow each other in the order of their names."""
        ratings, (moments, means) = self.ratings, self.rows
        mine, m, size = slice(ratings.indptr[first], ratings.indptr[last]), ratings.n_items, 0
        owners, items = ratings.users[mine], ratings.items[mine].astype(np.int64)
        everyone, none = np.arange(first, last), np.zeros(last - first, dtype=np.int64)
        adds = {name: (everyone, none, rows, 1) for name, rows in self.said(first, last).items()}
        adds["targets"] = (owners, items, means[owners] * self.values[mine, None], m)
        cells, who, values, place = [], [], [], 0
        for name in sorted({"moments", *adds}):
            if name == "moments":
                place, size = size, size + m * moments.shape[1]
                continue
            owner, row, numbers, height = adds[name]
            width = numbers.shape[1]
            cells.append((size + row[:, None] * width + np.arange(width)).ravel())
            who.append(np.repeat(owner, width))
            values.append(numbers.ravel())
            size += height * width
        owner = np.concatenate(who)
        order = np.argsort(owner, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(owner - first, minlength=last - first))])
        rest = Contributions(starts, np.concatenate(cells)[order], np.concatenate(values)[order], size)
        indptr = ratings.indptr[first : last + 1] - ratings.indptr[first]
        return Repeated(indptr, items, moments[first:last], place, m, rest)
