"""Exact samplers of noise over the integers: discrete Laplace, discrete Gaussian, Poisson, Skellam.

All are rejection samplers in the manner of Canonne, Kamath and Steinke 2020 ("The discrete Gaussian for differential
privacy", §5): a coin of known bias decides whether to accept a candidate from an easier distribution, and no
normalising constant is needed. They toss Bernoulli(e^−γ) coins by a series of fair comparisons of rationals; here a
coin is one comparison of a uniform number U with p:

- U has 53 bits at first, or 32 where those decide, and as many more as are needed;
- p is computed in float64, with an error below `DOUBT` = 2⁻³⁶ (the worst seen is 2⁻⁴⁷);
- where |U − p| ≤ DOUBT, that is once in 2³⁵ tosses, p is computed again, to 50 digits, from exact rationals.

So each coin comes up heads with probability p to within 10⁻⁵⁰, parameters being the exact binary value of the float
that was given, and a draw is within 10⁻⁴⁸ of its distribution in total variation. Candidates, signs and ranges are
integers throughout. What is *not* hidden is time: a sampler that rejects takes longer for some outcomes than for others
(Jin et al. 2022, "Are we there yet?"), so an observer should see the time of complete releases only.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from tacit.boundary.randomness import Source
from tacit.errors import UsageError

DOUBT = 2.0**-36

#: Where all integers that can occur fit into float64 and int64.
SMALLEST, LARGEST = 2.0**-40, 2.0**40

#: Slots of a table of Poisson candidates; and how many candidates are drawn at a time.
SLOTS, BATCH = 1 << 16, 1 << 15

#: Stirling's series of ln k! − ((k + ½) ln k − k + ½ ln 2π): it is enveloping, its error below the first term left out.
_STIRLING = [Fraction(*c) for c in ((1, 12), (-1, 360), (1, 1260), (-1, 1680), (1, 1188), (-691, 360360), (1, 156))]

_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534211706798")

Integers = NDArray[np.int64]
Exact = Callable[[int], Decimal]


def discrete_laplace(source: Source, scale: float, n: int) -> Integers:
    """P(x) ∝ e^(−|x|/scale) over the integers, (n,) int64 (their Algorithm 2).

    The scale is rounded up to t/s, with t < 2⁵⁰ and s a power of two: by at most 2⁻⁴⁸ of it, or 2⁻⁶² if that is more.
    """
    _check("scale", scale, LARGEST)
    s = 1 << min(62, 49 - math.frexp(scale)[1])
    t = math.ceil(Fraction(scale) * s)
    return _gathered(n, lambda m: _laplace_candidates(source, t, s, m))


def discrete_gaussian(source: Source, variance: float, n: int) -> Integers:
    """P(x) ∝ e^(−x²/2σ²) over the integers, (n,) int64 (their Algorithm 3).

    Candidates are discrete Laplace of scale t = ⌊σ⌋ + 1; y is kept with probability exp(−(|y| − σ²/t)²/2σ²).
    """
    _check("variance", variance, LARGEST**2)
    t = math.isqrt(int(variance)) + 1
    exact_variance = Fraction(variance)

    def accepted(m: int) -> Integers:
        y = _laplace_candidates(source, t, 1, m)
        size = np.abs(y)

        def exact(i: int) -> Decimal:
            return _exp(-((int(size[i]) - exact_variance / t) ** 2) / (2 * exact_variance))

        off = size - variance / t
        return y[_coins(source, np.exp(-off * off / (2.0 * variance)), exact)]

    return _gathered(n, accepted)


def skellam(source: Source, variance: float, n: int) -> Integers:
    """The difference of two Poisson variables of mean variance/2, (n,) int64. Shares add up: variances do."""
    _check("variance", variance, LARGEST)
    return poisson(source, variance / 2, n) - poisson(source, variance / 2, n)


@dataclass(frozen=True)
class _Table:
    """How Poisson candidates of one mean are made. Bins come first, then the right tail, then the left if there is one.

    Attributes
    ----------
    bin_of : (2¹⁶,) the bin of each slot
    starts, steps : (bins,) its smallest number; a tail's first one, and the way that it goes
    slots, sure, logs : (bins,) w; how many of 2³² values of U's first 32 bits keep any k; ln(F/w), or a tail's like
    mask : 2ʲ − 1
    inside : how many bins are no tails
    scales : t of the tails
    factor : F
    """

    bin_of: NDArray[np.uint16]
    starts: Integers
    steps: Integers
    slots: Integers
    sure: NDArray[np.uint64]
    logs: NDArray[np.float64]
    mask: int
    inside: int
    scales: tuple[int, ...]
    factor: float


@lru_cache(maxsize=32)
def _table(mean: float) -> _Table:
    m, spread = int(mean), math.sqrt(mean)
    width = 1 << max(0, math.frexp(spread / 32)[1] - 1)
    reach = math.ceil(4.5 * spread) + 4
    first = max(0, m - reach)
    inside = -((first - m - reach) // width)
    starts = first + width * np.arange(inside)
    ends = np.stack([_log_poisson(starts, mean), _log_poisson(starts + width - 1, mean)])
    at_peak = float(_log_poisson(np.array([m]), mean)[0])
    highest = width * np.exp(np.where(np.arange(inside) == (m - first) // width, at_peak, ends.max(axis=0)))

    after, before = first + width * inside, max(1, first - 1)
    tails = [(after, 1, 1 + int(1 / math.log((after + 1) / mean)))]
    if first > 0:
        tails.append((first - 1, -1, 1 + int(1 / math.log(mean / before))))
    begins, steps, scales = (np.array(column) for column in zip(*tails, strict=True))
    heights = np.append(highest, np.exp(_log_poisson(begins, mean)) / -np.expm1(-1 / scales)) * (1 + 2.0**-30)

    factor = float(width * (SLOTS - len(heights)) / heights.sum())
    slots = (factor / width * heights).astype(np.int64) + 1
    slots[np.argmax(slots)] += SLOTS - slots.sum()
    logs = np.log(factor / slots)
    logs[inside:] -= np.log(width * -np.expm1(-1 / scales))
    sure = np.maximum(2.0**32 * np.exp(ends.min(axis=0) + logs[:inside]) - 2, 0)  # 2 is for rounding
    return _Table(
        bin_of=np.repeat(np.arange(len(slots)), slots).astype(np.uint16),
        starts=np.append(starts, begins),
        steps=np.append(np.zeros(inside, dtype=np.int64), steps),
        slots=slots,
        sure=np.append(sure, np.zeros(len(tails))).astype(np.uint64),
        logs=logs,
        mask=width - 1,
        inside=inside,
        scales=tuple(scales.tolist()),
        factor=factor,
    )


def poisson(source: Source, mean: float, n: int) -> Integers:
    """P(k) = μᵏ e^−μ / k!, (n,) int64, at any mean.

    One word is one candidate, by a table of 2¹⁶ *slots*. Integers within about 4.5 standard deviations of the mean
    lie in *bins* of 2ʲ neighbours; bin b has w_b slots, in proportion to the largest P in it, and the two tails have
    some. The word's first 16 bits choose a slot, the next ones a number k in its bin, and the last 32 begin the U of
    the coin that keeps k. A k of bin b comes up with probability w_b/2^(16+j) and is kept with F·P(k)/w_b, where F is
    one number for all, so small that this is at most 1; so what is kept has law P. As P has one peak, it is smallest at
    an end of the bin: below what that end is kept with, U keeps any k, and P(k) need not be computed. At least 0.98 of
    the candidates are kept, all but 0.013 of those so.

    In a tail k is g steps from its beginning, with g geometric, P(g) ∝ e^(−g/t). There P falls by a factor of at least
    e^(1/t) a step, so that P(k)·e^(g/t) is largest at the beginning, which is what the tail's slots are in proportion
    to.
    """
    _check("mean", mean, LARGEST, SMALLEST / 2)
    table = _table(mean)

    def accepted(size: int) -> Integers:
        drawn = source.words(size)
        bins = table.bin_of[drawn >> np.uint64(48)]
        k = table.starts[bins] + ((drawn >> np.uint64(32)) & np.uint64(table.mask)).view(np.int64)
        leading = drawn & np.uint64(0xFFFFFFFF)
        heads = leading < table.sure[bins]
        unsure = np.flatnonzero(~heads)
        k[unsure], heads[unsure] = _weighed(source, table, mean, k[unsure], bins[unsure], leading[unsure])
        chosen: Integers = k[heads]
        return chosen

    return _gathered(n, accepted, 1.05)


def _weighed(
    source: Source, table: _Table, mean: float, k: Integers, bins: NDArray[np.uint16], leading: NDArray[np.uint64]
) -> tuple[Integers, NDArray[np.bool_]]:
    """Candidates whose P has to be computed, those in tails made first; and which of them are kept."""
    beyond, tilt = np.zeros(len(k), dtype=np.int64), np.zeros(len(k))
    for tail, scale in enumerate(table.scales, start=table.inside):
        here = np.flatnonzero(bins == tail)
        beyond[here] = _gathered(len(here), partial(_geometric, source, scale))
        tilt[here] = beyond[here] / scale
        k[here] = table.starts[tail] + table.steps[tail] * beyond[here]

    def exact(i: int) -> Decimal:
        count, tail = int(k[i]), int(bins[i]) - table.inside
        if count < 0:
            return Decimal(0)
        with localcontext() as digits:
            digits.prec = 100
            power = count * Decimal(mean).ln() - Decimal(mean) - _log_factorial(count)
            share = Decimal(table.factor) / int(table.slots[bins[i]])
            if tail < 0:
                return power.exp() * share
            scale = table.scales[tail]
            flat = (table.mask + 1) * (1 - (Decimal(-1) / scale).exp())
            return (power + Decimal(int(beyond[i])) / scale).exp() * share / flat

    p = np.exp(_log_poisson(np.maximum(k, 0), mean) + tilt + table.logs[bins])
    return k, _coins(source, np.where(k < 0, 0.0, p), exact, leading)


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
    return (k + Decimal("0.5")) * Decimal(k).ln() - k + (2 * _PI).ln() / 2 + rest


def _laplace_candidates(source: Source, t: int, s: int, m: int) -> Integers:
    """Discrete Laplace of scale t/s: some of at most m tries; a geometric variable's quotient by s, with a sign, unless
    that makes −0."""
    size = _geometric(source, t, m) // s
    negative = source.words(len(size)) >> np.uint64(63) == 1
    laplace: Integers = np.where(negative, -size, size)[~(negative & (size == 0))]
    return laplace


def _geometric(source: Source, t: int, m: int) -> Integers:
    """P(x) ∝ e^(−x/t) over the integers from 0: some of at most m tries.

    They are u + t·v, with u uniform below t and kept with e^(−u/t), and v the heads of a coin of bias 1/e in a row.
    """
    u = source.integers(t, m)
    u = u[_coins(source, np.exp(-u / t), lambda i: _exp(Fraction(-int(u[i]), t)))]
    v, rising = np.zeros(len(u), dtype=np.int64), np.arange(len(u))
    while rising.size:
        rising = rising[_coins(source, np.full(rising.size, math.exp(-1.0)), lambda i: _exp(Fraction(-1)))]
        v[rising] += 1
    return u + t * v


def _coins(
    source: Source, p: NDArray[np.float64], exact: Exact, leading: NDArray[np.uint64] | None = None
) -> NDArray[np.bool_]:
    """One toss for each of the probabilities; exact(i) is p[i] to 50 digits, computed where float64 cannot decide.

    `leading` are the first 32 bits of each U where they were drawn before.
    """
    drawn = source.words(len(p))
    drawn = drawn >> np.uint64(11) if leading is None else leading << np.uint64(21) | drawn >> np.uint64(43)
    u = drawn * 2.0**-53
    heads = u < p
    for i in np.flatnonzero(np.abs(u - p) <= DOUBT):
        heads[i] = _decided(source, int(drawn[i]), exact(int(i)))
    return heads


def _decided(source: Source, drawn: int, p: Decimal) -> bool:
    """Whether a uniform number that starts with the 53 bits `drawn` is below p; 128 more decide if those do not."""
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


def _gathered(n: int, some: Callable[[int], Integers], tries: float = 2.0) -> Integers:
    """The first n of independent draws that come in batches of unknown size, small enough for the cache."""
    out, have = np.empty(n, dtype=np.int64), 0
    while have < n:
        found = some(min(BATCH, int(tries * (n - have)) + 16))[: n - have]
        out[have : have + len(found)] = found
        have += len(found)
    return out


def _check(what: str, value: float, most: float, least: float = SMALLEST) -> None:
    if not least <= value <= most:
        raise UsageError(f"Discrete noise needs a {what} in [{least:g}, {most:g}], which {value:g} is not.")
