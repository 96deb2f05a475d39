"""Masks are AES-256 in counter mode, agreements are X25519 and HKDF, and packing is plain bytes."""

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from secure_rounds import SMALL_ORDER

from tacit.errors import BadMessage, UsageError
from tacit.rng import stream_key
from tacit.secure.masks import CHUNK, add_mask, agree, expand, pack, unpack, words

SEED = stream_key(7, "mask")
BITS = (8, 16, 24, 32, 40, 48, 56, 64)


def by_the_book(seed, size, bits):
    """Block i is AES of the number i, big end first (NIST SP 800-38A, §6.5); no counter mode of a library."""
    kind = words(bits)
    blocks = -(-size * kind.itemsize // 16)
    ecb = Cipher(algorithms.AES(seed), modes.ECB()).encryptor()
    stream = ecb.update(b"".join(i.to_bytes(16, "big") for i in range(blocks)))[: size * kind.itemsize]
    return np.frombuffer(stream, dtype=kind.newbyteorder("<")) & kind.type(2**bits - 1)


@pytest.mark.parametrize("bits", [1, 7, *BITS])
@pytest.mark.parametrize("size", [0, 1, 5, CHUNK // 4 - 1, CHUNK // 4, CHUNK // 2 + 3])
def test_a_mask_is_aes_in_counter_mode(bits, size):
    mask = expand(SEED, size, bits)
    assert mask.dtype == words(bits)
    assert np.array_equal(mask, by_the_book(SEED, size, bits))


@pytest.mark.parametrize("bits", [7, *BITS])
def test_adding_and_taking_away_leave_what_was(bits):
    size = CHUNK // 4 + 17
    before = expand(stream_key(7, "vector"), size, bits)
    total = before.copy()
    add_mask(total, SEED, bits, 1)
    exact = [(int(a) + int(b)) % 2**bits for a, b in zip(before, expand(SEED, size, bits), strict=True)]
    assert total.tolist() == exact
    add_mask(total, SEED, bits, -1)
    assert np.array_equal(total, before)


@pytest.mark.parametrize(
    ("total", "seed", "bits", "sign", "said"),
    [
        (np.zeros(3, np.uint64), SEED, 32, 1, "uint32"),
        (np.zeros((3, 1), np.uint32), SEED, 32, 1, "2 dimensions"),
        (np.zeros(3, np.uint32), SEED[:16], 32, 1, "32 bytes, not 16"),
        (np.zeros(3, np.uint32), SEED, 32, 0, "1 or -1"),
        (np.zeros(3, np.uint32), SEED, 65, 1, "65 bits"),
    ],
)
def test_what_is_no_mask_is_refused(total, seed, bits, sign, said):
    with pytest.raises(UsageError, match=said):
        add_mask(total, seed, bits, sign)


def hkdf(secret, info):
    """RFC 5869 for one block of output, without salt."""
    key = hmac.new(bytes(32), secret, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def test_agreement_is_x25519_and_hkdf():
    """The keys and the shared secret of RFC 7748, §6.1."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    secret = bytes.fromhex("4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742")
    bob = bytes.fromhex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f")
    assert agree(X25519PrivateKey.from_private_bytes(alice), bob, b"info") == hkdf(secret, b"info")


@pytest.mark.parametrize("public", [*SMALL_ORDER, bytes(31), b""])
def test_keys_of_low_order_or_size_are_refused(public):
    """With a point of low order the secret would be 0 whatever the key."""
    with pytest.raises(BadMessage, match="X25519 key"):
        agree(X25519PrivateKey.generate(), public, b"")


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_what_was_packed_is_unpacked(bits, size):
    vector = expand(SEED, size, bits)
    packed = pack(vector, bits)
    assert packed.dtype == np.uint8
    assert packed.tobytes() == b"".join(int(x).to_bytes(bits // 8, "little") for x in vector)
    for carried in (packed, packed.tobytes(), memoryview(packed.tobytes())):
        again = unpack(carried, size, bits)
        assert again.dtype == vector.dtype
        assert np.array_equal(again, vector)


def test_what_does_not_travel_is_refused():
    for bits in (0, 7, 12, 72):
        with pytest.raises(UsageError, match="multiple of 8"):
            pack(np.zeros(1, np.uint32), bits)
    with pytest.raises(UsageError, match="does not fit into 24 bits"):
        pack(np.array([2**24], np.uint32), 24)
    with pytest.raises(UsageError, match="uint64"):
        pack(np.zeros(1, np.uint32), 40)
    for data in (bytes(5), bytes(7)):
        with pytest.raises(BadMessage, match="take 6 bytes"):
            unpack(data, 2, 24)
