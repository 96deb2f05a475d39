"""Both sources draw Gaussians as they should, and every check is seen to fail on noise that is wrong.

n and false-alarm rates stand in `gaussian_checks` and beside each test; seeds and keys are fixed.
"""

import os
from functools import partial

import numpy as np
import pytest
from gaussian_checks import (
    ALARM,
    Z,
    checked,
    far_tails,
    goodness_of_fit,
    moments_and_histogram,
    no_lattice,
    serial_independence,
)
from scipy import stats

from tacit.boundary.randomness import Secure, Seeded
from tacit.kernels.noise import add_noise, standard_normals
from tacit.rng import stream_key

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
