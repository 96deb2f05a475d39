"""Masks: uniform words from a seed, seeds that two parties agree on, and cells packed into bytes.

Arithmetic is modulo 2^bits in unsigned words, which wrap by themselves. A mask is AES-256 in counter mode under a seed
of 32 bytes that is used for one mask only, so that the counter may start at 0.

Guarantee
---------
A vector plus a mask of unknown seed is indistinguishable from uniform words, whatever the vector: x + m mod 2^bits is
uniform where m is, and AES-256-CTR under a uniform key is a pseudo-random generator up to 2⁶⁴ blocks. A seed that two
parties agree on is uniform to anyone else under the gap Diffie–Hellman assumption on Curve25519, HKDF-SHA256 being a
random oracle.
"""

from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tacit.errors import BadMessage, UsageError

Array = np.ndarray[Any, Any]

SEED = 32

#: Bytes of a mask that are made at a time: they fit a core's cache together with the vector's part.
CHUNK = 1 << 16
_ZEROS = memoryview(bytes(CHUNK))


def words(bits: int) -> np.dtype[Any]:
    """The type of cells modulo 2^bits: uint32 up to 32 bits, else uint64.

    >>> str(words(24)), str(words(40))
    ('uint32', 'uint64')
    """
    if not 1 <= bits <= 64:
        raise UsageError(f"Cells of {bits} bits are not possible; take 1 to 64.")
    return np.dtype(np.uint32 if bits <= 32 else np.uint64)


def expand(seed: bytes, size: int, bits: int) -> Array:
    """The mask of a seed: (size,) words, uniform modulo 2^bits."""
    mask = np.zeros(size, dtype=words(bits))
    add_mask(mask, seed, bits, 1)
    return mask


def add_mask(total: Array, seed: bytes, bits: int, sign: int) -> None:
    """total ← total + sign·mask mod 2^bits, in place and in little memory; sign is 1 or −1."""
    kind = words(bits)
    if total.dtype != kind or total.ndim != 1:
        raise UsageError(
            f"A mask of {bits} bits is added to a vector of {kind}, not to {total.ndim} dimensions of {total.dtype}."
        )
    if len(seed) != SEED:
        raise UsageError(f"A mask's seed has {SEED} bytes, not {len(seed)}.")
    if sign not in (1, -1):
        raise UsageError(f"A mask's sign is 1 or -1, not {sign}.")
    stream = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()
    buffer = bytearray(CHUNK)
    mask = np.frombuffer(buffer, dtype=kind.newbyteorder("<"))
    step, top = mask.size, kind.type(2**bits - 1)
    add = np.add if sign == 1 else np.subtract
    for start in range(0, total.size, step):
        part = total[start : start + step]
        stream.update_into(_ZEROS[: part.nbytes], buffer)
        add(part, mask[: part.size], out=part)
        if bits not in (32, 64):
            np.bitwise_and(part, top, out=part)


def agree(private: X25519PrivateKey, public: bytes, context: bytes) -> bytes:
    """The 32 bytes that two parties share for one purpose: X25519, then HKDF-SHA256 with the context as its info."""
    try:
        secret = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise BadMessage(
            "A peer's X25519 key is malformed or of low order, so that anyone could know the secret; refuse the peer."
        ) from None
    return HKDF(algorithm=hashes.SHA256(), length=SEED, salt=None, info=context).derive(secret)


def pack(vector: Array, bits: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Cells below 2^bits as bits/8 bytes each, little end first: (size·bits/8,) uint8.

    >>> pack(np.array([1, 2**24 - 1], dtype=np.uint32), 24).tolist()
    [1, 0, 0, 255, 255, 255]
    """
    kind = _whole_bytes(bits)
    if vector.dtype != kind or vector.ndim != 1:
        raise UsageError(f"Cells of {bits} bits are packed from a vector of {kind}, not of {vector.dtype}.")
    if bits < 8 * kind.itemsize and np.any(vector >> kind.type(bits)):
        raise UsageError(f"A cell does not fit into {bits} bits; reduce the vector modulo 2^{bits} before packing it.")
    cells = vector.astype(kind.newbyteorder("<"), copy=False).view(np.uint8).reshape(vector.size, kind.itemsize)
    return np.ascontiguousarray(cells[:, : bits // 8]).reshape(-1)


def unpack(packed: bytes | memoryview | Array, size: int, bits: int) -> Array:
    """The `size` cells that `pack` made these bytes of."""
    kind = _whole_bytes(bits)
    data = np.frombuffer(packed, dtype=np.uint8)
    if data.size != size * bits // 8:
        raise BadMessage(f"{size:,} cells of {bits} bits take {size * bits // 8:,} bytes, but {data.size:,} came.")
    cells = np.zeros((size, kind.itemsize), dtype=np.uint8)
    cells[:, : bits // 8] = data.reshape(size, bits // 8)
    return cells.reshape(-1).view(kind.newbyteorder("<")).astype(kind, copy=False)


def _whole_bytes(bits: int) -> np.dtype[Any]:
    if bits % 8 or not 8 <= bits <= 64:
        raise UsageError(f"Cells of {bits} bits do not travel; take a multiple of 8 from 8 to 64.")
    return words(bits)
