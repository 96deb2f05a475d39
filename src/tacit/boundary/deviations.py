"""Deviations from the middle of the scale, summed rating by rating: what one *rating* adds is bounded, not one user.

Whatever a user computes from her whole record, a mean to centre by or a weight, moves with each of her ratings, and
then one rating moves everything that she sends. Here every rating is clipped and added by itself, as if each came from
somebody else, so for the unit rating nothing but its own two cells can move.
"""

from __future__ import annotations

import math

import numpy as np

from tacit.boundary.bounded import ROOM, Bounded, attendance, finite, in_channels, on_grid, positive
from tacit.boundary.query import Blocks
from tacit.boundary.trim import check_rows
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import DataError
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Pieces


class DeviationSum(Bounded):
    """Per item j, Σ_i (r_ij − middle) as "errors" and Σ_i s as "weights", over all ratings of j.

    Parameters
    ----------
    ratings : one per user and item, on a declared scale [low, high] of span R; middle = low + R/2. What lies outside
        the scale is clipped to it, what is not a finite number counts as the middle
    count_weight : s, public
    present : (n,) bool, who takes part; None means all

    Guarantee
    ---------
    Blocks of shape (m,). The rating r_ij adds x = r_ij − middle to one cell of "errors" and s to one of "weights";
    |x| ≤ R/2 by the clip, and both are functions of r_ij, R and s alone. Let D and D' differ in that r_ij is missing
    from D'. All other ratings add the same to both, so the answers differ by (x, s) in these two cells:

        ‖f(D) − f(D')‖ = √(x² + s²) ≤ √((R/2)² + s²) = a

    Sensitivity per rating: a under zero-out and add/remove, attained by r_ij = low or high. Under replace one rating
    goes and one comes, of the same item or another: 2a by the triangle inequality. Per user infinite: she may have
    rated all m items, and the sum of her parts is bounded by no number that does not grow with the catalogue. So is
    everything on a scale read off the data. The bound holds in floating point: x and s are cut by `ROOM` and to a grid
    on which sums are exact; a cell gets at most one rating of each user.

    >>> DeviationSum.bound(4.0, 1.5, Unit.RATING, Relation.ZERO_OUT)
    2.5
    """

    def __init__(self, ratings: Ratings, count_weight: float, present: Array | None = None) -> None:
        check_rows(ratings.indptr, ratings.items, ratings.n_items)
        if len(ratings.indptr) != ratings.n_users + 1 or len(ratings.values) != len(ratings.items):
            raise DataError(
                f"Sums of deviations need a row for each of {ratings.n_users:,} users and a value for each of "
                f"{len(ratings.items):,} ratings."
            )
        self.ratings, self.count_weight = ratings, positive("count_weight", count_weight)
        self.present = attendance(present, ratings.n_users)

    def contributions(self) -> dict[str, Array]:
        """What every rating adds, (nnz,) float64 a block: the numbers to quantise, one by one, in a deployment."""
        scale, s = self.ratings.scale, self.count_weight
        half = scale.span / 2
        x = np.clip(finite(self.ratings.values - np.float64(scale.low + half)), -ROOM * half, ROOM * half)
        both = np.stack([x, np.full(len(x), ROOM * s)]) * np.repeat(self.present, np.diff(self.ratings.indptr))
        errors, weights = on_grid(both, max(half, s), self.ratings.n_users)
        return {"errors": errors, "weights": weights}

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        m = self.ratings.n_items
        return {
            name: np.bincount(self.ratings.items, weights=x, minlength=m).astype(np.float64)
            for name, x in self.contributions().items()
        }

    def pieces(self, state: Blocks, stream: np.random.Generator) -> Pieces:
        """Every rating is a piece of its own, in two cells."""
        ratings = self.ratings
        return in_channels(np.arange(ratings.n_ratings + 1), ratings.items, self.contributions(), ratings.n_items)

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        scale = self.ratings.scale
        return self.bound(scale.span, self.count_weight, unit, relation) if scale.declared else math.inf

    @staticmethod
    def bound(span: float, count_weight: float, unit: Unit, relation: Relation) -> float:
        """The sensitivity of such a sum, before there is data."""
        if unit is not Unit.RATING:
            return math.inf
        one = math.hypot(span / 2, count_weight)
        return 2 * one if relation is Relation.REPLACE else one
