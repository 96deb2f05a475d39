"""Sealed reports: each single report is encrypted to the coordinator, so that who carries it learns nothing of it.

HPKE (RFC 9180) in base mode: X25519, HKDF-SHA256, ChaCha20-Poly1305, a fresh encapsulated key for every report. What
binds a report to its run and its request is part of the key schedule, so it opens for that request alone.

Guarantee
---------
Sealed reports of one layout all have the same length. Without the coordinator's private key they are indistinguishable
from each other, even to somebody who chooses their content, and cannot be changed into another one that opens (HPKE is
secure against chosen ciphertexts). So a repeat that anyone but its sender makes is the same bytes: the coordinator
drops those, and needs no id that could say whose report it is. A sender is not authenticated: the proxy does that.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from tacit.errors import BadMessage

Array = np.ndarray[Any, Any]

#: Bytes by which a sealed report is longer than the report: an encapsulated key and a tag.
OVERHEAD = 32 + 16
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.CHACHA20_POLY1305)


@dataclass(frozen=True)
class Layout:
    """How one report lies in bytes: by name, in alphabetical order, a number's type and the shape of one report's part.

    >>> layout = Layout.of({"coordinate": np.zeros(3, np.int32), "bit": np.ones(3, np.int32)})
    >>> layout.size, layout.sealed_size
    (8, 56)
    >>> layout.pack({"coordinate": np.array([7], np.int32), "bit": np.array([1], np.int32)}).tolist()
    [[1, 0, 0, 0, 7, 0, 0, 0]]
    """

    parts: tuple[tuple[str, str, tuple[int, ...]], ...]

    @classmethod
    def of(cls, reports: Mapping[str, Array]) -> Self:
        """The layout of these reports, whose first axis counts them."""
        return cls(tuple((name, reports[name].dtype.str, reports[name].shape[1:]) for name in sorted(reports)))

    @property
    def size(self) -> int:
        """Bytes of one report."""
        return sum(self._widths)

    @property
    def _widths(self) -> list[int]:
        return [np.dtype(kind).itemsize * math.prod(shape) for _name, kind, shape in self.parts]

    @property
    def sealed_size(self) -> int:
        """Bytes of one sealed report."""
        return self.size + OVERHEAD

    def pack(self, reports: Mapping[str, Array]) -> Array:
        """A row of bytes for each report, (n, size) uint8."""
        if Layout.of(reports) != self or len({len(block) for block in reports.values()}) != 1:
            raise BadMessage("The arrays of reports differ in length, or are not of the agreed types and shapes.")
        blocks = [np.frombuffer(reports[name].tobytes(), dtype=np.uint8) for name, _kind, _shape in self.parts]
        count = len(next(iter(reports.values())))
        rows = (block.reshape(count, width) for block, width in zip(blocks, self._widths, strict=True))
        return np.concatenate(list(rows), axis=1)

    def unpack(self, rows: Array) -> dict[str, Array]:
        """The reports in rows of bytes."""
        blocks = np.split(rows, np.cumsum(self._widths)[:-1], axis=1)
        return {
            name: np.ascontiguousarray(block).view(kind).reshape(len(rows), *shape)
            for (name, kind, shape), block in zip(self.parts, blocks, strict=True)
        }


def binding(run: str, context: str) -> bytes:
    """What a sealed report is bound to: the run, and the hash of the request that it answers."""
    return hashlib.sha256(f"tacit report 1|{run}|{context}".encode()).digest()


def seal(rows: Array, public_key: bytes, about: bytes) -> Array:
    """Every row sealed by itself, (n, size + OVERHEAD) uint8; the same rows again give other bytes."""
    key = X25519PublicKey.from_public_bytes(public_key)
    sealed = b"".join(_SUITE.encrypt(row.tobytes(), key, info=about) for row in rows)
    return np.frombuffer(sealed, dtype=np.uint8).reshape(len(rows), -1)


@dataclass(frozen=True)
class Opened:
    """What the coordinator read of a batch.

    Attributes
    ----------
    rows : the reports, (n, size) uint8, sorted by their bytes: nothing is left of the order in which they came
    repeated : how many sealed reports came more than once, and were counted once
    unreadable : how many were damaged, or sealed to another key or for another request, and were left out
    """

    rows: Array
    repeated: int
    unreadable: int


def open_batch(batch: Array, key: X25519PrivateKey, about: bytes, size: int) -> Opened:
    """Open each sealed report of a batch, (n, size + OVERHEAD) uint8, once."""
    distinct = {row.tobytes() for row in batch}
    rows, unreadable = [], 0
    for sealed in distinct:
        try:
            rows.append(_SUITE.decrypt(sealed, key, info=about))
        except (InvalidTag, ValueError):
            unreadable += 1
    joined = np.frombuffer(b"".join(sorted(rows)), dtype=np.uint8).reshape(len(rows), size)
    return Opened(joined, len(batch) - len(distinct), unreadable)
