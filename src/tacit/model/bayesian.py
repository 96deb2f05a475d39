"""`Bayesian`: factors with posterior means and covariances, a prior from a user's own items, and noise per user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

#: Times that a new user's noise and factors are fitted to each other.
PASSES = 4
#: What factors that overflow are taken for; only a model that no training finds makes them.
HUGE = 1e12
#: The smallest σ²_u, in squared quarters of the scale: 1/σ² is then at most 100.
LEAST_NOISE = 0.01


@dataclass(frozen=True, eq=False)
class History:
    """What the ratings of n users say about them.

    Attributes
    ----------
    counts, squares : n_u and Σ r²; (n,)
    sums, targets : Σ E[y·yᵀ] in upper triangles and Σ r·E[y] over a user's items
    features : f_u, (n, k + 3)
    """

    counts: np.ndarray
    squares: np.ndarray
    sums: np.ndarray
    targets: np.ndarray
    features: np.ndarray


@dataclass(frozen=True, eq=False)
class Posterior:
    """E[x], upper triangles of E[x·xᵀ], σ²_u and E[Σ_i (r − x·y_i)²] of n users."""

    states: np.ndarray
    moments: np.ndarray
    noise: np.ndarray
    errors: np.ndarray


@dataclass(frozen=True, eq=False)
class Bayesian:
    """r = centre + x_u·y_i + N(0, σ²_u) in quarters of the scale, with x_u = (b_u, 1, p_u) and y_i = (1, b_i, q_i).

    A user's (b_u, p_u) is N(Bᵀf_u, Λ⁻¹) a priori, where f_u = [1, log(1 + n_u)/5, Σ_i E(b_i, q_i)/√(n_u + 1)/4] over
    the user's n_u items. Fitted to the user's ratings, with noise of their own,

        precision_u = Σ_i E[y·yᵀ]/σ²_u + Λ,   σ²_u = (doubt·noise + E[Σ_i (r − x_u·y_i)²])/(doubt + n_u)

    A user without ratings has the prior's mean, and so has an item without ratings, by its public features.

    Attributes
    ----------
    low, high : the ratings' scale
    centre : of all ratings, in quarters of the scale from its middle
    noise, doubt : σ², and how many ratings' worth of it each user's own noise starts with
    items : E[y], (m, k + 2)
    moments : upper triangles of E[y·yᵀ], (m, (k + 2)(k + 3)/2)
    coefficients : B, (k + 3, k + 1)
    precision : Λ, (k + 1, k + 1)
    """

    low: float
    high: float
    centre: float
    noise: float
    doubt: float
    items: np.ndarray
    moments: np.ndarray
    coefficients: np.ndarray
    precision: np.ndarray

    name: ClassVar[str] = "bayesian"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "items": ("items", "factors"),
        "moments": ("items", "pairs"),
        "coefficients": ("features", "free"),
        "precision": ("free", "free"),
    }

    @property
    def width(self) -> int:
        return self.items.shape[1]

    @property
    def unit(self) -> float:
        """A quarter of the scale: 1 on MovieLens."""
        return (self.high - self.low) / 4

    def in_units(self, values: np.ndarray) -> np.ndarray:
        """Ratings, cut to the scale, as quarters of it from the centre; float32."""
        middle = (self.low + self.high) / 2
        return ((np.clip(values, self.low, self.high) - middle) / self.unit - self.centre).astype(np.float32)

    def history(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> History:
        """What users' ratings say, in compressed rows, whatever their noise."""
        from tacit.kernels.posteriors import moment_sums

        v, counts, n = self.in_units(values), np.diff(indptr), len(indptr) - 1
        sums, targets = moment_sums(indptr, items, v, self.moments, self.items)
        squares = np.bincount(np.repeat(np.arange(n), counts), weights=np.square(v, dtype=np.float64), minlength=n)
        return History(counts, squares, sums, targets, self.features(counts, sums[:, 1 : self.width]))

    @staticmethod
    def features(counts: np.ndarray, own: np.ndarray) -> np.ndarray:
        """f_u of users with so many ratings, whose items' (b, q) add up to `own`: of the order of 1; (n, k + 3)."""
        n = np.asarray(counts, dtype=np.float64)[:, None]
        return np.concatenate([np.ones_like(n), np.log1p(n) / 5, own / np.sqrt(n + 1) / 4], axis=1)

    def posterior(self, history: History, noise: np.ndarray) -> Posterior:
        """Users' factors given their noise, and then their noise given these factors."""
        from tacit.kernels.posteriors import posteriors

        priors = history.features @ self.coefficients
        found = posteriors(history.sums, history.targets, 1 / noise, 1, priors, self.precision)
        states, moments = (np.clip(np.nan_to_num(x, copy=False), -HUGE, HUGE) for x in found)
        a, b = np.triu_indices(self.width)
        expected = np.einsum("nf,nf->n", states, history.targets, dtype=np.float64)
        twice = np.where(a == b, 1, 2).astype(np.float32)
        products = np.einsum("nf,nf->n", moments * twice, history.sums, dtype=np.float64)
        errors = np.maximum(history.squares - 2 * expected + products, 0)
        own = (self.doubt * self.noise + errors) / (self.doubt + history.counts)
        return Posterior(states, moments, np.maximum(own, LEAST_NOISE), errors)

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self.settled(self.history(indptr, items, values))

    def settled(self, history: History) -> np.ndarray:
        """Users' factors and their noise fitted to each other."""
        noise = np.full(len(history.counts), self.noise)
        for _ in range(PASSES):
            found = self.posterior(history, noise)
            noise = found.noise
        return found.states

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray | None:
        from tacit.kernels.predict import predict_pairs

        return self._on_scale(predict_pairs(states, self.items, users, items))

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        return self._on_scale(states[users] @ self.items.T)

    def of_items(self, columns: np.ndarray) -> Bayesian:
        """The same over some of the items."""
        return replace(self, items=self.items[columns], moments=self.moments[columns])

    def _on_scale(self, scores: np.ndarray) -> np.ndarray:
        middle = (self.low + self.high) / 2 + self.unit * self.centre
        rated: np.ndarray = np.clip(np.float32(middle) + np.float32(self.unit) * scores, self.low, self.high)
        return rated.astype(np.float32)
