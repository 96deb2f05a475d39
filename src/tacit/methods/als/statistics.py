"""What users add to the sums of a sweep, and the coordinator's use of them.

Users' posteriors stay at home. Per item, the sums over users of E[x·xᵀ]/σ²_u and r·E[x]/σ²_u determine the item's
posterior; the sum of E[h·hᵀ] with h = (f_u, z_u) determines the users' prior; and four sums of squared errors determine
how noise varies among users. Each is taken less its value for a user without ratings, who adds exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from tacit.boundary.clipped_sums import item_sums, participants
from tacit.boundary.query import Query, Unbounded, UnboundedAnswer
from tacit.data.ratings import Ratings, Scale
from tacit.guarantee import Relation, Unit
from tacit.kernels.posteriors import moment_sums
from tacit.methods.als.priors import products
from tacit.model.bayesian import Bayesian, History, Posterior

#: Errors and counts of a user are summed in units of so many ratings, so that all cells are of one order.
SOME = 64.0
#: The four sums about noise: users with ratings, ratings, errors, and squared errors over ratings.
NOISE = 4


#: The most that one user adds to a cell of a hidden sum without noise; a public number, far beyond what occurs.
LARGEST = 2.0**12


@dataclass(frozen=True)
class Totals(Query):
    """The sums of a sweep without noise: nothing bounds them, NON-PRIVATE."""

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    @property
    def largest(self) -> float:
        return LARGEST

    def over(self, statistics: Summed, present: np.ndarray | None = None) -> UnboundedAnswer:
        return UnboundedAnswer(Unbounded(), lambda *_: statistics.totals(present))


class Summed(Protocol):
    """What a party adds up."""

    def totals(self, present: np.ndarray | None) -> dict[str, np.ndarray]:
        """All sums, of those who take part, without any bound."""


@dataclass(frozen=True)
class ItemTotals(Query):
    """Numbers per rating, summed by item without noise: nothing bounds them, NON-PRIVATE."""

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    @property
    def largest(self) -> float:
        return LARGEST

    def over(
        self, ratings: Ratings, channels: Mapping[str, np.ndarray], present: np.ndarray | None = None
    ) -> UnboundedAnswer:
        here = participants(present, ratings.n_users)[ratings.users]
        return UnboundedAnswer(
            Unbounded(), lambda *_: item_sums(ratings, {name: x * here for name, x in channels.items()})
        )


@dataclass(frozen=True, eq=False)
class ByItem:
    """Ratings in compressed columns: who rated each item, and at which place of the rows each entry is."""

    indptr: np.ndarray
    users: np.ndarray
    entries: np.ndarray

    @classmethod
    def of(cls, ratings: Ratings) -> ByItem:
        entries = np.argsort(ratings.items, kind="stable")
        indptr = np.zeros(ratings.n_items + 1, dtype=np.int64)
        np.cumsum(np.bincount(ratings.items, minlength=ratings.n_items), out=indptr[1:])
        return cls(indptr, ratings.users[entries].astype(np.int32), entries)


@dataclass(frozen=True, eq=False)
class Users:
    """What users found out from a shared model.

    Attributes
    ----------
    form, history, found : the shared model, what the ratings say, and the users' posteriors
    """

    form: Bayesian
    history: History
    found: Posterior

    @cached_property
    def tastes(self) -> np.ndarray:
        """z = (b_u, p_u), the posterior means; (n, k + 1)."""
        return np.delete(self.found.states, 1, axis=1)

    def joint(self, weights: np.ndarray) -> np.ndarray:
        """Σ_u w_u·(E[h·hᵀ] − that of an empty record), (F + K, F + K) float64."""
        features, K = self.history.features, self.tastes.shape[1]
        total = products(features, self.tastes, weights)
        spread = square(weights @ self.found.moments.astype(np.float64), self.form.width)
        free = np.delete(np.arange(self.form.width), 1)
        total[-K:, -K:] = spread[np.ix_(free, free)]
        return total - weights.sum() * empty_joint(self.form)

    @cached_property
    def noise(self) -> np.ndarray:
        """One row per user: 1 for having ratings, n_u, errors, and errors²/n_u; the last three in units of `SOME`."""
        n, errors = self.history.counts, self.found.errors
        several = np.maximum(n, 1)
        return np.stack([n > 0, n / SOME, errors / SOME, np.square(errors) / several / SOME], axis=1)

    def about_priors(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """What they say about the users' prior and about noise, added up."""
        return {"joint": upper(self.joint(weights)), "errors": weights @ self.noise}


@dataclass(frozen=True, eq=False)
class UserStatistics(Users):
    """What a party's users would add to a sweep, each by themselves or all together.

    Attributes
    ----------
    v : the ratings, in quarters of the scale from the centre
    by_item : who rated each item
    """

    v: np.ndarray
    by_item: ByItem

    @classmethod
    def at(cls, form: Bayesian, ratings: Ratings, by_item: ByItem, noise: np.ndarray) -> UserStatistics:
        """What the users of these ratings find out when they get `form`; `noise` is each one's, from the last sweep."""
        history = form.history(ratings.indptr, ratings.items, ratings.values)
        return cls(form, history, form.posterior(history, noise), form.in_units(ratings.values), by_item)

    def item_sums(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """Σ_u w_u·E[x·xᵀ] and Σ_u w_u·r·E[x] per item, in the precision of the weights."""
        w = weights[:, None]
        moments, means = (np.ascontiguousarray(x * w, dtype=w.dtype) for x in (self.found.moments, self.found.states))
        by_item = self.by_item
        sums, targets = moment_sums(by_item.indptr, by_item.users, self.v[by_item.entries], moments, means)
        return {"moments": sums, "targets": targets}

    def totals(self, present: np.ndarray | None) -> dict[str, np.ndarray]:
        """All sums, of those who take part, without any bound."""
        here = np.ones(len(self.history.counts)) if present is None else np.asarray(present, dtype=np.float64)
        return {**self.item_sums((here / self.found.noise).astype(np.float32)), **self.about_priors(here)}


def empty_joint(form: Bayesian) -> np.ndarray:
    """E[h·hᵀ] of a user without ratings: f = (1, 0, …), z the prior's own; public."""
    K = len(form.precision)
    features = form.features(np.zeros(1), np.zeros((1, K)))
    total = products(features, features @ form.coefficients.astype(np.float64))
    total[-K:, -K:] += np.linalg.inv(form.precision.astype(np.float64))
    return total


def upper(matrix: np.ndarray) -> np.ndarray:
    """The upper triangle of a symmetric matrix, row by row, off-diagonals times √2: its norm is the Frobenius norm."""
    a, b = np.triu_indices(len(matrix))
    triangle: np.ndarray = matrix[a, b] * np.where(a == b, 1.0, math.sqrt(2))
    return triangle


def square(triangle: np.ndarray, size: int) -> np.ndarray:
    """The symmetric matrix of a plain upper triangle."""
    matrix, (a, b) = np.empty((size, size), dtype=np.float64), np.triu_indices(size)
    matrix[a, b] = matrix[b, a] = triangle
    return matrix


def users_joint(blocks: Mapping[str, np.ndarray], form: Bayesian, users: int) -> np.ndarray:
    """J of all users of the roster, from the sum of what they added."""
    empty = empty_joint(form)
    a, b = np.triu_indices(len(empty))
    return square(blocks["joint"] * np.where(a == b, 1.0, math.sqrt(0.5)), len(empty)) + users * empty


def noise_prior(sums: np.ndarray) -> tuple[float, float]:
    """σ² and how many ratings' worth of it a user starts with, from the four sums, by moments.

    A user's mean squared error varies by 2σ⁴/n_u around σ²_u; what it varies by beyond that is 2σ⁴/doubt.
    """
    users, ratings, errors, squares = sums[0], sums[1] * SOME, sums[2] * SOME, sums[3] * SOME
    noise = max(errors / max(ratings, 1.0), 0.01)
    excess = (squares / noise**2 - 2 * errors / noise + ratings - 2 * users) / max(ratings, 1.0)
    return float(noise), float(np.clip(2 / max(excess, 1e-3), 1.0, 1000.0))


def from_middle(values: np.ndarray, scale: Scale) -> np.ndarray:
    """Ratings, cut to the scale, as quarters of it from its middle: −2 … 2."""
    return (np.clip(values, scale.low, scale.high) - (scale.low + scale.high) / 2) / (scale.span / 4)
