"""What a secure sum costs in bytes beside the contribution itself, for one party and one sum."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.secure.graph import Shape
from tacit.secure.secagg_messages import HASH, NONCE, SIGNATURE, TAG
from tacit.secure.shamir import SECRET, SHARE

#: What a letter's name, type and size take in a message, and what a message takes besides.
LETTER, MESSAGE = 56, 64


@dataclass(frozen=True)
class Traffic:
    """Bytes that one party sends and receives over the exchanges of one sum, if nobody drops out."""

    up: int
    down: int


def overhead(shape: Shape, extras: int, revealed: int) -> Traffic:
    """Keys, sealed shares, the list of survivors and what unmasks, with `extras` seeds shared and some revealed."""
    k, stamp = shape.degree, SIGNATURE if shape.signed else HASH
    keys = 3 * HASH + stamp
    mail = NONCE + SHARE * (2 + extras) + TAG
    answer = 1 + revealed + SECRET * (1 + revealed) + k * (1 + SHARE * (1 + revealed)) + stamp
    marks = -(-shape.parties // 8)
    signed = (LETTER + SIGNATURE) * shape.parties if shape.signed else 0
    up = keys + k * (mail + LETTER) + extras * HASH + stamp + marks + answer + (SIGNATURE if signed else 0)
    down = k * (keys + LETTER) + k * (mail + LETTER) + marks + signed + (marks if signed else 0)
    return Traffic(up + 5 * MESSAGE, down + 5 * MESSAGE)
