"""Random streams derived from (seed, purpose), so that no result depends on order, threads or engine.

A stream's purpose is a tuple of plain values, such as `("party-3", 12, "sample")`. Nothing here has state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from operator import index
from typing import Any

import numpy as np

from tacit.errors import UsageError

Purpose = str | int | bytes
Keys = np.ndarray[Any, np.dtype[np.uint64]]


def stream_key(seed: int, *purpose: Purpose) -> bytes:
    """The 32 bytes that a stream grows from: injective in seed and purpose, equal on every machine."""
    if not isinstance(seed, int | np.integer):
        raise UsageError(f"seed = {seed!r} is not possible; give an integer, such as 7.")
    return hashlib.sha256(b"".join((b"tacit stream 1", *map(_encoded, (seed, *purpose))))).digest()


@lru_cache(maxsize=4096, typed=True)  # a step's purposes differ in a number or two
def _encoded(part: Purpose) -> bytes:
    """One part of a purpose, so that no two lists of parts read the same."""
    if isinstance(part, bytes):
        kind, text = b"b", part
    elif isinstance(part, str):
        kind, text = b"s", part.encode()
    else:
        kind, text = b"i", str(index(part)).encode()  # index refuses a float rather than round it
    return kind + len(text).to_bytes(8, "little") + text


def derive(seed: int, *purpose: Purpose) -> np.random.Generator:
    """A generator for one purpose.

    >>> a, b = derive(7, "party-1", 3, "sample"), derive(7, "party-1", 3, "sample")
    >>> bool(a.random() == b.random())
    True
    """
    return np.random.Generator(np.random.SFC64(int.from_bytes(stream_key(seed, *purpose), "little")))


def id_keys(seed: int, purpose: str, ids: Iterable[object]) -> Keys:
    """One 64-bit key per id, a function of (seed, purpose, id) alone. Shape (len(ids),), uint64.

    Ids are compared as text, so that 42 and "42" get the same key wherever they were read.
    """
    key = stream_key(seed, purpose)
    joined = b"".join(hashlib.blake2b(str(i).encode(), digest_size=8, key=key).digest() for i in ids)
    return np.frombuffer(joined, dtype="<u8")


def mix(a: Keys, b: Keys) -> np.ndarray:
    """Uniform numbers in [0, 1), one per pair of keys: SplitMix64's finaliser over a ⊕ rotl(b, 32). float64."""
    with np.errstate(over="ignore"):
        z = a ^ ((b << np.uint64(32)) | (b >> np.uint64(32)))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) * 2.0**-53
