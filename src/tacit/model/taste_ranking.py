"""`TasteRanking`: popularity, tilted by a user's own taste along public directions of the items.

A user meets items with probability P(i|u) ∝ d_i·exp(θ_u·x_i). With p = d/Σd, x centred by p and C = Σ_i p_i·x_i·x_iᵀ,
one Newton step from θ = 0 under the prior θ ~ N(0, τ·I) gives

    θ_u = (n_u·C + I/τ)⁻¹ Σ_{i∈u} x_i,      score = log d + X·θ_u

How strong tastes are differs between sets and users. So θ_u is averaged over a few τ, by how likely each makes the mean
of the user's own items, which is about N(0, C/n_u + τ·C²). Directions are turned so that C is diagonal.

It needs the user's own items and nothing that is not in the model already: no ratings, and no further release. Without
directions (k = 0) it is popularity.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

#: The τ that are averaged over, for directions scaled to Σ p·|x|² = 1, and how many directions there are at most.
#: Chosen at ε = 1 on nested leave-one-out splits of training parts and synthetic worlds. HR@10, one τ = .1, .2, .3, .5:
#: .141, .148, .148, .144 on ml-1m, .114, .119, .121, .124 on ml-100k; averaged up to .3, up to 3: .147, .123 on ml-1m.
#: Where tastes are weak (demo, 4,000 users): popularity .071, τ = .3 .059, averaged .071. With 10, 20, 40 directions:
#: .130, .146, .148 on ml-1m.
TASTES, MOST = (0.003, 0.01, 0.03, 0.1, 0.3), 40
#: A direction along which popular items differ less than this is left out.
TINY = 1e-9


@dataclass(frozen=True, eq=False)
class TasteRanking:
    """What all users share. A form that ranks so keeps the three arrays among its own (`arrays` has their dimensions).

    Its `fold_in` puts `tastes` into the user's state, and its `rank` adds up `scores` from there.

    Attributes
    ----------
    popularity : log d, (m,) float32
    directions : X, (m, k) float32
    spread : c, (k,) float32
    """

    popularity: np.ndarray
    directions: np.ndarray
    spread: np.ndarray

    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "popularity": ("items",),
        "directions": ("items", "tastes"),
        "spread": ("tastes",),
    }

    @classmethod
    def of(cls, counts: np.ndarray, log_counts: np.ndarray, components: np.ndarray) -> TasteRanking:
        """From counts d > 0 and log d of all items and the main directions of their features; all (m, …)."""
        p, given = counts / counts.sum(dtype=np.float64), components.astype(np.float64)
        x = given - p @ given
        total = float(p @ (x**2).sum(axis=1))
        x = x / np.sqrt(total) if total > TINY * float(p @ (given**2).sum(axis=1)) else x[:, :0]
        c, turn = np.linalg.eigh((x * p[:, None]).T @ x)
        arrays = (log_counts, x @ turn[:, c > TINY], c[c > TINY])
        return cls(*(np.ascontiguousarray(array, dtype=np.float32) for array in arrays))

    def tastes(self, indptr: np.ndarray, items: np.ndarray) -> np.ndarray:
        """θ of each user from the user's own items, in compressed rows; (n, k) float32, 0 without items."""
        from scipy.sparse import csr_array

        n, c = np.maximum(np.diff(indptr), 1)[:, None], self.spread.astype(np.float64)
        ones = csr_array((np.ones(len(items), dtype=np.float32), items, indptr), shape=(len(n), len(self.directions)))
        mean = (ones @ self.directions) / n
        odds = np.empty((len(n), len(TASTES)))
        for place, tau in enumerate(TASTES):
            variance = c / n + tau * c**2
            odds[:, place] = -0.5 * (np.log(variance) + mean**2 / variance).sum(axis=1)
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        weights = sum(odds[:, [place]] / (c + 1 / (n * tau)) for place, tau in enumerate(TASTES))
        return (mean * weights).astype(np.float32)

    def scores(self, tastes: np.ndarray) -> np.ndarray:
        """log d + X·θ, one row per user; (n, m) float32."""
        return self.popularity + tastes @ self.directions.T
