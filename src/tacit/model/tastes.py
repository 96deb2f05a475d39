"""`Tastes`: a number per item plus directions of taste, a prior for tastes from a user's profile, and a ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

#: A profile's mean direction is over the rated items and this many more without any.
EMPTY = 10.0
#: The prior variance of a user's preference among item features, in the ranking.
PREFERENCE = 0.3


@dataclass(frozen=True, eq=False)
class Tastes:
    """r̂_j = base_j + v_j·z, cut to the scale; items are ranked by how likely the user is to choose them.

    A user's taste z is N(Bᵀf, c·I) a priori, where the profile f says how much and what the user rates, whatever the
    ratings; ratings are r̂ with noise of variance s². Both s² and c are the user's own, close to `noise` and 1, by how
    likely they make the user's ratings (`kernels.tastes.posteriors`):

        f = [1, log(1 + n_u), Σ_j v_j/(n_u + 10)]
        z = Bᵀf + ((s²/c)·I + Σ_j v_j·v_jᵀ)⁻¹ Σ_j v_j·(r_j − base_j − v_j·Bᵀf)

    Choices are P(j | u) ∝ exp(popularity_j + x_j·θ_u), with x_j an item's features centred by popularity, in axes along
    which they are uncorrelated and have the variance λ: θ_u = Σ_j x_j/(n_u·λ + 1/.3) over the rated items.

    Attributes
    ----------
    low, high : the ratings' scale
    noise : s² of a typical user
    base : (m,)
    items : V, (m, k)
    prior : B, (2 + k, k)
    popularity : log of how often each item is chosen, up to a constant, (m,); without it items are ranked by rating
    features : x, (m, d); None: everybody gets popular items
    """

    low: float
    high: float
    noise: float
    base: np.ndarray
    items: np.ndarray
    prior: np.ndarray
    popularity: np.ndarray | None = None
    features: np.ndarray | None = None

    name: ClassVar[str] = "tastes"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "base": ("items",),
        "items": ("items", "tastes"),
        "prior": ("profile", "tastes"),
        "popularity": ("items",),
        "features": ("items", "features"),
    }

    @property
    def width(self) -> int:
        return self._tastes + self._looks

    @property
    def _tastes(self) -> int:
        return self.items.shape[1]

    @property
    def _looks(self) -> int:
        return 0 if self.popularity is None or self.features is None else self.features.shape[1]

    @cached_property
    def _variances(self) -> np.ndarray:
        """λ, (d,)."""
        assert self.features is not None
        assert self.popularity is not None
        chosen = np.exp(self.popularity.astype(np.float64) - self.popularity.max())
        return (chosen / chosen.sum()) @ np.square(self.features.astype(np.float64))

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        left = np.clip(values, self.low, self.high) - self.base[items].astype(np.float64)
        found = np.empty((len(indptr) - 1, self.width), dtype=np.float32)
        found[:, : self._tastes] = tastes(indptr, items, left, self.items, self.prior, self.noise)[0]
        if self.features is not None and self._looks:
            sums, counts = row_sums(indptr, items, self.features), np.diff(indptr)[:, None]
            found[:, self._tastes :] = sums / (counts * self._variances + 1 / PREFERENCE)
        return found

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray | None:
        from tacit.kernels.predict import predict_pairs

        own = predict_pairs(np.ascontiguousarray(states[:, : self._tastes]), self.items, users, items)
        return np.clip(own + self.base[items], self.low, self.high)

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        if self.popularity is None:
            rated = states[users, : self._tastes] @ self.items.T + self.base
            return np.clip(rated, self.low, self.high)
        own = states[users, self._tastes :] @ self.features.T if self.features is not None and self._looks else 0.0
        return np.broadcast_to(self.popularity + own, (len(users), len(self.popularity)))


def tastes(
    indptr: np.ndarray,
    items: np.ndarray,
    left: np.ndarray,
    factors: np.ndarray,
    prior: np.ndarray,
    noise: float,
    directions: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posteriors of every user's taste from ratings less base: mean (n, k), prior mean (n, k), and (n, k, q).

    The last is the posterior covariance times `directions` (k, q). All float64, by the equations in `Tastes`.
    """
    from tacit.kernels.tastes import explained, posteriors

    factors = np.asarray(factors, dtype=np.float64)
    expected = np.zeros((len(indptr) - 1, factors.shape[1]))
    if prior.any():
        expected = profiles(indptr, items, factors) @ prior.astype(np.float64)
        left = left - explained(indptr, items, factors, expected)
    means, spreads = posteriors(indptr, items, left, factors, noise, directions)
    return means + expected, expected, spreads


def profiles(indptr: np.ndarray, items: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """f of every user, (n, 2 + k) float64; a user without ratings has [1, 0, …, 0]."""
    counts = np.diff(indptr)
    centroid = row_sums(indptr, items, factors) / (counts + EMPTY)[:, None]
    return np.column_stack([np.ones(len(counts)), np.log1p(counts), centroid])


def row_sums(indptr: np.ndarray, items: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Σ_j factors_j over each row's items, (n, k) float64."""
    from scipy.sparse import csr_array

    shape = (len(indptr) - 1, len(factors))
    return csr_array((np.ones(len(items)), items, indptr), shape=shape) @ factors.astype(np.float64)
