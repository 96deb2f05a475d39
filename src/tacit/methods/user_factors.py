"""Users' factors fitted at home to item factors: each user on her own ratings, and on nobody else's."""

from __future__ import annotations

import numpy as np

from tacit.data.ratings import Ratings
from tacit.kernels.users import user_descent


def fitted_users(ratings: Ratings, users: np.ndarray, V: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
    """`users` (n, p) with `steps` more steps for `rows`; a new array."""
    scale = ratings.scale
    return user_descent(
        ratings.indptr, ratings.items, ratings.values, scale.low, rows, users.copy(), V, scale.span, steps
    )
