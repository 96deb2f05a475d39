"""The sum of a private sweep: all that a user says is one vector, scaled to length 1."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    clipped_rows,
    finite,
    participants,
    record_sensitivity,
    user_batches,
)
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.guarantee import Relation, Unit
from tacit.methods.als.statistics import NOISE, UserStatistics, empty_joint
from tacit.secure.quantize import Contributions

#: The part of a contribution's squared length that is about the priors.
PRIORS = 0.1
#: Numbers that are held at a time.
AT_ONCE = 4_000_000
#: A user's weight is of this order: 1 over the length of what they say about items.
WEIGHT = 1 / 30


@dataclass(frozen=True)
class Scaled(Query):
    """A sweep's sums over users, each of whom adds a vector of ℓ2 norm 1 at most; `factors` is k.

    What a user says about items is E[x·xᵀ]/σ²_u and r·E[x]/σ²_u at each of their items. What they say about priors is
    E[h·hᵀ] less that of an empty record, and their error and weight. The first is scaled to norm √.9 exactly, the
    second cut to √.1, as upper triangles with off-diagonals times √2.

    Guarantee
    ---------
    Sensitivity 1 per user under zero-out and add/remove: the parts fall in different cells, there is one rating per
    user and item, and a user's norm is at most √(.9 + .1) whatever x, r, σ²_u and the shared model are, since
    everything is inside that scaling; an empty record adds exactly 0. 2 under replace. Per rating 2 under every
    relation: x, σ²_u and both scales are fitted to the whole record, so one rating moves all of it. The scales are the
    user's own, the other constants public. Sums are float64; `MARGIN` covers their rounding.
    """

    factors: int

    @property
    def clip(self) -> float:
        return 1.0

    @property
    def limit(self) -> float:
        """What a user says about priors is cut to this norm, and then divided by it: about its typical size."""
        return 2 + self.factors / 2

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.clip, unit, relation)

    def over(self, statistics: UserStatistics, present: Array | None = None) -> ScaledSum:
        return ScaledSum(self, statistics, present)


class ScaledSum(Bounded):
    """`Scaled` over a party's users."""

    def __init__(self, query: Scaled, statistics: UserStatistics, present: Array | None = None) -> None:
        self.query, self.statistics = query, statistics
        counts = statistics.history.counts
        self.here = participants(present, len(counts)) & (counts > 0)

    @cached_property
    def rows(self) -> tuple[Array, Array]:
        """√2-packed E[x·xᵀ]/σ² and E[x]/σ² of every user, scaled so that all of the user's ratings have norm √.9."""
        found, history = self.statistics.found, self.statistics.history
        a, b = np.triu_indices(self.statistics.form.width)
        with np.errstate(all="ignore"):
            w = finite(1 / found.noise)[:, None]
            moments = finite(found.moments) * np.where(a == b, 1.0, math.sqrt(2)) * w
            means = finite(found.states) * w
            moments, means = np.clip(finite(moments), -1e60, 1e60), np.clip(finite(means), -1e60, 1e60)
        squares = np.square(moments).sum(axis=1) * history.counts + np.square(means).sum(axis=1) * self.squares
        scale = self.here * MARGIN * math.sqrt(1 - PRIORS) / np.sqrt(np.where(squares > 0, squares, 1.0))
        return moments * scale[:, None], means * scale[:, None]

    @cached_property
    def v(self) -> Array:
        """Ratings from the centre, on a scale of ±4 whatever the centre is."""
        return np.clip(finite(self.statistics.v), -4, 4)

    @cached_property
    def squares(self) -> Array:
        owners = np.repeat(np.arange(len(self.here)), self.statistics.history.counts)
        return np.bincount(owners, weights=self.v**2, minlength=len(self.here))

    @cached_property
    def priors(self) -> dict[str, Array]:
        """What every user says about priors, one row each, by block; together of norm √.1 at most."""
        s, limit = self.statistics, self.query.limit
        h = np.concatenate([s.history.features, s.tastes], axis=1)
        a, b = np.triu_indices(h.shape[1])
        with np.errstate(all="ignore"):
            joint = h[:, a] * h[:, b]
            spread = s.found.moments.astype(np.float64) - _outer(s.found.states.astype(np.float64))
            joint += _tastes_only(spread, s.form.width, h.shape[1])
            joint -= empty_joint(s.form)[a, b]
            own = s.found.noise / np.maximum(np.linalg.norm(s.found.moments, axis=1), 1e-9)
            mean_error = s.found.errors / np.maximum(s.history.counts, 1)
        weight = own / np.sqrt(np.maximum(s.history.counts, 1))
        noise = np.stack([np.ones(len(own)), mean_error / 2, 0 * own, np.minimum(weight / WEIGHT, 3)], axis=1)
        flat = np.concatenate([joint * np.where(a == b, 1.0, math.sqrt(2)), noise], axis=1)
        flat = clipped_rows(flat, limit) * (self.here[:, None] * math.sqrt(PRIORS) / limit)
        return {"joint": flat[:, :-NOISE], "errors": flat[:, -NOISE:]}

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        from scipy.sparse import csr_array

        by_item, m = self.statistics.by_item, len(self.statistics.form.items)
        moments, means = self.rows
        ones, shape = np.ones(len(by_item.users)), (m, len(self.here))
        rated = csr_array((ones, by_item.users, by_item.indptr), shape=shape)
        valued = csr_array((self.v[by_item.entries], by_item.users, by_item.indptr), shape=shape)
        priors = {name: rows.sum(axis=0) for name, rows in self.priors.items()}
        return {"moments": rated @ moments, "targets": valued @ means, **priors}

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        return self._of(0, len(self.here))

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Contributions]:
        """The same, some users at a time."""
        width = sum(rows.shape[1] for rows in self.rows)
        each = self.statistics.indptr + np.arange(len(self.here) + 1) * (1 + self.priors["joint"].shape[1] // width)
        for first, last in user_batches(each, AT_ONCE // width):
            yield self._of(first, last)

    def _of(self, first: int, last: int) -> Contributions:
        """What users first … last − 1 add to the blocks, which follow each other in the order of their names."""
        s, m = self.statistics, len(self.statistics.form.items)
        mine = slice(s.indptr[first], s.indptr[last])
        owners = np.repeat(np.arange(first, last), np.diff(s.indptr[first : last + 1]))
        items, (moments, means) = s.items[mine].astype(np.int64)[:, None], self.rows
        P, d, Q = moments.shape[1], means.shape[1], self.priors["joint"].shape[1]
        starts = {"errors": 0, "joint": NOISE, "moments": NOISE + Q, "targets": NOISE + Q + m * P}
        cells, values, who = [], [], []
        for name, rows in self.priors.items():
            block = rows[first:last]
            cells.append(np.tile(starts[name] + np.arange(block.shape[1]), last - first))
            values.append(block.ravel())
            who.append(np.repeat(np.arange(first, last), block.shape[1]))
        for name, rows, v in (("moments", moments, None), ("targets", means, self.v[mine, None])):
            width = rows.shape[1]
            cells.append((starts[name] + items * width + np.arange(width)).ravel())
            values.append((rows[owners] if v is None else rows[owners] * v).ravel())
            who.append(np.repeat(owners, width))
        owner = np.concatenate(who)
        order = np.argsort(owner, kind="stable")
        bounds = np.concatenate([[0], np.cumsum(np.bincount(owner - first, minlength=last - first))])
        size = Q + NOISE + m * (P + d)
        return Contributions(bounds, np.concatenate(cells)[order], np.concatenate(values)[order], size)


def _outer(x: Array) -> Array:
    a, b = np.triu_indices(x.shape[1])
    products: Array = x[:, a] * x[:, b]
    return products


def _tastes_only(triangles: Array, width: int, joint: int) -> Array:
    """Upper triangles of x's covariance, (n, …), as those of h = (f, z)'s, where z is x without its known 1."""
    places = np.full((width, width), -1)
    places[np.triu_indices(width)] = np.arange(triangles.shape[1])
    free = np.delete(np.arange(width), 1)
    whole = np.full((joint, joint), -1)
    whole[1 - width :, 1 - width :] = places[np.ix_(free, free)]
    chosen = whole[np.triu_indices(joint)]
    out: Array = np.where(chosen >= 0, triangles[:, np.maximum(chosen, 0)], 0.0)
    return out
