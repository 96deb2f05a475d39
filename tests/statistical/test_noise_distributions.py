"""Both sources draw Gaussians as they should, and every check is seen to fail on noise that is wrong.

A *stream* is a function n → the next n numbers; a check names the first thing that is wrong, or nothing. Every single
comparison fails by chance once in a million (`ALARM`) for true Gaussians; seeds and keys are fixed, so that chance was
taken once. n stands beside each test.
"""

import os
from functools import partial

import numpy as np
import pytest
from scipy import special, stats

from tacit.boundary.randomness import Secure, Seeded
from tacit.kernels.noise import add_noise, standard_normals
from tacit.rng import stream_key

ALARM = 1e-6
Z = stats.norm.isf(ALARM / 2)  # 4.89


def checked(stream, n, checks):
    """The first complaint of several checks."""
    for check in checks:
        complaint = check(stream, n)
        if complaint:
            return complaint
    return None


def moments_and_histogram(stream, n, chunk=1 << 20):
    """Mean, variance, skewness and kurtosis, then 512 bins of width 1/32, then tails."""
    sums, counts = np.zeros(4), np.zeros(514, dtype=np.int64)
    for _ in range(-(-n // chunk)):
        x = stream(chunk)
        wide = x.astype(np.float64)
        square = wide * wide
        sums += wide.sum(), square.sum(), square @ wide, square @ square
        place = np.floor(x * x.dtype.type(32)).astype(np.int32)  # exact: 32 is a power of 2
        counts += np.bincount(np.clip(place + 257, 0, 513), minlength=514)
    n = counts.sum()
    # moments of a standard Gaussian, and their standard deviations times √n
    for name, value, spread in zip(
        ("mean", "variance", "third moment", "fourth moment"),
        sums / n - [0, 1, 0, 3],
        np.sqrt([1, 2, 15, 96]),
        strict=True,
    ):
        if abs(value) * np.sqrt(n) > Z * spread:
            return f"{name} off by {value:.2e}, {value * np.sqrt(n) / spread:.1f} standard errors"
    edges = np.concatenate([[-np.inf], np.arange(-256, 257) / 32, [np.inf]])
    expected = n * np.diff(stats.norm.cdf(edges))
    expected[257:] = n * -np.diff(stats.norm.sf(edges[257:]))
    full = expected >= 10
    chi = np.sum((counts[full] - expected[full]) ** 2 / expected[full])
    if chi > stats.chi2.isf(ALARM, full.sum()):
        return f"histogram: χ² = {chi:.0f} on {full.sum()} bins"
    for edge in (3, 4, 4.5, 5):
        beyond = int(counts[np.abs(np.concatenate([[-9], edges[1:-1], [9]])[:-1] + 1 / 64) > edge].sum())
        complaint = rare(beyond, 2 * n * stats.norm.sf(edge), f"beyond {edge}")
        if complaint:
            return complaint
    return None


def rare(count, expected, what):
    """A count of rare events against its Poisson distribution."""
    if min(stats.poisson.cdf(count, expected), stats.poisson.sf(count - 1, expected)) < ALARM / 2:
        return f"{what}: {count} where {expected:.1f} are expected"
    return None


def far_tails(stream, n, chunk=1 << 18):
    """How many lie beyond 5.5 and beyond 6."""
    beyond = np.zeros(2, dtype=np.int64)
    for _ in range(-(-n // chunk)):
        x = stream(chunk)
        if x.max() > 5.5 or x.min() < -5.5:
            beyond += [np.count_nonzero(np.abs(x) > edge) for edge in (5.5, 6)]
    complaints = (
        rare(c, 2 * n * stats.norm.sf(edge), f"beyond {edge}") for c, edge in zip(beyond, (5.5, 6), strict=True)
    )
    return next(filter(None, complaints), None)


def goodness_of_fit(stream, n):
    """Kolmogorov–Smirnov, and Anderson–Darling, whose tail is near e^−z/2: P(A² > 13) is about 10⁻⁶."""
    x = np.sort(stream(n).astype(np.float64))
    uniform = special.ndtr(x)
    steps = np.arange(n)
    distance = max(np.max(uniform - steps / n), np.max((steps + 1) / n - uniform))
    if stats.kstwobign.sf(distance * np.sqrt(n)) < ALARM:
        return f"Kolmogorov–Smirnov distance {distance:.2e}"
    logs = special.log_ndtr(x) + special.log_ndtr(-x[::-1])
    statistic = -n - np.mean((2 * steps + 1) * logs)
    return f"Anderson–Darling {statistic:.1f}" if statistic > 13 else None


def serial_independence(stream, n, lags=(*range(1, 20), 63, 64, 65, 128, 511, 512, 513, 1024, 1025)):
    """Numbers, and their squares, are uncorrelated with later ones; neighbours fill a plane evenly."""
    x = stream(n).astype(np.float64)
    square = (x * x - 1) / np.sqrt(2)
    for lag in lags:
        for name, y in (("numbers", x), ("squares", square)):
            correlation = (y[:-lag] @ y[lag:]) / (n - lag)
            if abs(correlation) * np.sqrt(n - lag) > Z:
                return f"{name} {lag} apart correlate: {correlation:.2e}"
    u = np.minimum((special.ndtr(x) * 32).astype(np.int32), 31)
    for lag in (1, 64, 512):
        counts = np.bincount(u[:-lag] * 32 + u[lag:], minlength=1024)
        chi = np.sum((counts - counts.mean()) ** 2) / counts.mean()
        if chi > stats.chi2.isf(ALARM, 1023):
            return f"pairs {lag} apart do not fill the plane: χ² = {chi:.0f}"
    return None


def no_lattice(stream, n):
    """Low-order bits in [1, 2) are fair coins, and values repeat as seldom as float32 allows."""
    x = stream(n).astype(np.float32)
    inside = np.abs(x[(np.abs(x) >= 1) & (np.abs(x) < 2)])
    for bit in range(12):
        ones = np.count_nonzero(inside.view(np.uint32) & np.uint32(1 << bit))
        if abs(ones - len(inside) / 2) > Z * np.sqrt(len(inside)) / 2:
            return f"bit {bit} of the mantissa is one in {ones / len(inside):.4f} of all"
    # in [1, 2) there are 2²³ floats of either sign; pairs of equal ones are Poisson
    values = x[(np.abs(x) >= 1) & (np.abs(x) < 2)]
    mass = np.diff(stats.norm.cdf(np.linspace(1, 2, 1025)))
    expected = 2 * n**2 / 2 * np.sum(mass**2 / 2**13)
    found = np.sum(special.comb(np.unique(values, return_counts=True)[1], 2))
    if abs(found - expected) > 10 * np.sqrt(expected):
        return f"{found:.0f} equal pairs where {expected:.0f} are expected"
    return None


KEY = stream_key(7, "distribution")


def seeded():
    """Consecutive pieces of one stream."""
    at = 0

    def stream(n):
        nonlocal at
        at += n
        return standard_normals(KEY, n, 1, at - n)

    return stream


@pytest.fixture
def secure(monkeypatch):
    """The secure source with a key that never changes, so that the test doesn't either."""
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed key")[:n])
    return Secure().normal


def test_a_hundred_million_seeded_gaussians():
    """n = 10⁸; 4 moments, a histogram and 4 tails: false alarm 9·10⁻⁶."""
    assert moments_and_histogram(seeded(), 10**8) is None


def test_a_thousand_million_seeded_gaussians_have_the_right_far_tails_and_missing_ones_are_found():
    """n = 10⁹; 38 beyond 5.5 and 2 beyond 6 are expected: false alarm 2·10⁻⁶. Cut at 5.5, n = 4·10⁸: none of 15."""
    buffer, place = np.zeros(1 << 18, dtype=np.float32), iter(range(0, 10**10, 1 << 18))

    def stream(n):
        buffer[:] = 0
        return add_noise(buffer, 1.0, KEY, 2, next(place))

    assert far_tails(stream, 10**9) is None
    assert far_tails(lambda n: np.clip(stream(n), -5.5, 5.5), 4 * 10**8) is not None


FINE = (goodness_of_fit, serial_independence, no_lattice)


def test_a_million_seeded_gaussians_fit_are_independent_and_lie_on_no_lattice():
    """n = 2²¹; about 80 comparisons: false alarm 8·10⁻⁵."""
    assert checked(seeded(), 1 << 21, FINE) is None


def test_a_million_secure_gaussians_fit_are_independent_and_lie_on_no_lattice(secure):
    """n = 4·10⁶, then 2²⁰: false alarm 9·10⁻⁵."""
    assert moments_and_histogram(secure, 4 * 10**6) is None
    assert checked(secure, 1 << 20, FINE) is None


def flipped(key, bit):
    changed = bytearray(key)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_neighbouring_keys_and_streams_have_nothing_in_common():
    """n = 2²⁰ each; 2 statistics over 39 pairs: false alarm 8·10⁻⁵."""
    n, stream = 1 << 20, 5
    first = standard_normals(KEY, n, stream).astype(np.float64)
    others = [standard_normals(flipped(KEY, bit), n, stream) for bit in range(0, 256, 8)]
    others += [standard_normals(KEY, n, stream ^ 1 << bit) for bit in (0, 1, 31, 32, 63)]
    others += [standard_normals(KEY, n, stream, start) for start in (1 << 20, 1 << 40)]
    for other in others:
        for a, b in ((first, other.astype(np.float64)), (first**2 - 1, other.astype(np.float64) ** 2 - 1)):
            assert abs(a @ b) < Z * np.sqrt(n) * a.std() * b.std()
        assert np.count_nonzero(first == other) < 20  # float32 numbers meet by chance: 0.4 expected


@pytest.mark.parametrize("make", [lambda: Seeded(KEY), Secure])
def test_uniform_numbers_and_integers_are_uniform(make, monkeypatch):
    """n = 10⁶; false alarm 10⁻⁶ for each of 6 statistics."""
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed key")[:n])
    source, n = make(), 10**6
    u = source.uniform(n)
    assert 0 < u.min() < u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > ALARM
    words = source.words(n)
    octets = np.bincount(words.view(np.uint8), minlength=256)
    assert stats.chisquare(octets).pvalue > ALARM
    for bit in (0, 31, 63):
        assert abs(np.count_nonzero(words >> np.uint64(bit) & np.uint64(1)) - n / 2) < Z * np.sqrt(n) / 2
    for high in (3, 7, 1000):  # a remainder of 64 bits would pass too; one of 10 bits would not
        assert stats.chisquare(np.bincount(source.integers(high, n), minlength=high)).pvalue > ALARM


def planted(change):
    right = seeded()
    return lambda n: change(right(n))


def again(x):
    """Noise that is used a second time."""
    half = x[: len(x) // 2]
    return np.concatenate([half, half])


def smeared(x):
    y = x.copy()
    y[1:] += np.float32(0.02) * x[:-1]
    return y / np.float32(np.sqrt(1 + 0.02**2))


def mirrored(x):
    """±x, ±x, ±y, ±y, …: uncorrelated, and not independent."""
    return np.copysign(np.repeat(x[::2], 2), x)


def redrawn(limit):
    """Tails cut off, as by a sampler that draws again."""
    return lambda x: np.where(np.abs(x) > limit, x[::-1] * np.float32(0.5), x)


WRONG = {
    "variance 2 % off": (lambda x: x * np.float32(1.01), moments_and_histogram, 10**6),
    "shifted": (lambda x: x + np.float32(0.01), moments_and_histogram, 10**6),
    "tails cut at 4.5": (redrawn(4.5), moments_and_histogram, 10**7),
    "Student with 30 degrees": (lambda x: x * (1 + 0.02 * (x * x - 3)).astype(np.float32), goodness_of_fit, 10**6),
    "used twice": (again, partial(serial_independence, lags=(1 << 17,)), 1 << 18),
    "smeared": (smeared, serial_independence, 1 << 18),
    "neighbours share a size": (mirrored, serial_independence, 1 << 18),
    "on a grid": (lambda x: np.round(x * 2**13) / np.float32(2**13), no_lattice, 1 << 20),
    "20 bits": (lambda x: (x.view(np.uint32) & ~np.uint32(15)).view(np.float32), no_lattice, 1 << 20),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_noise_is_found(wrong):
    change, check, n = WRONG[wrong]
    assert check(planted(change), n) is not None
