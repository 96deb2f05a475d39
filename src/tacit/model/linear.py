"""`Linear`: a number per item plus its factors times a user's state, with a Gaussian prior for the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.data.ratings import Scale


@dataclass(frozen=True, eq=False)
class Linear:
    """r̂_j = base_j + v_j·z, cut to the scale.

    A user's state z is N(mean, Λ⁻¹) a priori, and the user's ratings are r̂_j with noise of variance 1:

        z = mean + (Λ + Σ_j v_j·v_jᵀ)⁻¹ Σ_j v_j·(r_j − base_j − v_j·mean)   over the rated items

    With v_j = 1 it is a level per user and a bias per item; without factors it is the same for everyone.

    Attributes
    ----------
    low, high : the ratings' scale
    base : (m,)
    items : V, (m, k)
    mean, precision : (k,) and Λ, (k, k)
    order : (m,), or None. Items are ranked by their ratings; if given, by order_j + personal·(v_j·z) instead
    personal : the weight of a user's own state in a given order
    rates : False where base_j + v_j·z is not a rating: it is not cut to the scale, and only ranks
    """

    low: float
    high: float
    base: np.ndarray
    items: np.ndarray
    mean: np.ndarray
    precision: np.ndarray
    order: np.ndarray | None = None
    personal: float = 0.0
    rates: bool = True

    name: ClassVar[str] = "linear"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "base": ("items",),
        "items": ("items", "factors"),
        "mean": ("factors",),
        "precision": ("factors", "factors"),
        "order": ("items",),
    }

    @classmethod
    def scores(cls, values: np.ndarray, scale: Scale, rates: bool = True) -> Linear:
        """The same for everyone: k = 0."""
        none = np.zeros((len(values), 0), dtype=np.float32)
        return cls(scale.low, scale.high, values, none, none.sum(axis=0), none.T @ none, rates=rates)

    @classmethod
    def levels(cls, biases: np.ndarray, scale: Scale, shrinkage: float, mean: float | None = None) -> Linear:
        """A level per user plus a bias per item: k = 1, v = 1.

        A level is the mean of the user's ratings minus biases, with `shrinkage` more ratings of `mean`, by default the
        middle of the scale.
        """
        mean = scale.low + scale.span / 2 if mean is None else mean
        ones, numbers = np.ones((len(biases), 1), dtype=np.float32), np.array([mean, shrinkage], dtype=np.float32)
        return cls(scale.low, scale.high, biases, ones, numbers[:1], numbers[None, 1:])

    @classmethod
    def factors(cls, items: np.ndarray, scale: Scale) -> Linear:
        """low + u·v with unbounded factors; an unknown user's prior mean predicts the middle of the scale."""
        m, k = items.shape
        base, mean = np.full(m, scale.low, dtype=np.float32), flat_state(items, scale.span / 2).astype(np.float32)
        return cls(scale.low, scale.high, base, items, mean, np.eye(k, dtype=np.float32))

    @property
    def width(self) -> int:
        return self.items.shape[1]

    def fold_in(self, indptr: np.ndarray, items: np.ndarray, values: np.ndarray) -> np.ndarray:
        from tacit.kernels.ridge import ridge

        expected = self.base + self.items.astype(np.float64) @ self.mean
        left = np.clip(values, self.low, self.high) - expected[items]
        found = self.mean + ridge(indptr, items, left, np.ones(len(left)), self.items, self.precision)
        return found.astype(np.float32)

    def rate(self, states: np.ndarray, users: np.ndarray, items: np.ndarray) -> np.ndarray | None:
        from tacit.kernels.predict import predict_pairs

        if not self.rates:
            return None
        return np.clip(predict_pairs(states, self.items, users, items) + self.base[items], self.low, self.high)

    def rank(self, states: np.ndarray, users: np.ndarray) -> np.ndarray:
        if self.order is not None:
            own = np.float32(self.personal) * (states[users] @ self.items.T) if self.personal else 0.0
            return np.broadcast_to(self.order + own, (len(users), len(self.order)))
        if not self.width:
            base = np.clip(self.base, self.low, self.high) if self.rates else self.base
            return np.broadcast_to(base, (len(users), len(base)))
        scores = states[users] @ self.items.T + self.base
        return np.clip(scores, self.low, self.high) if self.rates else scores


def flat_state(items: np.ndarray, target: float) -> np.ndarray:
    """A state of equal entries with which u·v is `target` on average over items; zeros where none is positive."""
    reach = float(items.sum(axis=1).mean()) if len(items) else 0.0
    return np.full(items.shape[1], target / reach if reach > 0 else 0.0)
