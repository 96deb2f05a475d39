"""Seeded words and noise: the kernel equals its twin in every bit, and is a function of key, stream and place alone."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import assert_finds

from tacit.boundary.query import Rows
from tacit.kernels.noise import (
    LANES,
    TILE,
    _gaussian_pair,
    add_noise,
    add_noise_numpy,
    noised_rows,
    noised_rows_numpy,
    random_words,
    random_words_numpy,
    standard_normals,
    standard_normals_numpy,
)
from tacit.rng import derive, stream_key

KEYS = st.binary(min_size=32, max_size=32)
STREAMS = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1))
STARTS = st.one_of(st.integers(0, 5), st.integers(0, 3 * TILE), st.integers(0, 2**45))
SIZES = st.one_of(st.integers(0, 5), st.integers(0, 3 * TILE))
KEY = stream_key(7, "test", "noise")
GOLDEN_WORDS, GOLDEN_NORMALS = ["0x8fb21540", "0xf6e1a76"], "9297693f9e0102c0"


def same_bits(a, b):
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a.view(f"u{a.itemsize}"), b.view(f"u{b.itemsize}"))


@given(KEYS, SIZES, STREAMS, STARTS)
@settings(deadline=None)
def test_words_and_normals_equal_their_twins_in_every_bit(key, n, stream, start):
    same_bits(random_words(key, n, stream, start), random_words_numpy(key, n, stream, start))
    same_bits(standard_normals(key, n, stream, start), standard_normals_numpy(key, n, stream, start))


@pytest.mark.parametrize("stream", [0, 9, 2**32 + 1])
def test_with_20_rounds_the_twin_is_chacha20(stream):
    """The library's cipher takes counter and nonce, 64 bits each, in that order; a tile holds its blocks by columns."""
    for tile in (0, 1, 2**26):
        nonce = (tile * LANES).to_bytes(8, "little") + stream.to_bytes(8, "little")
        stated = Cipher(algorithms.ChaCha20(KEY, nonce), None).encryptor().update(bytes(4 * TILE))
        blocks = np.frombuffer(stated, dtype="<u4").reshape(LANES, 16)
        same_bits(random_words_numpy(KEY, TILE, stream, tile * TILE, rounds=20), blocks.T.reshape(-1))


def test_the_stream_stays_what_it_is():
    """A seeded run must give the same numbers in years to come."""
    assert [hex(w) for w in random_words(bytes(range(32)), 2)] == GOLDEN_WORDS
    assert standard_normals(bytes(range(32)), 2).tobytes().hex() == GOLDEN_NORMALS


def check(kernel, dtype, n, start, sigma):
    x = (10 * derive(n, "x").standard_normal(n)).astype(dtype)
    expected = add_noise_numpy(x.copy(), sigma, KEY, 3, start)
    found = x.copy()
    assert kernel(found, sigma, KEY, 3, start) is found, "in place"
    same_bits(found, expected)


@given(st.sampled_from([np.float32, np.float64]), SIZES, STARTS, st.sampled_from([1e-30, 0.1, 1.0, 2.5, 1e20]))
@settings(deadline=None)
def test_noise_equals_its_twin_in_every_bit(dtype, n, start, sigma):
    check(add_noise, dtype, n, start, sigma)


def planted_noise(change):
    """A kernel that adds the twin's noise with other arguments."""

    def kernel(x, *arguments):
        x[:] = add_noise_numpy(*change(x, *arguments))
        return x

    return kernel


@pytest.mark.parametrize(
    "change",
    [
        lambda x, sigma, key, stream, start: (x, sigma, key, stream, start + 1),
        lambda x, sigma, key, stream, start: (x, sigma, key, stream, 0),  # forgets the place
        lambda x, sigma, key, stream, start: (x, sigma, key, 0, start),  # forgets the stream
        lambda x, sigma, key, stream, start: (x, sigma, key[::-1], stream, start),
        lambda x, sigma, key, stream, start: (x, sigma * (1 + 1e-6), key, stream, start),
        lambda x, sigma, key, stream, start: (x.astype(float), sigma, key, stream, start),
        lambda x, sigma, key, stream, start: (0 * x, sigma, key, stream, start),  # replaces, not adds
    ],
)
def test_a_planted_bug_is_found(change):
    assert_finds(planted_noise(change), check, add_noise, [np.float32, np.float64], 2 * TILE + 17, 5, 2.5)


def check_rows(kernel, case):
    """Rows of all sizes, so that they end within tiles and go on in the next."""
    seed, n, p, share = case
    stream = derive(seed, "rows")
    rows = np.flatnonzero(stream.random(n) < share)
    values = 10 * stream.standard_normal((len(rows), p))
    same_bits(kernel(n, rows, values, 2.5, KEY, 3), noised_rows_numpy(n, rows, values, 2.5, KEY, 3))


@given(
    st.integers(0, 2**32), st.integers(0, 300), st.sampled_from([1, 2, 7, 20, TILE + 1]), st.sampled_from([0, 0.1, 1])
)
@settings(deadline=None, max_examples=60)
def test_rows_get_the_noise_of_the_whole_block(seed, n, p, share):
    check_rows(noised_rows, (seed, n if p < TILE else n % 5, p, share))


@pytest.mark.parametrize(
    "planted",
    [
        lambda n, rows, values, sigma, key, stream: noised_rows(n, rows, 0 * values, sigma, key, stream),
        lambda n, rows, values, sigma, key, stream: noised_rows(n, rows, values, sigma, key, stream + 1),
        lambda n, rows, values, *more: noised_rows(n, rows, values, *more) * np.isin(np.arange(n), rows)[:, None],
        lambda n, rows, values, *more: add_noise(Rows(n, rows, values).dense().astype(np.float32), *more),
    ],
    ids=["no values", "another stream", "noise on touched rows alone", "rounded before the noise"],
)
def test_rows_without_their_noise_are_found(planted):
    assert_finds(planted, check_rows, noised_rows, [(seed, 200, 20, 0.1) for seed in range(5)])


def test_what_cannot_take_its_noise_is_refused():
    for rows in ([1, 1], [2, 1], [-1, 0], [0, 5]):
        with pytest.raises(ValueError, match="must increase"):
            noised_rows(5, np.array(rows), np.zeros((2, 3)), 1.0, KEY)
    with pytest.raises(ValueError):  # not contiguous
        add_noise(np.zeros((4, 4), dtype=np.float32).T[:2], 1.0, KEY)


@given(st.integers(0, 3 * TILE), st.integers(0, 3 * TILE), st.integers(0, 2**40))
@settings(deadline=None)
def test_pieces_make_the_same_noise_as_the_whole(n, cut, start):
    cut = min(cut, n)
    whole = standard_normals(KEY, n, 5, start)
    pieces = [standard_normals(KEY, cut, 5, start), standard_normals(KEY, n - cut, 5, start + cut)]
    same_bits(np.concatenate(pieces), whole)


@pytest.mark.parametrize("sigma", [0.1, 1 / 3, 1e-8, 12345.678])
def test_sigma_is_never_rounded_down(sigma):
    """It is x·(σ + a little), so that the product with any Gaussian is no smaller but for its own rounding."""
    noise, plain = add_noise(np.zeros(1000, dtype=np.float32), sigma, KEY), standard_normals(KEY, 1000)
    ratio = noise.astype(np.float64) / plain
    assert sigma * (1 - 2**-24) <= ratio.min() <= ratio.max() <= sigma * (1 + 2**-22)
    assert sigma <= ratio.mean()


def reference(a, b):
    """The pair in float64, with the library's functions."""
    u = (a + (b & 255) / 256 + 1 / 512) / 2**32
    r = np.sqrt(-2 * np.log(u))
    t = (((b >> 8) & 0x3FFFFF) - 2097151.5) * np.pi / 2 / 2**22
    cosine, sine = (-1 if b >> 31 else 1) * r * np.cos(t), r * np.sin(t)
    return (sine, cosine) if (b >> 30) & 1 else (cosine, sine)


@given(
    st.one_of(st.integers(0, 2**32 - 2**10), st.integers(0, 1000)),
    st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 255, 2**30 - 1, 2**31, 2**32 - 1])),
)
@settings(deadline=None, max_examples=500)
def test_the_polynomials_are_logarithm_sine_and_cosine(a, b):
    """|error| ≤ 10⁻⁶ but where u is within 2⁻²² of 1: there r itself is below 0.0007, and float32 rounds u."""
    found = np.array(_gaussian_pair(np.uint32(a), np.uint32(b)), dtype=np.float64)
    tolerance = 1e-6 if a < 2**32 - 2**24 else 2e-4
    np.testing.assert_allclose(found, reference(a, b), rtol=2e-6, atol=tolerance)
