"""`World`: synthetic ratings together with what made them, so that the right answer is known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit.data.ratings import Feedback, Ratings, Scale

BLOCK = 1 << 20  # pairs worked on at a time


@dataclass(frozen=True, eq=False)
class World:
    """Ratings, and what made them. Users and items are rows and columns here, not ids.

    Attributes
    ----------
    ratings : Ratings
    mean : μ
    user_biases, item_biases : b (n,), c (m,) float64; for implicit feedback b = 0 and c is log popularity
    user_factors, item_factors : p (n, rank), q (m, rank) float64
    popularity : (m,) float64, sums to 1
    noise : standard deviation before rounding; 0 where the kind of feedback brings its own randomness
    step : distance of neighbouring ratings
    """

    ratings: Ratings
    mean: float
    user_biases: np.ndarray
    item_biases: np.ndarray
    user_factors: np.ndarray
    item_factors: np.ndarray
    popularity: np.ndarray
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
        """The expected rating of every pair, float64; the two arguments are broadcast.

        Explicit: exact, with noise, rounding and the scale's ends; no predictor has a lower squared error.
        Count: the expected count of a pair that has one. Implicit: the probability of the pair, but for the
        slight dependence that a fixed number of items per user brings.
        """
        return self._moments(users, items)[0]

    @cached_property
    def irreducible_mse(self) -> float:
        """The expected squared error of `truth`: over the rated pairs; for implicit feedback over all."""
        r = self.ratings
        if r.feedback is not Feedback.IMPLICIT:
            return float(self._moments(r.users, r.items)[1].mean())
        height = max(1, BLOCK // r.n_items)
        blocks = (np.arange(a, min(a + height, r.n_users)) for a in range(0, r.n_users, height))
        total = sum(float(self._moments(rows[:, None], np.arange(r.n_items))[1].sum()) for rows in blocks)
        return total / (r.n_users * r.n_items)

    def _moments(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        """Mean and variance of the rating of every pair."""
        s = self.score(users, items)
        if self.ratings.feedback is Feedback.EXPLICIT:
            return self._rounded_moments(s)
        if self.ratings.feedback is Feedback.COUNT:
            rate = count_rate(s, self.ratings.scale)
            mean = rate / -np.expm1(-rate)
            return mean, mean * (1 + rate - mean)
        rows, which = np.unique(np.broadcast_arrays(users, items)[0], return_inverse=True)
        p = -np.expm1(-self._race_times(rows)[which.reshape(s.shape)] * np.exp(s))
        return p, p * (1 - p)

    def _rounded_moments(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """With N the number of cuts below s + noise: E N = Σ_j P(N ≥ j), E N² = Σ_j (2j − 1)·P(N ≥ j)."""
        from scipy.special import ndtr

        scale, first, second = self.ratings.scale, np.zeros(s.shape), np.zeros(s.shape)
        for j in range(1, round(scale.span / self.step) + 1):
            above = s - (scale.low + (j - 0.5) * self.step)
            p = ndtr(above / self.noise) if self.noise > 0 else (above > 0).astype(np.float64)
            first += p
            second += (2 * j - 1) * p
        return scale.low + self.step * first, self.step**2 * (second - first**2)

    def _race_times(self, users: np.ndarray) -> np.ndarray:
        """t_u with Σ_i (1 − exp(−t_u·exp s_ui)) = k_u: when a race of k_u winners is over. Like `users`."""
        m, times = self.ratings.n_items, np.empty(len(users))
        height = max(1, BLOCK // m)
        for start in range(0, len(users), height):
            part = slice(start, start + height)
            rate = np.exp(self.score(users[part, None], np.arange(m)))
            k = self.ratings.counts[users[part]]
            wanted = np.where(k < m, k, 0.5 * m)  # a race that all items win is never over
            t = wanted / rate.sum(axis=1)
            for _ in range(100):  # Newton's way from the left is monotone, the sum being concave in t
                left = np.exp(-t[:, None] * rate)
                change = (wanted - (m - left.sum(axis=1))) / (rate * left).sum(axis=1)
                t += change
                if np.all(np.abs(change) <= 1e-10 * t):
                    break
            times[part] = np.where(k < m, t, np.inf)
        return times


def count_rate(s: np.ndarray, scale: Scale) -> np.ndarray:
    """A count's Poisson rate, kept so far below the scale's top that a draw hardly ever meets it."""
    return np.exp(np.minimum(s, np.log(scale.high / 4)))
