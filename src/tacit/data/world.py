"""`World`: synthetic ratings together with what made them, so that the right answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.data.ratings import Feedback, Ratings, Scale

BLOCK = 1 << 20  # pairs worked on at a time


@dataclass(frozen=True, eq=False)
class World:
    """Ratings, and what made them. Users and items are rows and columns here, not ids.

    Attributes
    ----------
    mean : μ
    user_biases, item_biases : b (n,), c (m,) float64; for implicit feedback b = 0 and c is log popularity
    user_factors, item_factors : p (n, rank), q (m, rank) float64
    noise : standard deviation before rounding; 0 for implicit feedback and counts
    step : distance of neighbouring ratings
    """

    ratings: Ratings
    mean: float
    user_biases: np.ndarray
    item_biases: np.ndarray
    user_factors: np.ndarray
    item_factors: np.ndarray
    noise: float
    step: float

    def score(self, users: Any, items: Any) -> np.ndarray:
        """s = μ + b_u + c_i + ⟨p_u, q_i⟩ of every pair, float64; the two arguments are broadcast."""
        users, items = np.broadcast_arrays(users, items)
        u, i = users.ravel(), items.ravel()
        s = np.empty(len(u))
        for start in range(0, len(u), BLOCK):
            part = slice(start, start + BLOCK)
            s[part] = np.einsum("kf,kf->k", self.user_factors[u[part]], self.item_factors[i[part]])
            s[part] += self.mean + self.user_biases[u[part]] + self.item_biases[i[part]]
        return s.reshape(users.shape)

    def truth(self, users: Any, items: Any) -> np.ndarray:
        """The expected explicit rating, or count, of every pair, float64; no predictor has a lower squared error."""
        return self._moments(users, items)[0]

    @property
    def irreducible_mse(self) -> float:
        """The expected squared error of `truth` over the rated pairs."""
        return float(self._moments(self.ratings.users, self.ratings.items)[1].mean())

    def _moments(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the rating of every pair, with noise, rounding and the scale's ends.

        With N the number of cuts below s + noise: E N = Σ_j P(N ≥ j), E N² = Σ_j (2j − 1)·P(N ≥ j).
        """
        from scipy.special import ndtr

        s, scale = self.score(users, items), self.ratings.scale
        if self.ratings.feedback is Feedback.COUNT:
            rate = count_rate(s, scale)
            mean = rate / -np.expm1(-rate)
            return mean, mean * (1 + rate - mean)
        first, second = np.zeros(s.shape), np.zeros(s.shape)
        for j in range(1, round(scale.span / self.step) + 1):
            above = s - (scale.low + (j - 0.5) * self.step)
            p = ndtr(above / self.noise) if self.noise > 0 else (above > 0).astype(np.float64)
            first += p
            second += (2 * j - 1) * p
        return scale.low + self.step * first, self.step**2 * (second - first**2)


def count_rate(s: np.ndarray, scale: Scale) -> np.ndarray:
    """A count's Poisson rate, so far below the scale's top that a draw hardly ever meets it."""
    return np.exp(np.minimum(s, np.log(scale.high / 4)))
