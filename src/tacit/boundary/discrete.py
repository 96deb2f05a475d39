"""Exact samplers of noise over the whole numbers: discrete Laplace, discrete Gaussian, Poisson, Skellam.

All are rejection samplers in the manner of Canonne, Kamath and Steinke 2020 ("The discrete Gaussian for differential
privacy", §5): a candidate from an easier distribution is kept with the toss of a coin of known bias, and no normalising
constant is ever needed. They toss Bernoulli(e^−γ) coins by a series of fair comparisons of rationals; here a coin is
one comparison of a uniform number U with p:

- U has 53 bits at first and as many as are needed later;
- p is computed in float64, with an error below `DOUBT` = 2⁻³⁶ (the worst seen is 2⁻⁴⁷);
- where |U − p| ≤ DOUBT, that is once in 2³⁵ tosses, p is computed again, to 50 digits, from exact rationals.

So each coin comes up heads with probability p to within 10⁻⁵⁰, parameters being the exact binary value of the float
that was given, and a draw is within 10⁻⁴⁸ of its distribution in total variation. Candidates, signs and ranges are
integers throughout. What is *not* hidden is time: a sampler that rejects takes longer for some outcomes than for others
(Jin et al. 2022, "Are we there yet?"), so an observer should see the clock of whole releases only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tacit.boundary.source import Source
from tacit.errors import UsageError

DOUBT = 2.0**-36

#: Where all whole numbers that can turn up fit into float64 and int64.
SMALLEST, LARGEST = 2.0**-40, 2.0**40

Integers = NDArray[np.int64]
Exact = Callable[[int], Decimal]


def discrete_laplace(source: Source, scale: float, n: int) -> Integers:
    """P(x) ∝ e^(−|x|/scale) over the whole numbers, (n,) int64 (their Algorithm 2).

    The scale is rounded up to t/s, with t < 2⁵⁰ and s a power of two: by at most 2⁻⁴⁸ of it, or 2⁻⁶² if that is more.
    """
    _check("scale", scale, LARGEST)
    s = 1 << min(62, 49 - math.frexp(scale)[1])
    t = math.ceil(Fraction(scale) * s)
    return _gathered(n, lambda m: _laplace_candidates(source, t, s, m))


def discrete_gaussian(source: Source, variance: float, n: int) -> Integers:
    """P(x) ∝ e^(−x²/2σ²) over the whole numbers, (n,) int64 (their Algorithm 3).

    Candidates are discrete Laplace of scale t = ⌊σ⌋ + 1; y is kept with probability exp(−(|y| − σ²/t)²/2σ²).
    """
    _check("variance", variance, LARGEST**2)
    t = math.isqrt(int(variance)) + 1
    exact_variance = Fraction(variance)

    def kept(m: int) -> Integers:
        y = _laplace_candidates(source, t, 1, m)
        size = np.abs(y)

        def exact(i: int) -> Decimal:
            return _exp(-((int(size[i]) - exact_variance / t) ** 2) / (2 * exact_variance))

        off = size - variance / t
        return y[_coins(source, np.exp(-off * off / (2.0 * variance)), exact)]

    return _gathered(n, kept)


def skellam(source: Source, variance: float, n: int) -> Integers:
    """The difference of two Poisson variables of mean variance/2, (n,) int64. Shares add up: variances do."""
    _check("variance", variance, LARGEST)
    return _poisson(source, variance / 2, n) - _poisson(source, variance / 2, n)


def poisson(source: Source, mean: float, n: int) -> Integers:
    """P(k) = μᵏ e^−μ / k!, (n,) int64, at any mean.

    Candidates are m + y, with m = ⌊μ⌋ and y discrete Laplace of scale t = ⌊√μ⌋ + 1; k is kept with probability
    P(k)·e^(|k−m|/t)/M. M bounds that ratio: on either side of m it rises as long as its factor μ/(k+1)·e^(1/t) (to the
    right) or k/μ·e^(1/t) (to the left) is above 1, so it is largest at ⌊μe^(1/t)⌋ or ⌈μe^(−1/t)⌉ − 1. At least 0.45 of
    the candidates are kept, 0.76 where μ is large.
    """
    _check("mean", mean, LARGEST)
    return _poisson(source, mean, n)


# -- inside --------------------------------------------------------------------------------------------------------


def _poisson(source: Source, mean: float, n: int) -> Integers:
    m, t = int(mean), math.isqrt(int(mean)) + 1
    tops = np.array([m, math.floor(mean * math.exp(1 / t)), math.ceil(mean * math.exp(-1 / t)) - 1])
    tops = np.maximum(tops[:, None] + np.array([-1, 0, 1]), 0).ravel()
    most = float(np.max(_log_poisson(tops, mean) + np.abs(tops - m) / t)) + 2.0**-30  # rounding cannot make p exceed 1

    def kept(size: int) -> Integers:
        k = m + _laplace_candidates(source, t, 1, size)
        k = k[k >= 0]

        def exact(i: int) -> Decimal:
            count = int(k[i])
            with localcontext() as digits:
                digits.prec = 100
                power = count * Decimal(mean).ln() - Decimal(mean) - _log_factorial(count)
                return (power + Decimal(abs(count - m)) / t - Decimal(most)).exp()

        return k[_coins(source, np.exp(_log_poisson(k, mean) + np.abs(k - m) / t - most), exact)]

    return _gathered(n, kept)


def _laplace_candidates(source: Source, t: int, s: int, m: int) -> Integers:
    """Discrete Laplace of scale t/s: some of at most m tries.

    u + t·v has P ∝ e^(−(u+tv)/t) over the whole numbers from 0 if u is uniform below t and kept with e^(−u/t), and v is
    how often a coin of bias 1/e comes up heads in a row; its quotient by s, with a sign, is Laplace unless it is −0.
    """
    u = source.integers(t, m)
    u = u[_coins(source, np.exp(-u / t), lambda i: _exp(Fraction(-int(u[i]), t)))]
    v, rising = np.zeros(len(u), dtype=np.int64), np.arange(len(u))
    while rising.size:
        rising = rising[_coins(source, np.full(rising.size, math.exp(-1.0)), lambda i: _exp(Fraction(-1)))]
        v[rising] += 1
    size = (u + t * v) // s
    negative = source.words(len(size)) >> np.uint64(63) == 1
    laplace: Integers = np.where(negative, -size, size)[~(negative & (size == 0))]
    return laplace


def _coins(source: Source, p: NDArray[np.float64], exact: Exact) -> NDArray[np.bool_]:
    """One toss for each of the probabilities; exact(i) is p[i] to 50 digits, asked for where float64 cannot decide."""
    drawn = source.words(len(p)) >> np.uint64(11)
    u = drawn * 2.0**-53
    heads = u < p
    for i in np.flatnonzero(np.abs(u - p) <= DOUBT):
        heads[i] = _decided(source, int(drawn[i]), exact(int(i)))
    return heads


def _decided(source: Source, drawn: int, p: Decimal) -> bool:
    """Whether a uniform number that starts with the 53 bits `drawn` is below p; where they do not tell, 128 more do."""
    with localcontext() as digits:
        digits.prec = 120
        scaled = p * 2**53
        if int(scaled) != drawn:
            return drawn < scaled
        more = source.words(2)
        return Decimal((int(more[0]) << 64) | int(more[1])) < (scaled - drawn) * 2**128


def _exp(power: Fraction) -> Decimal:
    with localcontext() as digits:
        digits.prec = 80
        return (Decimal(power.numerator) / Decimal(power.denominator)).exp()


def _gathered(n: int, some: Callable[[int], Integers]) -> Integers:
    """The first n of independent draws that come in batches of unknown size."""
    parts, missing = [np.empty(0, dtype=np.int64)], n
    while missing > 0:
        parts.append(some(2 * missing + 16)[:missing])
        missing -= len(parts[-1])
    return np.concatenate(parts)


def _check(what: str, value: float, most: float) -> None:
    if not SMALLEST <= value <= most:
        raise UsageError(f"Discrete noise needs a {what} in [{SMALLEST:g}, {most:g}], which {value:g} is not.")


# -- ln P of a Poisson variable ------------------------------------------------------------------------------------

#: Stirling's series of ln k! − ((k + ½) ln k − k + ½ ln 2π): it is enveloping, its error below the first term left out.
_STIRLING = [Fraction(*c) for c in ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156))]

_PI = Decimal("3.1415926535897932384626433832795028841971693993751058209749445923078164062862089986280348253421")


def _log_poisson(k: Integers, mean: float) -> NDArray[np.float64]:
    """ln P(k) without cancellation: −½ ln 2πk − rest(k) − D, D = k ln(k/μ) + μ − k (Loader 2000, "Fast and accurate…").

    With v = (k − μ)/(k + μ), D = (k − μ)·v + 2k·(v³/3 + v⁵/5 + …), which keeps its digits where k is near μ.
    """
    safe = np.maximum(k, 1).astype(np.float64)
    v = (safe - mean) / (safe + mean)
    near = np.abs(v) < 0.1
    square = np.where(near, v * v, 0.0)
    series = np.zeros_like(square)
    for j in range(8, 0, -1):
        series = square * (1 / (2 * j + 1) + series)
    distance = np.where(near, (safe - mean) * v + 2.0 * safe * v * series, safe * np.log(safe / mean) + mean - safe)
    inverse = 1.0 / (safe * safe)
    rest = np.zeros_like(safe)
    for c in reversed(_STIRLING[:5]):
        rest = rest * inverse + float(c)
    rest = np.where(safe < 16, _small_rests()[np.minimum(k, 15)], rest / safe)
    return np.where(k == 0, -mean, -0.5 * np.log(2.0 * math.pi * safe) - rest - distance)


@cache
def _small_rests() -> NDArray[np.float64]:
    """What Stirling's formula leaves of ln k!, for k below 16."""
    stirling = [(k + 0.5) * math.log(k) - k + 0.5 * math.log(2 * math.pi) for k in range(1, 16)]
    return np.array([0.0] + [math.lgamma(k + 1) - s for k, s in enumerate(stirling, start=1)])


def _log_factorial(k: int) -> Decimal:
    """ln k!, in the precision of the context, to 10⁻⁵⁰ or better."""
    if k <= 2000:
        return Decimal(math.factorial(k)).ln()
    rest = sum((Decimal(c.numerator) / c.denominator / Decimal(k) ** (2 * j + 1) for j, c in enumerate(_STIRLING)))
    pi = Decimal(
        "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798"
    )
    return (k + Decimal("0.5")) * Decimal(k).ln() - k + (2 * pi).ln() / 2 + rest
