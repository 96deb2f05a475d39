"""`Tastes`: a number per item plus directions of taste, a prior for tastes from a user's profile, and a ranking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tacit.model.co_occurrence import CoOccurrence, row_sums

#: A profile's mean direction is over the rated items and this many more without any.
EMPTY = 10.0
#: How much a predicted rating weighs among what a user may like, the variance of ratings around it on a scale of four
#: steps, and what part of the scale is not liked. On nested splits (ε = 1, HR@10 of held-out items rated 4 or 5)
#: weights 0, ¼, ½, 1, 2 have .183, .187, .186, .184, .177 on ML-1M and .128, .129, .130, .131, .118 on ML-100K.
LIKED_WEIGHT, LIKED_VARIANCE, NOT_LIKED = 0.5, 0.9, 0.75


@dataclass(frozen=True, eq=False)
class Tastes:
    """r̂_j = base_j + v_j·z, cut to the scale; items are ranked by how likely the user is to choose them.

    A user's taste z is N(Bᵀf, c·I) a priori, where the profile f says how much and what the user rates, whatever the
    ratings; ratings are r̂ with noise of variance s². Both s² and c are the user's own, close to `noise` and 1, by how
    likely they make the user's ratings (`kernels.tastes.posteriors`):

        f = [1, log(1 + n_u), Σ_j v_j/(n_u + 10)]
        z = Bᵀf + ((s²/c)·I + Σ_j v_j·v_jᵀ)⁻¹ Σ_j v_j·(r_j − base_j − v_j·Bᵀf)

    Choices are those of `CoOccurrence`: by popularity, features, and which items occur together. For items that users
    choose and like, the score has ½·log Φ((r̂_j − t)/√.9) more, in quarters of the scale, t three quarters up the scale.

    Attributes
    ----------
    low, high : the ratings' scale
    noise : s² of a typical user
    base : (m,)
    items : V, (m, k)
    prior : B, (2 + k, k)
    popularity : log of how often each item is chosen, up to a constant, (m,); without it items are ranked by rating
    features : (m, d), public; None: everybody gets popular items
    head, pairs : (m,), 1 for items of the head, and (m, r), how these occur together; None: not known
    liked : whether predicted ratings count in the ranking
    """

    low: float
    high: float
    noise: float
    base: np.ndarray
    items: np.ndarray
    prior: np.ndarray
    popularity: np.ndarray | None = None
    features: np.ndarray | None = None
    head: np.ndarray | None = None
    pairs: np.ndarray | None = None
    liked: bool = False

    name: ClassVar[str] = "tastes"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "base": ("items",),
        "items": ("items", "tastes"),
        "prior": ("profile", "tastes"),
        "popularity": ("items",),
        "features": ("items", "features"),
        "head": ("items",),
        "pairs": ("items", "rank"),
    }

    @property
    def width(self) -> int:
        return self._tastes + (0 if self.popularity is None else self.choices.width)

    @property
    def _tastes(self) -> int:
        return self.items.shape[1]

    @cached_property
    def choices(self) -> CoOccurrence:
        """How likely each item is to be chosen."""
        assert self.popularity is not None
        m = len(self.base)
        features = np.zeros((m, 0)) if self.features is None else self.features
        if self.head is None or self.pairs is None:
            return CoOccurrence.of(self.popularity, features, np.zeros(0, dtype=np.int64), np.zeros((0, 0)))
        head = np.flatnonzero(self.head)
        return CoOccurrence.of(self.popularity, features, head, self.pairs[head])

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        left = np.clip(values, self.low, self.high) - self.base[items].astype(np.float64)
        found = np.empty((len(indptr) - 1, self.width), dtype=np.float32)
        found[:, : self._tastes] = tastes(indptr, items, left, self.items, self.prior, self.noise)[0]
        if self.popularity is not None:
            found[:, self._tastes :] = self.choices.fold_in(indptr, items, values)
        return found

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray | None:
        from tacit.kernels.predict import predict_pairs

        own = predict_pairs(np.ascontiguousarray(states[:, : self._tastes]), self.items, users, items)
        return np.clip(own + self.base[items], self.low, self.high)

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        if self.popularity is None:
            return self._rated(states, users)
        scores = self.choices.rank(states[:, self._tastes :], users)
        if self.liked:
            from scipy.special import log_ndtr

            span = self.high - self.low
            above = (self._rated(states, users) - self.low - NOT_LIKED * span) / (LIKED_VARIANCE**0.5 * span / 4)
            scores += np.float32(LIKED_WEIGHT) * log_ndtr(above)
        return scores

    def _rated(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        return np.clip(states[users, : self._tastes] @ self.items.T + self.base, self.low, self.high)


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
