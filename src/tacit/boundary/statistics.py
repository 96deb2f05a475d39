"""The statistics of alternating least squares, bounded: what items need to know of their users.

Given user factors u_i, an item's factors solve A_j v = b_j with A_j = Σ_i c_ij·u_i·u_iᵀ and b_j = Σ_i c_ij·y_ij·u_i, so
noisy sums of the two are enough (Chien et al., *Private Alternating Least Squares*, ICML 2021; weights per user and
item: Krichene et al., *Multi-Task Differential Privacy Under Distribution Skew*, ICML 2023).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tacit.boundary.bounded import Bounded, attendance, bounded_rows, chosen, clipped_rows, finite, of_record, positive
from tacit.boundary.query import Blocks
from tacit.boundary.trim import check_rows
from tacit.boundary.wire import Array
from tacit.errors import DataError
from tacit.guarantee import Relation, Unit

BLOCKS = ("gram", "moment")


class WeightedSum(Bounded):
    """Per item, Σ_i c_ij·u_i·u_iᵀ as "gram" and Σ_i c_ij·y_ij·u_i as "moment", with Σ_j c_ij² ≤ B for every user.

    Parameters
    ----------
    indptr, items : compressed rows, items increasing within a row
    weights : (nnz,) c; scaled down where a user's exceed the budget
    targets : (nnz,) y, clipped to ±y_max: centred ratings, before any sum
    factors : (n, p) u; rows clipped to norm Γ
    n_items : m, the size of the public catalogue
    budget, factor_clip, target_clip : B, Γ and y_max, public
    blocks : which of the two to answer
    present : (n,) bool, who takes part; None means all

    A user's weights, targets and factors may depend on her own record and on released state only.

    Guarantee
    ---------
    "gram" (m, p(p+1)/2) is `packed`: upper triangles, off-diagonals times √2, whose ℓ2 norm is the Frobenius norm;
    "moment" is (m, p). Her ratings are of different items, so her parts fall in different rows, and with Σ_j c² ≤ B

        ‖gram‖² = Σ_j c²·‖u·uᵀ‖² = Σ_j c²·‖u‖⁴ ≤ B·Γ⁴        ‖moment‖² = Σ_j c²·y²·‖u‖² ≤ B·Γ²·y_max²

    Sensitivity per user: √B·Γ², √B·Γ·y_max, and √B·Γ·√(Γ² + y_max²) for both; ‖u‖ = Γ, |y| = y_max and Σc² = B attain
    all three at once. Twice that under replace, and per rating: weights, centring and u move with any one of them.
    Sums are float64; `ROOM` covers their rounding.
    """

    def __init__(
        self,
        indptr: Array,
        items: Array,
        weights: Array,
        targets: Array,
        factors: Array,
        n_items: int,
        *,
        budget: float,
        factor_clip: float,
        target_clip: float,
        blocks: Sequence[str] = BLOCKS,
        present: Array | None = None,
    ) -> None:
        check_rows(indptr, items, n_items)
        n = len(indptr) - 1
        if not np.shape(weights) == np.shape(targets) == np.shape(items) or len(factors) != n:
            raise DataError(
                f"Weighted statistics need a weight and a target for each of {len(items):,} ratings and a row of "
                f"factors for each of {n:,} users."
            )
        self.indptr, self.items, self.n_items = indptr, items, n_items
        self.weights, self.targets, self.factors = weights, targets, factors
        self.budget, self.factor_clip = positive("budget", budget), positive("factor_clip", factor_clip)
        self.target_clip = positive("target_clip", target_clip)
        self.blocks, self.present = chosen(blocks, BLOCKS), attendance(present, n)

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        from scipy.sparse import csr_array

        c = bounded_rows(self.indptr, np.asarray(self.weights)[None], math.sqrt(self.budget))[0]
        c *= np.repeat(self.present, np.diff(self.indptr))
        y = np.clip(finite(self.targets), -self.target_clip, self.target_clip)
        u = clipped_rows(np.asarray(self.factors), self.factor_clip)
        shape = (len(u), self.n_items)
        answer = {}
        if "gram" in self.blocks:
            answer["gram"] = csr_array((c, self.items, self.indptr), shape=shape).T @ packed(u)
        if "moment" in self.blocks:
            answer["moment"] = csr_array((c * y, self.items, self.indptr), shape=shape).T @ u
        return answer

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return self.bound(self.budget, self.factor_clip, self.target_clip, unit, relation, self.blocks)

    @staticmethod
    def bound(
        budget: float,
        factor_clip: float,
        target_clip: float,
        unit: Unit,
        relation: Relation,
        blocks: Sequence[str] = BLOCKS,
    ) -> float:
        """The sensitivity of such sums, before there is data: of one block, or of both together."""
        each = {"gram": factor_clip, "moment": target_clip}
        one = math.sqrt(budget) * factor_clip * math.hypot(*(each[name] for name in blocks))
        return of_record(one, unit, relation)


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
