"""Deviations from the middle of the scale, summed rating by rating: what one *rating* adds is bounded, not one user.

Whatever is computed from a user's whole record, a mean to centre by or a weight, moves with each of their ratings, and
then one rating moves everything that the user sends. Here every rating is clipped and added by itself, so for the unit
rating nothing but its own two cells can move.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    check_ratings,
    finite,
    item_contributions,
    item_sums,
    on_grid,
    participants,
    positive,
)
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings, Scale
from tacit.errors import DataError
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Contributions


@dataclass(frozen=True)
class Deviations(Query):
    """Per item j, Σ_i (r_ij − middle) as "errors" and Σ_i s as "weights", over all ratings of j.

    Attributes
    ----------
    scale : [low, high] of span R, declared; middle = low + R/2. What lies outside the scale is clipped to it, whatever
        scale the ratings claim; what is not a finite number counts as the middle
    count_weight : s

    Guarantee
    ---------
    Blocks of shape (m,). The rating r_ij adds x = r_ij − middle to one cell of "errors" and s to one of "weights";
    |x| ≤ R/2 by the clip, and both are functions of r_ij, R and s alone. Let D and D' differ in that r_ij is missing
    from D'. All other ratings add the same to both, so the answers differ by (x, s) in these two cells:

        ‖f(D) − f(D')‖ = √(x² + s²) ≤ √((R/2)² + s²) = a

    Sensitivity per rating: a under zero-out and add/remove, attained by r_ij = low or high. Under replace one rating
    goes and one comes, of the same item or another: 2a by the triangle inequality. Per user infinite: a user may have
    rated all m items, and no number that does not grow with the catalogue bounds the sum. So is everything on a scale
    read off the data. The bound holds in floating point: x and s are cut by `MARGIN` and to a grid on which sums are
    exact; a cell gets at most one rating of each user.

    >>> Deviations(Scale(1, 5), 1.5).sensitivity(Unit.RATING, Relation.ZERO_OUT)
    2.5
    """

    scale: Scale
    count_weight: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "count_weight", positive("count_weight", self.count_weight))

    @property
    def clip(self) -> float:
        """a: each rating is one contribution."""
        return math.hypot(self.scale.span / 2, self.count_weight)

    def nonzero_coordinates(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """One cell of each block."""
        return 2

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        if unit is not Unit.RATING or not self.scale.declared:
            return math.inf
        return 2 * self.clip if relation is Relation.REPLACE else self.clip

    def over(self, ratings: Ratings, present: Array | None = None) -> DeviationSum:
        return DeviationSum(self, ratings, present)


class DeviationSum(Bounded):
    """`Deviations` over a party's ratings, one per user and item."""

    def __init__(self, query: Deviations, ratings: Ratings, present: Array | None = None) -> None:
        check_ratings(ratings)
        if len(ratings.values) != len(ratings.items):
            raise DataError(f"Sums of deviations need a value for each of {len(ratings.items):,} ratings.")
        self.query, self.ratings, self.present = query, ratings, participants(present, ratings.n_users)

    def bounded_values(self) -> dict[str, Array]:
        """What every rating adds, (nnz,) float64 per block."""
        scale, s = self.query.scale, self.query.count_weight
        half = scale.span / 2
        x = np.clip(finite(self.ratings.values - np.float64(scale.low + half)), -MARGIN * half, MARGIN * half)
        both = np.stack([x, np.full(len(x), MARGIN * s)]) * np.repeat(self.present, np.diff(self.ratings.indptr))
        errors, weights = on_grid(both, max(half, s), self.ratings.n_users)
        return {"errors": errors, "weights": weights}

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return item_sums(self.ratings, self.bounded_values())

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """Each rating is one contribution, in two cells."""
        starts = np.arange(self.ratings.n_ratings + 1)
        return item_contributions(starts, self.ratings.items, self.bounded_values(), self.ratings.n_items)
