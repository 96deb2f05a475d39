"""Bounded statistics for alternating least squares: the sums over users that determine item factors.

Given user factors u_i, an item's factors solve A_j v = b_j with A_j = Σ_i c_ij·u_i·u_iᵀ and b_j = Σ_i c_ij·y_ij·u_i, so
noisy sums of the two are enough (Chien et al., *Private Alternating Least Squares*, ICML 2021; weights per user and
item: Krichene et al., *Multi-Task Differential Privacy Under Distribution Skew*, ICML 2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tacit.boundary.clipped_sums import (
    Bounded,
    block_names,
    bounded_rows,
    check_ratings,
    clipped_rows,
    finite,
    participants,
    positive,
    record_sensitivity,
    user_batches,
)
from tacit.boundary.query import Blocks, Query
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import DataError
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Contributions

BLOCKS = ("gram", "moment")

#: Entries that are held at a time.
AT_ONCE = 4_000_000


@dataclass(frozen=True)
class Weighted(Query):
    """Per item, Σ_i c_ij·u_i·u_iᵀ as "gram" and Σ_i c_ij·y_ij·u_i as "moment", with Σ_j c_ij² ≤ B for every user.

    Attributes
    ----------
    budget, factor_clip, target_clip : B, Γ and y_max
    blocks : which of the two to answer

    Guarantee
    ---------
    "gram" (m, p(p+1)/2) is `packed`: upper triangles, off-diagonals times √2, whose ℓ2 norm is the Frobenius norm;
    "moment" is (m, p). One user's ratings are of different items, so parts fall in different rows, and with Σ_j c² ≤ B

        ‖gram‖² = Σ_j c²·‖u·uᵀ‖² = Σ_j c²·‖u‖⁴ ≤ B·Γ⁴        ‖moment‖² = Σ_j c²·y²·‖u‖² ≤ B·Γ²·y_max²

    Sensitivity per user: √B·Γ², √B·Γ·y_max, and √B·Γ·√(Γ² + y_max²) for both; ‖u‖ = Γ, |y| = y_max and Σc² = B attain
    all three at once. Twice that under replace, and per rating: weights, centring and u move with any one of them.
    Sums are float64; `MARGIN` covers their rounding.
    """

    budget: float
    factor_clip: float
    target_clip: float
    blocks: tuple[str, ...] = BLOCKS

    def __post_init__(self) -> None:
        for name in ("budget", "factor_clip", "target_clip"):
            object.__setattr__(self, name, positive(name, getattr(self, name)))
        object.__setattr__(self, "blocks", block_names("blocks", self.blocks, BLOCKS))

    @property
    def clip(self) -> float:
        each = {"gram": self.factor_clip, "moment": self.target_clip}
        return math.sqrt(self.budget) * self.factor_clip * math.hypot(*(each[name] for name in self.blocks))

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.clip, unit, relation)

    def over(
        self, ratings: Ratings, weights: Array, targets: Array, factors: Array, present: Array | None = None
    ) -> WeightedSum:
        return WeightedSum(self, ratings, weights, targets, factors, present)


class WeightedSum(Bounded):
    """`Weighted` over a party's ratings; a user's numbers may depend on their own record and released state only.

    Parameters
    ----------
    weights : (nnz,) c; scaled down where a user's exceed the budget
    targets : (nnz,) y, clipped to ±y_max: centred ratings, before any sum
    factors : (n, p) u; rows clipped to norm Γ
    """

    def __init__(
        self,
        query: Weighted,
        ratings: Ratings,
        weights: Array,
        targets: Array,
        factors: Array,
        present: Array | None = None,
    ) -> None:
        check_ratings(ratings)
        if not np.shape(weights) == np.shape(targets) == np.shape(ratings.items) or len(factors) != ratings.n_users:
            raise DataError(
                f"Weighted statistics need a weight and a target for each of {len(ratings.items):,} ratings and a row "
                f"of factors for each of {ratings.n_users:,} users."
            )
        self.query, self.ratings, self.present = query, ratings, participants(present, ratings.n_users)
        self.weights, self.targets, self.factors = weights, targets, factors

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        from scipy.sparse import csr_array

        ratings, shape = self.ratings, (self.ratings.n_users, self.ratings.n_items)
        return {
            name: csr_array((c, ratings.items, ratings.indptr), shape=shape).T @ rows
            for name, (c, rows) in self._factored().items()
        }

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """All that a user adds to both blocks is one contribution."""
        return self._of(self._factored(), 0, self.ratings.n_users)

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Contributions]:
        """The same, some users at a time: a rating has p(p+3)/2 numbers."""
        factored = self._factored()
        width = sum(rows.shape[1] for _c, rows in factored.values())
        for first, last in user_batches(self.ratings.indptr, AT_ONCE // max(1, width)):
            yield self._of(factored, first, last)

    def _factored(self) -> dict[str, tuple[Array, Array]]:
        """By block, the number (nnz,) of each rating and the row (n, …) of each user whose product is added."""
        query, indptr = self.query, self.ratings.indptr
        c = bounded_rows(indptr, np.asarray(self.weights)[None], math.sqrt(query.budget))[0]
        c *= np.repeat(self.present, np.diff(indptr))
        u = clipped_rows(np.asarray(self.factors), query.factor_clip)
        answer = {}
        if "gram" in query.blocks:
            answer["gram"] = c, packed(u)
        if "moment" in query.blocks:
            answer["moment"] = c * np.clip(finite(self.targets), -query.target_clip, query.target_clip), u
        return answer

    def _of(self, factored: dict[str, tuple[Array, Array]], first: int, last: int) -> Contributions:
        """The contributions of users first … last − 1; blocks follow each other in the order of their names."""
        indptr, m = self.ratings.indptr, self.ratings.n_items
        mine = slice(indptr[first], indptr[last])
        owners = np.repeat(np.arange(first, last), np.diff(indptr[first : last + 1]))
        items, cells, values, before = self.ratings.items[mine].astype(np.int64), [], [], 0
        for _name, (c, rows) in sorted(factored.items()):
            width = rows.shape[1]
            cells.append(before + items[:, None] * width + np.arange(width))
            values.append(c[mine, None] * rows[owners])
            before += m * width
        starts = (indptr[first : last + 1] - indptr[first]).astype(np.int64) * (before // m if m else 0)
        return Contributions(starts, np.concatenate(cells, 1).ravel(), np.concatenate(values, 1).ravel(), before)


def packed(u: Array) -> Array:
    """Upper triangles of u_i·u_iᵀ, off-diagonals times √2: (n, p) to (n, p(p+1)/2), with ‖packed(u)_i‖ = ‖u_i‖²."""
    a, b = np.triu_indices(u.shape[1])
    triangles: Array = u[:, a] * u[:, b] * np.where(a == b, 1.0, math.sqrt(2))
    return triangles


def unpacked(triangles: Array) -> Array:
    """The symmetric matrices of packed triangles: (m, p(p+1)/2) to (m, p, p).

    >>> unpacked(packed(np.array([[1.0, 2.0]]))).round(12).tolist()
    [[[1.0, 2.0], [2.0, 4.0]]]
    """
    p = (math.isqrt(8 * triangles.shape[1] + 1) - 1) // 2
    a, b = np.triu_indices(p)
    matrices = np.empty((len(triangles), p, p), dtype=triangles.dtype)
    matrices[:, a, b] = matrices[:, b, a] = triangles * np.where(a == b, 1.0, math.sqrt(0.5)).astype(triangles.dtype)
    return matrices
