"""The query behind every SGDMF step without privacy: gradients of the squared error over sampled users (P0, §3.1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tacit.boundary import Unbounded
from tacit.boundary.query import Blocks
from tacit.data.ratings import Ratings
from tacit.kernels.gradient import factor_gradients

#: Blocks that a state does not bring, or how a party makes them at home from the state.
At = Blocks | Callable[[Blocks], Blocks] | None


def factor_gradient(ratings: Ratings, sampling: float) -> Unbounded:
    """Both blocks' gradient sums over a Poisson sample of users.

    Answers at {"users": U, "items": V} with blocks of the same names and shapes. It claims no sensitivity.
    """

    def answer(state: Blocks, stream: np.random.Generator) -> dict[str, np.ndarray]:
        rows = np.flatnonzero(stream.random(ratings.n_users) < sampling)
        by_user, by_item = factor_gradients(
            ratings.indptr,
            ratings.items,
            ratings.values,
            ratings.scale.low,
            rows,
            state["users"],
            state["items"],
        )
        return {"users": by_user, "items": by_item}

    return Unbounded(answer)
