"""Private set intersection: ids are blinded by all sites in turn, and only values that all have blinded compare.

Site k has a secret scalar a_k. A list of ids x travels as H(x)^{a_i}, H(x)^{a_i·a_j}, …, through all sites on a ring;
exponents commute, so once all have blinded it, a user has one value whichever site's list they were on. The coordinator
passes lists on, keeps their order and gives the finished ones to `common_rows`. Meadows (1986), Huberman, Franklin and
Hogg (1999); for the order of growth De Cristofaro and Tsudik (2010).

    names 1, 2, 3     the list of 1:  1 ► 2 ► 3     of 2:  2 ► 3 ► 1     of 3:  3 ► 1 ► 2

The group is Curve25519 by u-coordinates, the action X25519 (RFC 7748): u(P) ↦ u(aP), the scalar clamped to 8·a',
2^251 ≤ a' < 2^252. H hashes to u-coordinates *of the curve*: X25519 takes those of its twist as well, but whether u is
of the one or of the other survives every blinding, and would rule out half of all candidate ids for any user.

Guarantee
---------
Semi-honest sites and coordinator, SHA-256 a random oracle, DDH on Curve25519. A site's own scalar is on its list from
the start: without it nobody can test which ids are there, even if the coordinator and all other sites work together;
these learn only which of their own users the site has. The coordinator alone learns the sizes of the lists and which
blinded users are on which; a site alone the sizes and its own rows. Nothing holds against one that deviates. Proofs are
in docs/explanation/alignment.md.
"""

import os
from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from tacit.errors import BadMessage, UsageError
from tacit.secure.alignment import checked, id_texts
from tacit.secure.masks import Array

#: Bytes of a scalar and of a blinded value.
SIZE = 32

#: Curve25519: v² = u³ + A·u² + u modulo P.
P, A = 2**255 - 19, 486662

_DOMAIN = b"tacit alignment point 1"


def ring(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """By owner of a list, who blinds it after the owner, in this order: the next ones on a ring.

    So no site ever sees two lists blinded by the same sites, which it could compare.

    >>> ring(["a", "b", "c"])
    {'a': ('b', 'c'), 'b': ('c', 'a'), 'c': ('a', 'b')}
    """
    if len(names) < 2 or len(set(names)) != len(names):
        raise UsageError("Blinding in turns needs two sites or more, with different names.")
    return {name: (*names[i + 1 :], *names[:i]) for i, name in enumerate(names)}


class Blinder:
    """One site's secret scalar for one alignment.

    Parameters
    ----------
    secret : 32 bytes, to go on after a crash; by default drawn from the operating system. Values of one scalar can be
        linked, so every alignment takes a fresh one

    >>> a, b = Blinder(), Blinder()
    >>> bool((a.again(b.first(["ann", 42])) == b.again(a.first(["ann", "42"]))).all())
    True
    """

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = os.urandom(SIZE) if secret is None else bytes(secret)
        if len(self.secret) != SIZE:
            raise UsageError(f"A blinding secret has {SIZE} bytes, not {len(self.secret)}.")
        self._key = X25519PrivateKey.from_private_bytes(self.secret)

    def first(self, ids: Sequence[object]) -> Array:
        """H(id)^a for every id: (n, 32) uint8, in the ids' order; `alignment.travel` gives the one to send it in."""
        return self._blind([hash_to_curve(text) for text in id_texts(ids)], "this site")

    def again(self, blinded: object, owner: str = "a peer") -> Array:
        """The list of another site, blinded once more by this one: (n, 32) uint8, in the same order."""
        values = checked(blinded, owner, sizes=(SIZE,))
        if np.any(_too_large(values)):
            raise BadMessage(f'The list of "{owner}" has a value of 2^255 − 19 or more, which no blinding gives.')
        return self._blind([value.tobytes() for value in values], owner)

    def _blind(self, values: list[bytes], owner: str) -> Array:
        """One by one: the library holds Python's lock, so threads gain nothing."""
        exchange, read = self._key.exchange, X25519PublicKey.from_public_bytes
        try:
            joined = b"".join([exchange(read(value)) for value in values])
        except ValueError:
            raise BadMessage(
                f'The list of "{owner}" has a point of small order, which no id hashes to; refuse it.'
            ) from None
        return np.frombuffer(joined, dtype=np.uint8).reshape(-1, SIZE)


def hash_to_curve(text: bytes) -> bytes:
    """The first of SHA-256(0, text), SHA-256(1, text), … without its highest bit that is a u-coordinate of the curve.

    Uniform over those if SHA-256 is a random oracle, after two tries on average. One of small order, for which X25519
    has no value, has probability 2⁻²⁵².
    """
    attempt = 0
    while True:
        digest = sha256(_DOMAIN + attempt.to_bytes(4, "little") + text).digest()
        value = int.from_bytes(digest, "little") % 2**255
        if value < P and on_curve(value):
            return value.to_bytes(SIZE, "little")
        attempt += 1


def on_curve(u: int) -> bool:
    """Whether u³ + A·u² + u is a square other than 0 modulo P: else u is on the twist, or 0.

    Jacobi's symbol by quadratic reciprocity, 4 times as fast here as Euler's power.
    """
    a, n, symbol = u * (u * u + A * u + 1) % P, P, 1
    while a:
        twos = (a & -a).bit_length() - 1
        a >>= twos
        if twos & 1 and n & 7 in (3, 5):
            symbol = -symbol
        if a & n & 2:
            symbol = -symbol
        a, n = n % a, a
    return n == 1 and symbol == 1


def _too_large(values: Array) -> Array:
    """Which values, little end first, are P or more: what X25519 takes but never gives."""
    top: Array = values[:, 31]
    near: Array = (top == 0x7F) & np.all(values[:, 1:31] == 0xFF, axis=1) & (values[:, 0] >= 0xED)
    return near | (top > 0x7F)
