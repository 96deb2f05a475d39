"""`CoOccurrence`: popularity, a low-rank image of which items occur together, and tastes for public features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

#: The τ that tastes are averaged over, for features scaled to Σ p·‖x‖² = 1. Chosen on nested leave-one-out splits of
#: training parts and on synthetic worlds: no single τ is right for users whose tastes are strong and weak.
PRIORS = (0.003, 0.01, 0.03, 0.1, 0.3)
#: The part of popularity that no item of the head falls below. On a nested leave-one-out split of ML-1M at ε = 4, HR@10
#: over all items and among 99: with this, the tail's full popularity and tastes .176 and .738; with .1, and halves of
#: both in the tail, .175 and .681; at ε = 1 .150 and .710, .143 and .669.
FLOOR = 0.5


@dataclass(frozen=True, eq=False)
class CoOccurrence:
    """score_j = log max(f_j·Σ_i f_i, (c + 1)·floor_j) + w_j·x_j·θ,   i over the items that the user took

    w_j is `weight` in the head, where f says some of what tastes do, and 1 elsewhere. c is how many of these are in the
    head. θ says how far the user's items lie from what is popular, along features: if items are chosen as
    P(j) ∝ p_j·exp(x_j·θ) and θ ~ N(0, τ·I), then one Newton step from θ = 0 gives

        θ = Σ_i x_i/(n·λ + 1/τ),   n the number of the user's items, λ = Σ_j p_j·x_j²

    since the x are uncorrelated under p and have mean 0. θ is averaged over τ by how likely each makes the mean of the
    user's items, which is about N(0, λ/n + τ·λ²).

    A user's state is (Σ f_i, c, θ). Without factors it ranks by popularity and tastes; without tastes too, it is the
    same for everyone. It only ranks.

    Attributes
    ----------
    head : (m,), 1 for the items of the head and 0 for all others
    factors : f, (m, r), 0 outside the head
    floor : (m,) above 0, from popularity
    tastes : x, (m, t), public features
    spread : λ, (t,), how x varies over popular items
    weight : of tastes in the head
    """

    head: np.ndarray
    factors: np.ndarray
    floor: np.ndarray
    tastes: np.ndarray
    spread: np.ndarray
    weight: float = 0.5

    name: ClassVar[str] = "co-occurrence"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "head": ("items",),
        "factors": ("items", "rank"),
        "floor": ("items",),
        "tastes": ("items", "features"),
        "spread": ("features",),
    }

    @classmethod
    def of(cls, popularity: np.ndarray, features: np.ndarray, head: np.ndarray, factors: np.ndarray) -> CoOccurrence:
        """From log counts (m,), public features (m, d), the rows of the head (K,) and their factors (K, r)."""
        log = np.asarray(popularity, dtype=np.float64)
        p = np.exp(log - log.max())
        p /= p.sum()
        x, spread = centred_tastes(features, p)
        m, rank = len(p), factors.shape[1]
        f, inside = np.zeros((m, rank)), np.zeros(m)
        if rank:
            f[head], inside[head] = factors, 1
        floor = p * np.where(inside > 0, FLOOR, 1.0)
        made = [np.ascontiguousarray(a, dtype=np.float32) for a in (inside, f, np.maximum(floor, 1e-30), x, spread)]
        return cls(made[0], made[1], made[2], made[3], made[4])

    @property
    def width(self) -> int:
        return self.factors.shape[1] + 1 + self.tastes.shape[1]

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        r = self.factors.shape[1]
        found = row_sums(indptr, items, np.column_stack([self.factors, self.head, self.tastes]))
        found[:, r + 1 :] = preferences(found[:, r + 1 :], np.diff(indptr), self.spread)
        return found.astype(np.float32)

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> None:
        return None

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        r, mine = self.factors.shape[1], states[users]
        scores = np.maximum(mine[:, :r] @ self.factors.T, (mine[:, r : r + 1] + 1) * self.floor)
        np.log(scores, out=scores)
        scores += (1 - np.float32(1 - self.weight) * self.head) * (mine[:, r + 1 :] @ self.tastes.T)
        return scores


def centred_tastes(features: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x and λ: features in axes along which they are uncorrelated under popularity p, strongest first.

    x is (m, t) with mean 0 and Σ p·‖x‖² = 1, and λ (t,) its variances. Directions without variance are left out.
    """
    A = np.asarray(features, dtype=np.float64)
    A = A - p @ A
    sizes, axes = np.linalg.eigh((A * p[:, None]).T @ A)
    kept = np.flatnonzero(sizes > 1e-6 * max(float(sizes.max(initial=0)), 1e-12))[::-1]
    total = max(float(sizes[kept].sum()), 1e-12)
    return A @ axes[:, kept] / math.sqrt(total), sizes[kept] / total


def preferences(sums: np.ndarray, counts: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """θ of every user by the equation in `CoOccurrence`, from Σ_i x_i (n, t) and how many items there are (n,)."""
    n, c = np.maximum(counts, 1)[:, None], np.maximum(spread.astype(np.float64), 1e-12)
    mean, odds = sums / n, np.empty((len(counts), len(PRIORS)))
    for place, tau in enumerate(PRIORS):
        variance = c / n + tau * c**2
        odds[:, place] = -0.5 * (np.log(variance) + mean**2 / variance).sum(axis=1)
    odds = np.exp(odds - odds.max(axis=1, keepdims=True))
    odds /= odds.sum(axis=1, keepdims=True)
    gains = [odds[:, [place]] / (c + 1 / (n * tau)) for place, tau in enumerate(PRIORS)]
    found: np.ndarray = mean * np.sum(gains, axis=0)
    return found


def row_sums(indptr: np.ndarray, items: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Σ_j factors_j over each row's items, (n, k) float64; 0 for an empty one."""
    from scipy.sparse import csr_array

    shape = (len(indptr) - 1, len(factors))
    return csr_array((np.ones(len(items)), items, indptr), shape=shape) @ factors.astype(np.float64)
