"""Secret sharing (Shamir 1979, "How to share a secret"): `threshold` shares recover a secret, fewer reveal nothing.

A secret of 32 bytes is the value at 0 of a random polynomial of degree threshold − 1 over the integers modulo the prime
2²⁵⁶ + 297; the share of point x is the value at x, in 33 bytes. The prime is just above 2²⁵⁶, so that any 32 bytes
are a secret, and none is shortened.

Formal guarantee
----------------
For any threshold − 1 points other than 0 and any secret there is exactly one choice of the other coefficients that
gives any given values there (interpolation through those points and 0), and coefficients are uniform and independent.
So threshold − 1 shares are uniform whatever the secret is: they reveal nothing about it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from math import prod

from tacit.errors import BadMessage, PeerFailed, UsageError

PRIME = 2**256 + 297
SECRET, SHARE = 32, 33


def split(
    secret: bytes, points: Sequence[int], threshold: int, random: Callable[[int], bytes] = os.urandom
) -> list[bytes]:
    """One share of 33 bytes for each of the points; `random(n)` gives n secret bytes.

    >>> shares = split(bytes(range(32)), [1, 2, 3], threshold=2)
    >>> joined({1: shares[0], 3: shares[2]}, threshold=2) == bytes(range(32))
    True
    """
    if len(secret) != SECRET:
        raise UsageError(f"A secret to share has {SECRET} bytes, not {len(secret)}; hash or pad it first.")
    _check_points(points)
    if not 1 <= threshold <= len(points):
        raise UsageError(
            f"A threshold of {threshold} with {len(points)} shares is not possible; take 1 to their number."
        )
    # Highest power first, for Horner's rule; points are small, so one reduction at the end is enough.
    coefficients = [*_uniform(threshold - 1, random), int.from_bytes(secret, "little")]
    shares = []
    for x in points:
        value = 0
        for coefficient in coefficients:
            value = value * x + coefficient
        shares.append((value % PRIME).to_bytes(SHARE, "little"))
    return shares


def joined(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """The secret of these shares, by point; the first `threshold` of them are used.

    A wrong share of the right size gives a wrong secret, or none, so the caller must be able to check the secret.
    """
    if threshold < 1:
        raise UsageError(f"A threshold of {threshold} is not possible; take at least 1.")
    if len(shares) < threshold:
        raise PeerFailed(f"{len(shares)} shares are too few to join: the threshold is {threshold}.")
    secret = _value(shares, threshold, 0)
    if secret >> 256:
        raise BadMessage(f"The shares of points {', '.join(map(str, shares))} do not fit together; one is wrong.")
    return secret.to_bytes(SECRET, "little")


def fits(shares: Mapping[int, bytes], threshold: int, point: int, share: bytes) -> bool:
    """Whether `share` is the one of `point` on the polynomial through the first `threshold` of `shares`."""
    return len(share) == SHARE and _value(shares, threshold, point) == int.from_bytes(share, "little")


def _value(shares: Mapping[int, bytes], threshold: int, at: int) -> int:
    """The value at one point of the polynomial through the first `threshold` shares."""
    points = tuple(shares)[:threshold]
    _check_points(points)
    return sum(w * _number(x, shares[x]) for x, w in zip(points, _weights(points, at), strict=True)) % PRIME


def _uniform(count: int, random: Callable[[int], bytes]) -> list[int]:
    """Uniform numbers below the prime: 257 random bits each, drawn again where they are not below it."""
    numbers: list[int] = []
    while len(numbers) < count:
        drawn = random(SHARE * 2 * (count - len(numbers)))
        for start in range(0, len(drawn), SHARE):
            number = int.from_bytes(drawn[start : start + SHARE], "little") & ((1 << 257) - 1)
            if number < PRIME:
                numbers.append(number)
    return numbers[:count]


@lru_cache(maxsize=4096)
def _weights(points: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Lagrange's weights: f(at) = Σ weight·f(x) for polynomials of degree below len(points). One inversion for all."""
    below = [prod(x - other for other in points if other != x) for x in points]
    above = [prod(at - other for other in points if other != x) for x in points]
    before = [1]
    for factor in below:
        before.append(before[-1] * factor % PRIME)
    inverse = pow(before[-1], -1, PRIME)
    weights = []
    for i in reversed(range(len(points))):
        weights.append(above[i] * inverse * before[i] % PRIME)
        inverse = inverse * below[i] % PRIME
    return tuple(reversed(weights))


def _number(point: int, share: bytes) -> int:
    number = int.from_bytes(share, "little")
    if len(share) != SHARE or number >= PRIME:
        raise BadMessage(f"The share of point {point} is not a number below 2²⁵⁶ + 297 in {SHARE} bytes.")
    return number


def _check_points(points: Sequence[int]) -> None:
    if len(set(points)) < len(points) or not all(0 < x < 2**32 for x in points):
        raise UsageError("Points of shares must be different integers from 1 to 2³² − 1; one is repeated or outside.")
