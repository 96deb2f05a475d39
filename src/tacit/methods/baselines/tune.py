"""What a silo learns for itself from all of its own ratings, once something was shared. None of it leaves."""

from __future__ import annotations

import math

import numpy as np

from tacit.data.ratings import Ratings
from tacit.kernels.embed import embed
from tacit.kernels.users import user_descent
from tacit.methods.baselines.descent import DescentParameters, descend

#: Steps of each user on her own factors before both blocks are tuned.
FITTING = 30
#: How far the factors that biases say nothing of may start from 0.
SPREAD = 0.05


def tuned(
    ratings: Ratings, start: tuple[np.ndarray, np.ndarray], passes: int, stream: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Both blocks, U and V, after some passes of plain SGD over the ratings; `start` stays as it is."""
    U, V = start[0].copy(), start[1].copy()
    parameters = DescentParameters(factors=U.shape[1], epochs=passes)
    for _epoch in descend(ratings.users, ratings.items, ratings.values, ratings.scale, (U, V), parameters, stream):
        pass
    return U, V


def from_biases(
    ratings: Ratings, biases: np.ndarray, factors: int, stream: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Factors that begin as biases: v_j = (√R/2, b_j + R/4, next to nothing …), and users fitted to them.

    The first column carries a user's level and the second her trust in the biases; the others are there to be tuned.
    """
    span = ratings.scale.span
    V = (SPREAD * stream.random((len(biases), factors))).astype(np.float32)
    V[:, 0] = math.sqrt(span) / 2
    V[:, 1] = np.maximum(biases + span / 4, 0)
    V = embed(V, span)
    U = np.full((ratings.n_users, factors), SPREAD / 2, dtype=np.float32)
    U[:, :2] = math.sqrt(span) / 2
    everybody, low = np.arange(ratings.n_users), ratings.scale.low
    return user_descent(ratings.indptr, ratings.items, ratings.values, low, everybody, U, V, span, FITTING), V
