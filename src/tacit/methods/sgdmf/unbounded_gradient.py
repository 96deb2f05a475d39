"""Queries of SGDMF without privacy: gradients of the squared error that bound nothing (P0, §3.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tacit.boundary.query import Blocks, Query, Unbounded, UnboundedAnswer
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings, Scale
from tacit.guarantee import Relation, Unit
from tacit.kernels.squared_error import factor_gradients


@dataclass(frozen=True)
class FactorGradient(Query):
    """Both blocks' gradient sums over a Poisson sample of users; it claims no sensitivity.

    Answers at {"users": U, "items": V} with blocks of the same names and shapes.
    """

    scale: Scale
    sampling: float = 1.0

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, ratings: Ratings, at: Blocks | None = None, present: Array | None = None) -> UnboundedAnswer:
        def answer(state: Blocks, stream: np.random.Generator) -> dict[str, np.ndarray]:
            rows = np.flatnonzero(stream.random(ratings.n_users) < self.sampling)
            by_user, by_item = factor_gradients(
                ratings.indptr, ratings.items, ratings.values, self.scale.low, rows, state["users"], state["items"]
            )
            return {"users": by_user, "items": by_item}

        return Unbounded().over(answer)


@dataclass(frozen=True)
class DeviceGradient(Query):
    """The item gradient of those that take part, each at its own factors; it claims no sensitivity.

    An entry of what one device adds is at most 2R·√R: |u·v − r| ≤ R where Π keeps both factors short, and |u_f| ≤ √R.
    """

    scale: Scale

    @property
    def largest(self) -> float:
        return 2 * self.scale.span**1.5

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, ratings: Ratings, users: Array, items: Array, present: Array | None = None) -> UnboundedAnswer:
        rows = np.arange(ratings.n_users) if present is None else np.flatnonzero(present)

        def answer(state: Blocks, stream: np.random.Generator) -> dict[str, np.ndarray]:
            columns = ratings.indptr, ratings.items, ratings.values
            _, by_item = factor_gradients(*columns, self.scale.low, rows, users, items)
            return {"items": by_item}

        return Unbounded().over(answer)
