"""Factors: how many there are, where they start, how step sizes decay, and users' factors fitted at home.

Starts and step sizes depend on public quantities and the seed alone.
"""

import math

import numpy as np
from pydantic import Field

from tacit.data.ratings import Ratings
from tacit.federation import Facts
from tacit.kernels.embed import embed
from tacit.kernels.users import user_descent
from tacit.methods.method import Parameters
from tacit.model import NonNegative
from tacit.rng import derive


class FactorParameters(Parameters):
    """The parameters of every method with two blocks of factors begin with p, the columns of both."""

    factors: int = Field(default=20, ge=1, le=1024)

    @property
    def dimensions(self) -> dict[str, int]:
        return {"factors": self.factors}


def start_factors(facts: Facts, rows: int, factors: int, *purpose: str) -> np.ndarray:
    """Non-negative factors whose products start near the middle of the scale; (rows, factors) float32.

    Entries are uniform on [0, 2a] with factors·a² = 0.6·R, then projected.
    """
    a = math.sqrt(0.6 * facts.scale.span / factors)
    uniform = derive(facts.seed, "start", *purpose).random((rows, factors), dtype=np.float32)
    return embed(uniform * np.float32(2 * a), facts.scale.span)


def nonnegative(facts: Facts, V: np.ndarray) -> NonNegative:
    """The form of a model over item factors that Π keeps non-negative and short."""
    return NonNegative(facts.scale.low, facts.scale.high, V)


def linear_decay(steps: int, last: float) -> np.ndarray:
    """From 1 linearly to `last` over 80 % of the steps, then constant (P0, §4.3); (steps,) float64.

    >>> linear_decay(10, 0.2)[[0, 4, 8, 9]].round(2).tolist()
    [1.0, 0.6, 0.2, 0.2]
    """
    return 1 - (1 - last) * np.minimum(1.0, np.arange(steps) / (0.8 * steps))


def fitted_users(ratings: Ratings, users: np.ndarray, V: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
    """`users` (n, p) with `steps` more steps for `rows`, each user on their own ratings alone; a new array."""
    columns, scale = (ratings.indptr, ratings.items, ratings.values), ratings.scale
    return user_descent(*columns, scale.low, rows, users.copy(), V, scale.span, steps)
