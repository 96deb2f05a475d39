"""Objective perturbation: item factors that minimise a convex objective with a random linear term (Hua et al. 2015).

    v_j = argmin over ‖v‖ ≤ √R of  Σ_i (r_ij − u_i·v)² + (λ/2)·‖v − v⁰_j‖² + x_j·v,   x_j ~ N(0, σ²·I)

for every item j, over at most θ ratings of each user, with 0 ≤ r ≤ R, ‖u_i‖ ≤ √R and public centres v⁰_j. u_i may
depend on user i's own record; it is in that user's terms only. What protects is that the problem is convex and solved
*exactly*: steps towards the minimum of another kind of objective carry no guarantee by this argument.

Formal guarantee
----------------
With L = 4R^1.5, z = σ/L and β = ln(1 + 2R/λ), all items together are dominated, for the unit user under zero-out and
add/remove and in either direction, by N(0, 1) against e^−θβ·N(√θ/z, 1) and an outcome of its own: δ(ε) ≤ δ_G(ε − θ·β),
where δ_G is that of a plain Gaussian with μ = √θ/z. That is the event PerturbedObjective(z, β, θ). In real arithmetic:
the solver's residual (`least_in_ball`) lies far below the rounding of what leaves.

Proof, for one item. D is without user i, D′ with them. φ is the density of N(0, σ²), and Φ its mass; δ_G is the δ of
N(0, σ²) against N(L, σ²), the same in both directions.

*One number.* With the multiplier ν ≥ 0 of the ball, w = (1 + ν)·v determines v, its projection onto the ball; so we
protect w. The x that leads to w is x_D(w) = −(∇L_D(v) + λ(v − v⁰) + w − v), one to one, where L_D is the sum of squares
under D. Its Jacobian is −B_D, B_D = A·J + I − J, where A ⪰ λI is the curvature under D and J the projection's Jacobian:
I inside, a·P outside, with a ≤ 1 and P the projection onto the tangent space. So

    x_D′ = x_D + 2(r − u·v)·u   and   det B_D′/det B_D = 1 + 2uᵀJ·B_D⁻¹u ∈ [1, e^β],

since J·B_D⁻¹ is A⁻¹ inside and a·(a·PAP + (1 − a)·P)⁺ outside, between 0 and 1/λ. Only x's part along u differs. Given
the other parts, t = x_D·u/‖u‖ is N(0, σ²) under D, and s = h(t) = t + d(t) is under D′; h′ is the ratio above, so d
never falls; d = 2(r − u·v)·‖u‖ stays in some [−a₁, a₂] with a₁, a₂ ≥ 0 and a₁ + a₂ ≤ L.

*D against D′ at ε ≥ 0.* In t it is φ(t) against φ(h)·h′ ≥ φ(t + d(t)), so at most ∫ (φ(t) − e^ε·min(φ(t − a₁),
φ(t + a₂)))₊. If εσ² ≤ a₁a₂/2 that is 1 − 2e^ε·Φ(−(a₁ + a₂)/2σ) ≤ Φ(L/2σ) − e^ε·Φ(−L/2σ) ≤ δ_G(ε). If not, it is the
sum of two Gaussians' δ, whose slope as the larger of a₁, a₂ grows at the other's cost is the difference of the normal
densities at εσ/a − a/2σ, positive; so it is largest at (0, L), where it is δ_G(ε).

*D′ against D.* In s it is φ(s) against φ(h⁻¹(s))·(h⁻¹)′(s) ≥ e^−β·φ(h⁻¹(s)): at y = ε − β we compare φ with the measure
m of density φ(h⁻¹(s)). Let y ≥ 0. Where φ > e^y·m, |h⁻¹(s)| > |s|; and either h⁻¹(s) > |s| at all such s or
h⁻¹(s) < −|s| at all of them, for h⁻¹(s) − s never rises. There m ≥ φ(s + L), or φ(s − L), so the difference is at most
δ_G(y). For y < 0 and any S, m(S) ≥ Φ(h⁻¹(S)) since (h⁻¹)′ ≤ 1, so Φ(S) − e^y·m(S) is at most 1 − e^y +
e^y·(Φ(h⁻¹(Sᶜ)) − e^−y·Φ(Sᶜ)), and the bracket is the case before, at −y: at most 1 − e^y + e^y·δ_G(−y) = δ_G(y).
Together δ_G(ε − β), at every ε.

*D against D′ at ε < 0.* By the last case 1 − e^ε + e^ε·δ_G(−ε − β). That it is at most δ_G(ε − β) means, with y = −ε,
δ_G(y − β) − e^−β·δ_G(y + β) ≤ 1 − e^−β. At y = 0 they are equal, and the left falls in y, for the hazard of the normal
distribution is convex and exceeds its argument. δ_G(ε − β) is that of N(0, 1) against e^−β·N(L/σ, 1) and an outcome of
its own. A user's problems are independent, so the product of these pairs dominates (Zhu, Dong and Wang 2022). All of
it holds given the coins that trimmed records, which fall the same way with the user and without. ∎

Kifer, Smith and Thakurta (2012) and Redberg, Koskela and Wang (2023) bound the same mechanism; here errors along one
fixed direction u, and a range of d rather than a bound on it, save the factor 2 in δ, and the ball needs no limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.boundary.clipped_sums import MARGIN, check_ratings, finite, participants
from tacit.boundary.events import PerturbedObjective
from tacit.boundary.query import Blocks, Mechanism, Query
from tacit.boundary.trim import sample_users, trim
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings, Scale
from tacit.errors import DataError, UsageError
from tacit.guarantee import Relation, Unit
from tacit.kernels.embed import embed

#: What curvature adds to ε, over μ; λ follows from it. Of 0.03, 0.1, 0.3, 1 and 3 it was the best or close to it on
#: synthetic worlds of 6,000 users and 3,700 items, 70,000 and 1,000, 70,000 and 100, at ε = 1 and 8 (one seed each).
CURVATURE = 0.3
#: The most steps of Newton's, and the relative width of ν at which they end; five or six are usual.
STEPS, STILL = 100, 1e-15


@dataclass(frozen=True)
class Objectives(Query):
    """One convex objective per item, in the block "items", perturbed and solved.

    Attributes
    ----------
    scale : declared, of span R; r − low is clipped into [0, R]
    trim : θ; None uses all ratings, and protects no one
    least : the least λ, that of a run without privacy

    Guarantee
    ---------
    That of this module; the sensitivity is that of the gradient of one objective. A scale read off the data and
    untrimmed ratings bound nothing; nor does the unit rating: one rating moves its user's factors, and so all
    of the user's terms, which is the replace case of the unit user.
    """

    scale: Scale
    trim: int | None
    least: float

    mechanism: ClassVar[Mechanism] = Mechanism.PERTURBED

    def __post_init__(self) -> None:
        if not 0 < self.least < math.inf or (self.trim is not None and self.trim < 1):
            raise UsageError(
                f"trim = {self.trim} and regularization = {self.least} are not possible; give numbers above 0."
            )

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        promised = self.scale.declared and self.trim is not None
        bounded = promised and unit is Unit.USER and relation is not Relation.REPLACE
        return self.gradient if bounded else math.inf

    def counted(self, unit: Unit) -> tuple[Unit, Relation]:
        """A rating is the replace case of its user."""
        return Unit.USER, Relation.ZERO_OUT if unit is Unit.USER else Relation.REPLACE

    def over(self, ratings: Ratings, users: Array, centres: Array, present: Array | None = None) -> ItemObjectives:
        return ItemObjectives(self, ratings, users, centres, present)

    @property
    def theta(self) -> int:
        """θ, where there is one."""
        if self.trim is None:
            raise UsageError("An objective that keeps all of a user's ratings bounds nothing; set trim.")
        return self.trim

    @property
    def gradient(self) -> float:
        """L: residuals lie within 2R, since v may have either sign, and ‖u‖ ≤ √R."""
        return 4 * self.scale.span * math.sqrt(self.scale.span)

    def regularization(self, multiplier: float) -> float:
        """λ, so that curvature adds at most `CURVATURE`·μ to ε; it grows with the noise."""
        return max(self.least, 2 * self.scale.span / math.expm1(CURVATURE / math.sqrt(self.theta) / multiplier))

    def event(self, multiplier: float, count: int) -> PerturbedObjective:
        """What `count` objectives spend."""
        return PerturbedObjective(multiplier, math.log1p(2 * self.scale.span / self.regularization(multiplier)), count)


class ItemObjectives:
    """`Objectives` over a party's ratings, one per user and item.

    `users` is (n, p), each row a function of that user's own record and of public values, and is projected by Π;
    `centres` is (m, p), public.
    """

    def __init__(
        self, query: Objectives, ratings: Ratings, users: Array, centres: Array, present: Array | None = None
    ) -> None:
        check_ratings(ratings)
        if (len(users), len(centres)) != (ratings.n_users, ratings.n_items) or users.shape[1:] != centres.shape[1:]:
            raise DataError(
                f"Factors of shapes {users.shape} and {centres.shape} do not fit {ratings.n_users:,} users and "
                f"{ratings.n_items:,} items."
            )
        self.query, self.ratings, self.centres = query, ratings, finite(centres)
        self.users = embed(users.astype(np.float64), MARGIN * query.scale.span)
        self.present = None if present is None else participants(present, ratings.n_users)

    def blank(self) -> dict[str, Array]:
        return {"items": np.zeros(self.centres.shape)}

    def minimisers(self, linear: Blocks, multiplier: float | None, stream: np.random.Generator) -> dict[str, Array]:
        weight = self.query.least if multiplier is None else self.query.regularization(multiplier)
        curvature, slope = self.squares(stream)
        curvature += weight * np.eye(self.centres.shape[1])
        slope += weight * self.centres - linear["items"]
        return {"items": least_in_ball(curvature, slope, math.sqrt(self.query.scale.span)).astype(np.float32)}

    def squares(self, stream: np.random.Generator) -> tuple[Array, Array]:
        """Σ_i (r_ij − u_i·v)² as ½·vᵀHv − g·v for every item: H (m, p, p) and g (m, p), float64."""
        query, ratings, (m, p) = self.query, self.ratings, self.centres.shape
        part = sample_users(ratings.indptr, 1, stream, self.present)
        if query.trim is not None:
            part = trim(part, ratings.items, query.trim, stream)
        items, kept = ratings.items[part.entries], np.repeat(part.rows, np.diff(part.indptr))
        shifted = ratings.values[part.entries].astype(np.float64) - query.scale.low
        rated, u = np.clip(finite(shifted), 0.0, query.scale.span), self.users[kept].T
        H, g = np.empty((m, p, p)), np.empty((m, p))
        for f in range(p):
            g[:, f] = np.bincount(items, weights=2 * rated * u[f], minlength=m)
            for e in range(f + 1):
                H[:, e, f] = H[:, f, e] = np.bincount(items, weights=2 * u[e] * u[f], minlength=m)
        return H, g


def least_in_ball(curvature: Array, slope: Array, radius: float) -> Array:
    """argmin ½·vᵀHv − g·v over ‖v‖ ≤ ρ for every item, (m, p); curvature (m, p, p) is H ⪰ λI and slope (m, p) is g.

    In the eigenvectors of H the minimiser is g̃/(h + ν) with the one ν ≥ 0 that fits: 0 where that lies in the ball, and
    else the root of ‖g̃/(h + ν)‖ = ρ. 1/‖g̃/(h + ν)‖ grows with ν and is concave (Moré and Sorensen 1983), so that
    Newton's steps on it, from a ν that is too small, rise to the root and never pass it. The residual v − Π(v −
    (Hv − g)/‖H‖), Π onto the ball, has norm at most 1e-12·ρ.
    """
    h, axes = np.linalg.eigh(curvature)
    g = np.einsum("mji,mj->mi", axes, slope)
    sizes = np.linalg.norm(g, axis=1)
    outside = np.linalg.norm(g / h, axis=1) > radius
    multiplier = np.where(outside, np.maximum(0.0, sizes / radius - h[:, -1]), 0.0)
    active = np.flatnonzero(outside)
    for _ in range(STEPS):
        if not len(active):
            break
        shifted = h[active] + multiplier[active, None]
        v = g[active] / shifted
        squares = np.einsum("mi,mi->m", v, v)
        norms = np.sqrt(squares)
        step = squares / np.einsum("mi,mi,mi->m", v, v, 1 / shifted) * (norms - radius) / radius
        multiplier[active] += np.maximum(step, 0.0)
        active = active[step > STILL * shifted[:, -1]]
    v = g / (h + multiplier[:, None])
    v *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(v, axis=1), np.finfo(float).tiny))[:, None]
    found: Array = np.einsum("mij,mj->mi", axes, v)
    return found
