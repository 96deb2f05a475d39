"""Mechanisms that add noise to an answer: Gaussian, Skellam, discrete Gaussian, discrete Laplace.

Each stores how much noise it adds, adds it, and states as an `Event` what that spends, given how far a unit can move
the answer. None of them knows units or relations: their guarantees hold for any two answers at a distance of at most Δ,
and the query knows whose answers those are. Every entry gets noise, zeros and rows that were not sampled included; it
is drawn afresh for each call and never stored. There is no floating-point Laplace noise: which low-order bits can occur
depends on the answer (Mironov 2012), so an answer is quantised and gets `DiscreteLaplace`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.boundary import events
from tacit.boundary.discrete import discrete_gaussian, discrete_laplace, skellam
from tacit.boundary.query import Exact, Rows
from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array, all_finite
from tacit.errors import PrivacyRefused, UsageError


@dataclass(frozen=True)
class Gaussian:
    """y = x + σ·N(0, I), on blocks of float32 or float64.

    Formal guarantee
    ----------------
    For any two answers with ‖x − x'‖₂ ≤ Δ (over all blocks together) the loss ln p(y)/p'(y) is Gaussian with mean
    Δ²/2σ² and variance Δ²/σ²: project y on x − x', on which alone it depends. So the release is (Δ/σ)-GDP (Dong, Roth
    and Su 2019, Theorem 2.7) and (ε, δ)-DP exactly where δ ≥ Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ) (Balle and Wang 2018,
    Theorem 8). The event is `Gaussian(σ/Δ)`. That is real arithmetic: floating-point sums leak, so sums in a deployment
    should be taken over integers, and chains from a `Secure` source, which sums four Gaussians to one.
    """

    sigma: float

    def __post_init__(self) -> None:
        _positive("sigma", self.sigma)

    def add(self, blocks: Mapping[str, Array], source: Source) -> dict[str, Array]:
        """Noise on every entry of every block, in place; returns the blocks. Their order does not matter."""
        for name, x in blocks.items():
            if x.dtype not in (np.float32, np.float64) or not (x.flags.c_contiguous and x.flags.writeable):
                raise UsageError(
                    f'The block "{name}" cannot take Gaussian noise in place; '
                    "make it a writeable, contiguous array of float32 or float64."
                )
        for name in sorted(blocks):
            source.add_normal(blocks[name], self.sigma)
            if not all_finite(blocks[name]):
                raise _not_finite(name, blocks[name])
        return dict(blocks)

    def noised(self, blocks: Mapping[str, Exact], source: Source) -> dict[str, Array]:
        """Exact answers with noise on every entry, new and in float32: added in float64, and rounded once.

        It is `add` on the whole blocks. Where only a few rows are other than 0 the others are noise alone, drawn into
        the float32 block itself.
        """
        return {name: self._noised(name, block, source) for name, block in sorted(blocks.items())}

    def _noised(self, name: str, block: Exact, source: Source) -> Array:
        if isinstance(block, Rows):
            try:
                return source.noised_rows(block.n, block.rows, block.values, self.sigma)
            except FloatingPointError:
                raise _not_finite(name, block.values) from None
        whole = self.add({name: np.array(block, dtype=np.float64, order="C")}, source)
        return whole[name].astype(np.float32)

    def event(self, l2: float, count: int = 1) -> events.Gaussian:
        """What `count` answers spend if a unit moves each by at most `l2`."""
        return events.Gaussian(self.sigma / _sensitivity(l2), count)


class _Discrete:
    """Noise on integers: `add` is `sample` on every entry."""

    def add(self, x: Array, source: Source) -> NDArray[np.int64]:
        """A new array, int64, of x's shape; noise on every entry."""
        if not np.issubdtype(x.dtype, np.integer):
            raise UsageError(f"Discrete noise is for integers; quantise an answer of {x.dtype} first.")
        return x.astype(np.int64) + self.sample(x.size, source).reshape(x.shape)

    def sample(self, n: int, source: Source) -> NDArray[np.int64]:
        """The noise alone, (n,) int64."""
        raise NotImplementedError


@dataclass(frozen=True)
class Skellam(_Discrete):
    """y = x + P₁ − P₂ with P₁, P₂ Poisson of mean variance/2, on integers: noise that can be split into shares.

    It is closed under addition: h shares of variance/h add up to exactly this one, at any size.

    Formal guarantee
    ----------------
    For any two integer answers at distances at most Δ₁, Δ₂, and v = variance, the Rényi divergence of order α > 1 is
    at most αΔ₂²/2v + min(((2α − 1)Δ₂² + 6Δ₁)/4v², 3Δ₁/2v) (Agarwal, Kairouz and Liu 2021, "The Skellam mechanism", §3:
    coordinates are independent, divergences add, and a ratio of Bessel functions bounds each). From v = 1,000 on it
    also has the Gaussian's own curve, but for a slack (`tacit.boundary.skellam_as_gaussian`). The event carries v, Δ₁
    and Δ₂. Sampling is exact (`tacit.boundary.discrete`); adding is modulo 2⁶⁴, which costs no privacy.
    """

    variance: float

    def __post_init__(self) -> None:
        _positive("variance", self.variance)

    def sample(self, n: int, source: Source) -> NDArray[np.int64]:
        return skellam(source, self.variance, n)

    def event(self, l1: float, l2: float, count: int = 1) -> events.Skellam:
        """What `count` answers spend if a unit moves each by at most `l1` and `l2`, in units of the grid."""
        l1, l2 = _sensitivity(l1), _sensitivity(l2)
        if l2 > l1:
            raise UsageError(f"No integer answer moves by {l2:g} in ℓ2 and by less, {l1:g}, in ℓ1; give both bounds.")
        return events.Skellam(self.variance, l1, l2, count)


@dataclass(frozen=True)
class DiscreteGaussian(_Discrete):
    """y = x + Z with P(Z = z) ∝ exp(−z²/2v) in each coordinate, on integers.

    v bounds the variance from above and is near it from v = 1 on.

    Formal guarantee
    ----------------
    For any two integer answers with ‖x − x'‖₂ ≤ Δ the Rényi divergence of any order α is at most αΔ²/2v, as for the
    continuous Gaussian: the sum Σ_z exp(−(z − s)²/2v) over the integers is largest at integer s, by Poisson's
    summation formula (Canonne, Kamath and Steinke 2020, Theorem 4, and its multivariate form). Sums of several shares
    are not discrete Gaussians; what they cost more is in Kairouz, Liu and Steinke 2021, and
    the event carries the number of shares and of coordinates for that. Sampling is exact.
    """

    variance: float

    def __post_init__(self) -> None:
        _positive("variance", self.variance)

    def sample(self, n: int, source: Source) -> NDArray[np.int64]:
        return discrete_gaussian(source, self.variance, n)

    def event(self, l2: float, dimensions: int, shares: int = 1, count: int = 1) -> events.DiscreteGaussian:
        """What `count` answers in `dimensions` coordinates spend, each the sum of `shares` of this noise."""
        if shares > 1 and self.variance < 2:
            raise PrivacyRefused(
                f"Shares of discrete Gaussian noise need a variance of 2 at least; this has {self.variance:g}. "
                "Use Skellam noise, or a finer grid."
            )
        return events.DiscreteGaussian(self.variance, _sensitivity(l2), dimensions, shares, count)


@dataclass(frozen=True)
class DiscreteLaplace(_Discrete):
    """y = x + Z with P(Z = z) ∝ exp(−|z|/scale) in each coordinate, on integers: quantise first.

    Formal guarantee
    ----------------
    For any two integer answers with ‖x − x'‖₁ ≤ Δ, P(y)/P'(y) = exp((‖y − x'‖₁ − ‖y − x‖₁)/scale) ≤ e^(Δ/scale): ε-DP
    with ε = Δ/scale. The event is `Pure`, not `Laplace`: at Δ = 1 the loss is always ±1/scale, which is randomised
    response, and composes worse than continuous Laplace noise. Sampling is exact, the scale rounded up if anything.
    """

    scale: float

    def __post_init__(self) -> None:
        _positive("scale", self.scale)

    def sample(self, n: int, source: Source) -> NDArray[np.int64]:
        return discrete_laplace(source, self.scale, n)

    def event(self, l1: float, count: int = 1) -> events.Pure:
        """What `count` answers spend if a unit moves each by at most `l1`, in units of the grid."""
        return events.Pure(math.nextafter(_sensitivity(l1) / self.scale, math.inf), "discrete Laplace", count)


def _positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise PrivacyRefused(f"Noise with {name} = {value:g} protects no one; give a positive number.")


def _sensitivity(value: float) -> float:
    if not 0 < value < math.inf:
        raise PrivacyRefused(
            f"No noise protects an answer whose sensitivity is {value:g}; bound what a unit can move, by clipping it."
        )
    return value


def _not_finite(name: str, x: Array) -> PrivacyRefused:
    """The error for a block that is not finite; the block is emptied."""
    x.fill(0)
    return PrivacyRefused(f'"{name}" holds a number that is not finite, which noise cannot cover; clip before adding.')
