"""A keyed source: the same words wherever the same key is, for noise that is taken back later."""

import copy
import pickle

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.boundary.discrete import discrete_gaussian, skellam
from tacit.boundary.randomness import Keyed, Secure, Seeded
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import stream_key

KEY, OTHER = stream_key(7, "a noise seed"), stream_key(8, "a noise seed")


@pytest.mark.parametrize("variance", [0.5, 100.0, 1e10])
def test_the_same_key_draws_the_same_noise_and_takes_it_back(variance):
    drawn, again, another = (skellam(Keyed(key), variance, 5000) for key in (KEY, KEY, OTHER))
    np.testing.assert_array_equal(drawn, again)
    assert not np.array_equal(drawn, another)
    answer = np.arange(5000)
    np.testing.assert_array_equal(answer + drawn - again, answer)


def test_every_way_of_reading_repeats_under_the_same_key_only():
    def read(key):
        source = Keyed(key)
        return [source.words(9), source.uniform(9), source.integers(10**9, 9), discrete_gaussian(source, 1e6, 9)]

    for one, same, other in zip(read(KEY), read(KEY), read(OTHER), strict=True):
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)


def test_keys_that_differ_in_one_bit_have_no_word_in_common():
    near = bytes([KEY[0] ^ 1]) + KEY[1:]
    drawn = np.concatenate([Keyed(key).words(100_000) for key in (KEY, near)])
    assert len(np.unique(drawn)) == len(drawn)  # chance of a repeat: 10⁻⁹


@pytest.mark.parametrize("cut", [[1000], [1, 2, 3, 994], [500, 0, 500], [999, 1]])
def test_the_words_are_aes_256_in_counter_mode_however_they_are_cut(cut):
    stated = Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(8000))
    source = Keyed(KEY)
    drawn = np.concatenate([source.words(n) for n in cut])
    assert drawn.dtype == np.uint64
    np.testing.assert_array_equal(drawn, np.frombuffer(stated, dtype="<u8"))


def test_long_reads_are_one_stream():
    short, long = Keyed(KEY), Keyed(KEY)
    np.testing.assert_array_equal(np.concatenate([short.words(70_001) for _ in range(3)]), long.words(210_003))


def test_known_words():
    """AES-256 of counter blocks 0 and 1 under the key 00 01 … 1f: the same on every machine."""
    expected = Cipher(algorithms.AES(bytes(range(32))), modes.ECB()).encryptor()
    blocks = expected.update(bytes(16)) + expected.update(bytes(15) + b"\x01")
    words = [int.from_bytes(blocks[at : at + 8], "little") for at in range(0, 32, 8)]
    assert Keyed(bytes(range(32))).words(4).tolist() == words
    assert words[0] == 0xD09F492AB60090F2


@pytest.mark.parametrize("key", [b"", bytes(16), bytes(31), bytes(33), "k" * 32, bytearray(32), 7, None])
def test_any_other_key_is_refused(key):
    with pytest.raises(UsageError, match="exactly 32 bytes"):
        Keyed(key)


def test_it_is_not_a_seeded_source():
    keyed, seeded = Keyed(KEY), Seeded(KEY)
    assert not keyed.simulated
    assert seeded.simulated
    assert not isinstance(keyed, Seeded | Secure)
    assert not isinstance(seeded, Keyed)
    assert not np.intersect1d(keyed.words(1000), seeded.words(1000)).size


def test_it_has_no_gaussians():
    x = np.zeros(3)
    for draw in (lambda s: s.add_normal(x, 1.0), lambda s: s.normal(3), lambda s: s.noised_rows(3, [0], x[None], 1.0)):
        with pytest.raises(PrivacyRefused, match="Skellam"):
            draw(Keyed(KEY))
    assert not x.any()


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
def test_it_cannot_be_copied_or_stored(copier):
    with pytest.raises(PrivacyRefused, match="copied or stored"):
        copier(Keyed(KEY))


def test_the_key_is_in_no_attribute():
    source = Keyed(KEY)
    assert all(value != KEY for value in vars(source).values())
    assert KEY.hex() not in repr(source) + repr(vars(source))
