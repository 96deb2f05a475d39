"""Sources draw anew at every call; a seeded or keyed one can be repeated, a secure one by nobody."""

import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary.discrete import discrete_gaussian, skellam
from tacit.boundary.randomness import Keyed, Secure, Seeded
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import stream_key

KEY, OTHER = stream_key(7, "party-1", 3, "noise"), stream_key(8, "party-1", 3, "noise")
SOURCES = {"seeded": lambda: Seeded(KEY), "secure": Secure}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]()


# -- both ----------------------------------------------------------------------------------------------------------


def test_shapes_and_dtypes(source):
    assert (source.words(5).dtype, source.uniform(4).dtype) == (np.uint64, np.float64)
    assert (source.integers(10, 7).dtype, source.normal(3).dtype) == (np.int64, np.float32)
    assert (source.uniform((2, 3)).shape, source.normal((3, 2, 1)).shape, source.normal(()).shape) == (
        (2, 3),
        (3, 2, 1),
        (),
    )
    assert source.words(0).size == source.uniform((0, 3)).size == source.integers(5, 0).size == source.normal(0).size


def test_no_two_calls_give_the_same(source):
    drawn = np.concatenate([source.words(n) for n in (1, 2, 3, 1000, 70_000, 1000, 1)])
    assert len(np.unique(drawn)) == len(drawn)
    noise = np.concatenate([source.normal(1000) for _ in range(5)]).reshape(5, 1000)
    assert np.all(np.abs(np.corrcoef(noise) - np.eye(5)) < 5 / np.sqrt(1000))


@given(st.data())
@settings(deadline=None, max_examples=50)
@pytest.mark.parametrize("kind", SOURCES)
def test_integers_stay_below_their_own_bound(kind, data):
    highs = data.draw(st.lists(st.one_of(st.integers(1, 3), st.integers(1, 2**63 - 1)), max_size=20))
    drawn = SOURCES[kind]().integers(np.array(highs, dtype=np.int64), len(highs))
    assert np.all((drawn >= 0) & (drawn < np.array(highs, dtype=np.int64)))


@pytest.mark.parametrize("high", [0, -1])
def test_integers_below_nothing_are_refused(source, high):
    with pytest.raises(UsageError, match="at least 1"):
        source.integers(high, 3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(0,), (1,), (3, 5), (20_000,)])
def test_noise_is_added_in_place_to_every_entry(source, dtype, shape):
    x = np.full(shape, 100, dtype=dtype)
    source.add_normal(x, 2.0)
    assert x.dtype == dtype
    assert np.count_nonzero(x == 100) <= 1
    if x.size > 1000:
        assert x.std() == pytest.approx(2.0, rel=0.03)
        assert x.mean() == pytest.approx(100, abs=0.1)


# -- seeded --------------------------------------------------------------------------------------------------------


def everything(source):
    floats = [source.normal(5)] if isinstance(source, Seeded) else []
    return [source.words(5), source.uniform(5), source.integers(1000, 5), discrete_gaussian(source, 1e6, 9), *floats]


@pytest.mark.parametrize("make", [Seeded, Keyed])
def test_the_same_key_gives_the_same_and_another_one_another(make):
    for a, b, c in zip(*(everything(make(key)) for key in (KEY, KEY, OTHER)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
    assert make(KEY).simulated == (make is Seeded)


@pytest.mark.parametrize("make", [Seeded, Keyed])
@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "x" * 32, bytearray(32), 7, None])
def test_a_key_is_32_bytes(make, key):
    with pytest.raises(UsageError, match="32 bytes"):
        make(key)


# -- secure --------------------------------------------------------------------------------------------------------


def test_two_secure_sources_never_agree():
    """32 sources, 200 words each: not one word in common (chance of one: 2⁻⁴⁰)."""
    drawn = np.concatenate([Secure().words(200) for _ in range(32)])
    assert len(np.unique(drawn)) == len(drawn)
    assert not Secure().simulated


def test_a_source_with_a_fixed_key_is_found(monkeypatch):
    """The test above can fail: with a key that repeats, everything does."""
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed")[:n])
    np.testing.assert_array_equal(Secure().words(200), Secure().words(200))


@pytest.mark.parametrize("seed", [7, KEY, None])
def test_a_secure_source_cannot_be_seeded(seed):
    with pytest.raises(PrivacyRefused, match="cannot be seeded"):
        Secure(seed)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("make", [Secure, lambda: Keyed(KEY)])
def test_a_private_source_cannot_be_copied_or_stored(make, copier):
    source = make()
    source.words(1)
    with pytest.raises(PrivacyRefused, match="copied or stored"):
        copier(source)


@pytest.mark.parametrize(
    "broken",
    [
        lambda n: (_ for _ in ()).throw(OSError("no entropy")),
        lambda n: (_ for _ in ()).throw(NotImplementedError("none")),
        lambda n: b"",
        lambda n: bytes(n),
        lambda n: b"\xff" * n,
        lambda n: os.getrandom(n - 1) if hasattr(os, "getrandom") else b"x",
    ],
)
def test_without_the_operating_systems_randomness_nothing_is_drawn(broken, monkeypatch):
    source = Secure()
    monkeypatch.setattr(os, "urandom", broken)
    for draw in (lambda: source.words(3), lambda: source.normal(3), lambda: source.integers(4, 3)):
        with pytest.raises(PrivacyRefused, match="operating system"):
            draw()


def test_the_key_is_in_no_attribute(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda n: KEY[:n])
    for source in (Secure(), Keyed(KEY)):
        source.words(4)
        assert all(value != KEY for value in vars(source).values())
        assert KEY.hex() not in repr(source) + repr(vars(source))


def test_the_stream_is_aes_256_in_counter_mode_under_the_key_that_was_drawn(monkeypatch):
    """Wiping the key after use must not wipe it before."""
    key = stream_key(7, "known")
    monkeypatch.setattr(os, "urandom", lambda n: key[:n])
    stated = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8000))
    np.testing.assert_array_equal(Secure().words(1000), np.frombuffer(stated, dtype="<u8"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_draws_something_else():
    source = Secure()
    source.words(3)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, source.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 32) != source.words(4).tobytes()
    os.close(reading)
    os.close(writing)


def test_threads_share_a_secure_source_without_repeats():
    source = Secure()
    with ThreadPoolExecutor(4) as pool:
        drawn = np.concatenate(list(pool.map(source.words, [5000] * 40)))
    assert len(np.unique(drawn)) == len(drawn)


def test_a_secure_source_stops_before_its_counter_comes_round(monkeypatch):
    monkeypatch.setattr(Secure, "_MOST_BLOCKS", 100)
    source = Secure()
    source.words(100)
    with pytest.raises(PrivacyRefused, match="make a new one"):
        source.words(100)


def test_a_secure_gaussian_is_half_the_sum_of_four(monkeypatch):
    """From the words themselves: four Box–Muller pairs, cosines to the first half, sines to the second."""
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed")[:n])
    drawn, noise = Secure().words(8 * 3).reshape(8, 3), Secure()._gaussians(6)
    expected = np.zeros(6)
    for column in range(3):
        for row in range(4):
            radius = np.sqrt(-2 * np.log((float(drawn[row, column]) + 1) / 2**64))
            word = int(drawn[row + 4, column])
            angle = ((word >> 11) + 0.5) / 2**53 * np.pi - np.pi / 2
            expected[column] += radius * np.cos(angle) * (1 if word & 1 else -1) / 2
            expected[column + 3] += radius * np.sin(angle) / 2
    np.testing.assert_allclose(noise, expected, rtol=1e-12)


# -- keyed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variance", [0.5, 100.0, 1e10])
def test_the_same_key_draws_the_same_noise_and_takes_it_back(variance):
    drawn, again, another = (skellam(Keyed(key), variance, 5000) for key in (KEY, KEY, OTHER))
    np.testing.assert_array_equal(drawn, again)
    assert not np.array_equal(drawn, another)
    answer = np.arange(5000)
    np.testing.assert_array_equal(answer + drawn - again, answer)


@pytest.mark.parametrize("cut", [[1000], [1, 2, 3, 994], [500, 0, 500], [999, 1]])
def test_the_words_are_aes_256_in_counter_mode_however_they_are_cut(cut):
    stated = Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(8000))
    source = Keyed(KEY)
    drawn = np.concatenate([source.words(n) for n in cut])
    assert drawn.dtype == np.uint64
    np.testing.assert_array_equal(drawn, np.frombuffer(stated, dtype="<u8"))


def test_it_has_no_gaussians():
    x = np.zeros(3)
    for draw in (lambda s: s.add_normal(x, 1.0), lambda s: s.normal(3), lambda s: s.noised_rows(3, [0], x[None], 1.0)):
        with pytest.raises(PrivacyRefused, match="Skellam"):
            draw(Keyed(KEY))
    assert not x.any()
