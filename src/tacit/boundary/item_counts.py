"""How often each item was taken, rating by rating: what one *rating* adds is bounded, not one user."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    check_ratings,
    item_contributions,
    item_sums,
    on_grid,
    participants,
)
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Contributions


@dataclass(frozen=True)
class RatingCounts(Query):
    """Per item, how many ratings it has, as "counts".

    Guarantee
    ---------
    One block, (m,). Each rating adds 1 to one cell and nothing else depends on it: no weight, mean or division by how
    many the user has. So per rating the sensitivity is 1 under zero-out and add/remove. Under replace one cell loses 1
    and another gains it, √2 in all; 2 is stated, which also holds where both are rounded one by one. Per user it is
    infinite: nothing bounds how many ratings a user has. In floating point a rating adds 1 − 2⁻²⁰, on a grid on which
    sums are exact.

    >>> RatingCounts().sensitivity(Unit.RATING, Relation.ZERO_OUT)
    1.0
    """

    @property
    def clip(self) -> float:
        """Each rating is one contribution."""
        return 1.0

    def nonzero_coordinates(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """One cell."""
        return 1

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        if unit is not Unit.RATING:
            return math.inf
        return 2.0 if relation is Relation.REPLACE else 1.0

    def over(self, ratings: Ratings, present: Array | None = None) -> RatingCountSum:
        return RatingCountSum(self, ratings, present)


class RatingCountSum(Bounded):
    """`RatingCounts` over a party's ratings, one per user and item."""

    def __init__(self, query: RatingCounts, ratings: Ratings, present: Array | None = None) -> None:
        check_ratings(ratings)
        self.query, self.ratings, self.present = query, ratings, participants(present, ratings.n_users)

    def bounded_values(self) -> dict[str, Array]:
        """What every rating adds, (nnz,) float64."""
        here = np.repeat(self.present, np.diff(self.ratings.indptr))
        return {"counts": on_grid(MARGIN * here.astype(np.float64), 1.0, max(self.ratings.n_users, 1))}

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return item_sums(self.ratings, self.bounded_values())

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """Each rating is one contribution, in one cell."""
        starts = np.arange(self.ratings.n_ratings + 1)
        return item_contributions(starts, self.ratings.items, self.bounded_values(), self.ratings.n_items)
