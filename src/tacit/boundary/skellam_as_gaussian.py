"""Skellam noise as rounded Gaussian noise: what the difference costs, so that integer sums get the Gaussian's curve.

For an integer answer x, x + round(g) = round(x + g): rounded Gaussian noise is post-processing of the Gaussian
mechanism. Skellam noise of variance v, P, is nearly rounded Gaussian noise of the same variance, G = round(N(0, σ²))
with σ² = v − 1/12. So a release with noise P is compared with one with noise G, and back.

Lemma (one cell). For integers x = y·√v with |y| ≤ √v/4, and v ≥ 1000,

    |ln P(x)/G(x) − He₄(y)/24v| ≤ R(y)/v²,   He₄(y) = y⁴ − 6y² + 3,   R(y) = y⁶/80 + y⁴/7 + 5.2·y² + 1/2

Proof. P(x) = e^−v·I_x(v) = (1/2π)∫ e^(v·cos t − v + ixt) dt over a period. With w = √(v² + x²) and sinh θ = x/v, moving
t to t + iθ gives P(x) = e^(w − v − xθ)·J, J = (1/2π)∫ e^(−w(1 − cos t))·cos(x(t − sin t)) dt.
(a) w − v − xθ is the integral of −asinh(u/v) from 0 to x; s − s³/6 ≤ asinh s ≤ s − s³/6 + 3s⁵/40 for 0 ≤ s ≤ 1 puts
it between −x²/2v + x⁴/24v³ − x⁶/80v⁵ and −x²/2v + x⁴/24v³.
(b) J ≤ K = e^−w·I₀(w). With u = 2·sin(t/2), K = (1/2π)∫ e^(−wu²/2)·(1 − u²/4)^(−½) du over |u| < 2. The last factor is
at least 1 + u²/8, and at most 1 + u²/8 + 0.133·u⁴ for u² ≤ 2; |t| > π/2 adds at most ½e^−w to K. So √(2πw)·K is between
1 + 1/8w − e^−w and 1 + 1/8w + 0.4/w² + e^(−w/2).
(c) J ≥ K − ½x²·(1/2π)∫ (t − sin t)²·e^(−w(1 − cos t)) dt. As |t − sin t| ≤ |t|³/6 and 1 − cos t ≥ 2t²/π², √(2πw) times
the last term is at most 15·(π/2)⁷·x²/72w³ < 5x²/w³.
(d) ln w = ln v + ½·ln(1 + x²/v²), the last between x²/v² − x⁴/2v⁴ and x²/v².
(e) G(x) is the density of N(0, σ²) at x times E cosh(xU/σ²)·e^(−U²/2σ²), U uniform in ±½. One factor grows with |U| and
the other falls, so E is at most e^(x²/24σ⁴)·(1 − 1/24σ² + 1/640σ⁴); and it is at least E (1 + x²U²/2σ⁴)·(1 − U²/2σ²).
Collecting terms of order 1/v leaves He₄(y)/24v; those of order 1/v² are at most 0.13y⁴ + 0.01y² + 0.41 above and
y⁶/80 + 5.1y² + 0.22 below. □

Formal guarantee
----------------
A unit moves an integer answer in at most Δ₁ coordinates, since a non-zero integer is at least 1 in size. In all
others the answers under two neighbours are the same, with the same noise. So let n be the sum of Δ₁ over all answers
(of 2Δ₁ under replace), each of which may depend on the answers before it, and L the sum of ln P/G over those n cells.
As noise is independent from cell to cell, E_G e^((1+κ)L) is at most the product of M₁ = E_G e^((1+κ)·ln P/G), cut to
|x| < t, and likewise with P and G exchanged, M₂ = E_G e^(−κ·ln P/G). For every set S of outcomes, and for either order,

    P(S) ≤ e^η·G(S) + τ,   τ = n·p + c·e^(−κη)·Mⁿ,   c = max (1 − e^−u)·e^(−κu) = (κ/(1 + κ))^κ/(1 + κ)

with p the chance of |x| ≥ t in one cell (`slack`). By way of G, what is (ε, δ)-DP with Gaussian noise of multiplier
σ/Δ₂ is (ε + 2η, e^η·δ + (1 + e^(ε + η))·τ)-DP with Skellam noise: P₁(S) ≤ e^η·G₁(S) + τ ≤ e^η·(e^ε·G₀(S) + δ) + τ, and
G₀(S) ≤ e^η·P₀(S) + τ. This holds for any shift with norms at most Δ₁ and Δ₂, and composed with any other releases. It
holds over secret samples: who was sampled, and the coins that rounded a contribution, have the same law on both sides
of a comparison with G, so that it holds with them as part of the outcome, and without. More variance than v is Skellam
noise of variance v and something independent. The orders κ and blocks are numerical; every sum is rounded up.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tacit.boundary.events import DiscreteGaussian, Gaussian, Noised, SampledGaussian, SampledSkellam, Skellam
from tacit.guarantee import Relation

Floats = NDArray[np.float64]

#: The smallest variance that the lemma is for; and the orders κ at which the moments are computed.
LEAST, KAPPAS = 1000.0, np.geomspace(1.0, 1e13, 196)
#: The part of a δ that the comparison may use.
SHARE = 2.0**-10
#: Deviations beyond which a normal variable's probabilities are no longer numbers.
FAR = 37.0
#: Blocks per standard deviation, on each of which the lemma's bounds are taken at their largest.
BLOCKS = 32

#: Variances, and in how many cells of noise of that variance two neighbours can differ.
Cells = Sequence[tuple[float, float]]


def with_gaussians(events: Sequence[Noised], relation: Relation) -> tuple[list[Noised], Cells] | None:
    """The events with rounded Gaussian noise instead of Skellam's, and the cells that this is about.

    None where there is no such noise, or less of it than the lemma is for, or another kind of discrete noise.
    """
    replaced: list[Noised] = []
    cells: list[tuple[float, float]] = []
    times = 2 if relation is Relation.REPLACE else 1
    for event in events:
        match event:
            case DiscreteGaussian():
                return None
            case Skellam() | SampledSkellam():
                if event.variance < LEAST:
                    return None
                multiplier = (
                    math.nextafter(math.sqrt(event.variance - 1 / 12) / event.l2, 0.0) if event.l2 else math.inf
                )
                cells.append((event.variance, times * event.l1 * event.count))
                if isinstance(event, SampledSkellam):
                    replaced.append(SampledGaussian(multiplier, event.rate, event.count))
                else:
                    replaced.append(Gaussian(multiplier, event.count))
            case _:
                replaced.append(event)
    return (replaced, cells) if cells else None


def slack(cells: Cells, log_tau: float) -> float:
    """The smallest η found with P(S) ≤ e^η·G(S) + τ and G(S) ≤ e^η·P(S) + τ for all S; infinite where there is none.

    Half of τ is for tails: by Bernstein, a cell of Skellam noise is at least t = ℓ/3 + √(ℓ²/9 + 2ℓv) with probability
    p ≤ 2e^−ℓ, and rounded Gaussian noise is as well.
    """
    total = math.fsum(count for _variance, count in cells)
    tail = math.ceil(math.log(4 * total) - log_tau)
    logs = sum(count * _log_moments(variance, max(tail, 2)) for variance, count in cells)
    constant = KAPPAS * -np.log1p(1 / KAPPAS) - np.log1p(KAPPAS)
    return max(0.0, float(np.min((logs + constant + math.log(2) - log_tau) / KAPPAS))) * (1 + 1e-9)


@lru_cache(maxsize=1024)
def _log_moments(variance: float, tail: int) -> Floats:
    """ln of the larger of M₁ and M₂, at each κ; infinite where the lemma does not reach t.

    With g(u) = e^u − 1 − u and r = P/G: Σ G·r^(1+κ) ≤ 1 + (1 + κ)·Σ G·(r − 1) + Σ G·g((1 + κ)·ln r), and Σ G·r^−κ ≤
    1 − κ·Σ G·(r − 1) + Σ G·(g(−κ·ln r) + κ·g(ln r)), where |Σ G·(r − 1)| ≤ p. Sums are over |x| < t, in blocks of y; a
    block is given the largest g in it and at least its probability. All of it falls as the variance grows.
    """
    from scipy.special import ndtr

    reach = tail / 3 / math.sqrt(variance) + math.sqrt(tail * tail / 9 / variance + 2 * tail)
    if variance < LEAST or 16 * reach * reach > variance or reach > FAR:
        return np.full(len(KAPPAS), math.inf)
    edges = np.linspace(0.0, reach, math.ceil(BLOCKS * reach) + 1)
    left, right = edges[:-1], edges[1:]
    sigma, p = math.sqrt(variance - 1 / 12), 2 * math.exp(-tail)
    mass = 2 * (ndtr(0.5 / sigma - left) - ndtr(-right * (1 + 1 / variance) - 0.5 / sigma))
    low, high = _log_ratios(left, right, variance)
    kappa = KAPPAS[:, None]
    with np.errstate(over="ignore"):
        forward = (1 + KAPPAS) * p + np.maximum(_above((1 + kappa) * low), _above((1 + kappa) * high)) @ mass
        back = np.maximum(_above(-kappa * low), _above(-kappa * high))
        backward = KAPPAS * p + (back + kappa * np.maximum(_above(low), _above(high))) @ mass
    logs: Floats = np.log1p(np.maximum(forward, backward)) * (1 + 1e-12)
    return logs


def _log_ratios(left: Floats, right: Floats, variance: float) -> tuple[Floats, Floats]:
    """A number ≤ 0 and one ≥ 0 between which ln P(x)/G(x) lies for left ≤ |y| ≤ right, by the lemma.

    Between its ends He₄ exceeds them by at most width²/8 times its second derivative's size, 12·|y² − 1|.
    """
    ends = np.stack([y**4 - 6 * y**2 + 3 for y in (left, right)])
    between = 1.5 * (right - left) ** 2 * np.maximum(1.0, right**2)
    rest = (right**6 / 80 + right**4 / 7 + 5.2 * right**2 + 0.5) / variance / variance
    low = np.minimum(ends.min(axis=0) - between, 0.0) / 24 / variance - rest
    high = np.maximum(ends.max(axis=0) + between, 0.0) / 24 / variance + rest
    return low, high


def _above(u: Floats) -> Floats:
    """e^u − 1 − u, or where u is small a little more."""
    small = np.abs(u) < 1e-3
    return np.where(small, u * u / 2 * (1 + np.abs(u)), np.expm1(u) - u)
