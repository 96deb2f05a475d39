"""Which items each device took, one bit for every item, each reported by randomised response."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.boundary.clipped_sums import check_ratings, participants
from tacit.boundary.query import Mechanism, Query
from tacit.boundary.randomized_response import RandomizedResponse
from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import BadMessage, UsageError
from tacit.guarantee import Relation, Unit

#: Bits that are drawn at a time.
AT_ONCE = 4_000_000
#: Bits of a word as it travels.
WORD = 32


@dataclass(frozen=True)
class InteractionBits(Query):
    """One report of each device: for every item whether it was taken, a bit that is flipped with chance 1/(e^ε₀ + 1).

    Attributes
    ----------
    items : m
    unit : what is promised: one bit of a device, or all m of them

    Formal guarantee
    ----------------
    Each bit is ε₀-local DP for whether *that* item was taken (`RandomizedResponse`), against anyone, and bits are
    independent. So the report is ε₀-DP for one interaction under zero-out, it being there or not: one bit differs. If
    it moves to another item two bits differ, and it is 2·ε₀. A whole record may differ in all m bits: m·ε₀
    per user, which is what `reports` = m charges. A device without interactions reports m bits like all others.

    Whole rows leave, since items are counted together; so a shuffle of rows hides no single bit among others, and none
    is accounted for.

    >>> InteractionBits(9, Unit.USER).reports, InteractionBits(9, Unit.RATING).reports
    (9, 1)
    """

    items: int
    unit: Unit = Unit.RATING

    mechanism: ClassVar[Mechanism] = Mechanism.RESPONSE
    mixes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.items < 1:
            raise UsageError(f"There is nothing to report about {self.items} items; give 1 or more.")

    @property
    def reports(self) -> int:
        return self.items if self.unit is Unit.USER else 1

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        """Of a bit, by the multiplier's definition z = 1/ε₀; an interaction that moves changes two."""
        return 2.0 if unit is Unit.RATING and relation is Relation.REPLACE else 1.0

    def over(self, ratings: Ratings, present: Array | None = None) -> TakenBits:
        return TakenBits(self, ratings, present)


class TakenBits:
    """`InteractionBits` over a party's devices, one row each; an item was taken where its number is above 0."""

    def __init__(self, query: InteractionBits, ratings: Ratings, present: Array | None = None) -> None:
        check_ratings(ratings)
        if ratings.n_items != query.items:
            raise UsageError(f"There are {ratings.n_items:,} items, and the query is about {query.items:,}.")
        self.query, self.ratings = query, ratings
        self.rows = np.flatnonzero(participants(present, ratings.n_users))

    def reports(self, stream: np.random.Generator, coins: Source, epsilon: float) -> dict[str, Array]:
        """A row of ⌈m/32⌉ words of each device, (n, ⌈m/32⌉) int32; bits beyond m are 0."""
        response = None if epsilon == np.inf else RandomizedResponse(epsilon)
        parts = [packed(bits if response is None else response.report(bits, coins)) for bits in self._bits()]
        empty = np.zeros((0, -(-self.query.items // WORD)), dtype=np.int32)
        return {"bits": np.concatenate([empty, *parts])}

    def _bits(self) -> Iterator[Array]:
        """Rows of 0 and 1, some devices at a time."""
        ratings, m = self.ratings, self.query.items
        height = max(1, AT_ONCE // m)
        for start in range(0, len(self.rows), height):
            rows = self.rows[start : start + height]
            bits = np.zeros((len(rows), m), dtype=np.int64)
            place = np.full(ratings.n_users, -1)
            place[rows] = np.arange(len(rows))
            mine = slice(ratings.indptr[rows[0]], ratings.indptr[rows[-1] + 1])
            owners = place[ratings.users[mine]]
            taken = (owners >= 0) & (ratings.values[mine] > 0)
            bits[owners[taken], ratings.items[mine][taken]] = 1
            yield bits


def packed(bits: Array) -> Array:
    """Rows of 0 and 1 as words, (n, m) to (n, ⌈m/32⌉) int32."""
    n, m = bits.shape
    whole = np.zeros((n, -(-m // WORD) * WORD), dtype=np.uint8)
    whole[:, :m] = bits
    words: Array = np.packbits(whole, axis=1).view("<i4")
    return words


def unpacked_bits(words: Array, items: int) -> Array:
    """The rows of `packed`, (n, m) uint8."""
    if words.ndim != 2 or words.shape[1] != -(-items // WORD):
        raise BadMessage(f"Reports of shape {words.shape} are no bits of {items:,} items; they were damaged or forged.")
    bits: Array = np.unpackbits(np.ascontiguousarray(words, dtype="<i4").view(np.uint8), axis=1)
    if bits[:, items:].any():
        raise BadMessage(f"A report has bits beyond the {items:,} items; it was damaged or forged.")
    return bits[:, :items]


def co_occurrences(words: Array, items: int, epsilon: float) -> Array:
    """How many devices took both of two items, and on the diagonal one, from what they reported; (m, m) float32.

    Unbiased: with p and q the chances that a bit is reported as 1 where it is 1 and 0, (y − q)/(p − q) has the mean of
    the bit, and bits of different items are randomised independently.
    """
    together, single, n = np.zeros((items, items), dtype=np.float32), np.zeros(items), len(words)
    height = max(1, AT_ONCE // items)
    for start in range(0, n, height):
        y = unpacked_bits(words[start : start + height], items).astype(np.float32)
        together += y.T @ y
        single += y.sum(axis=0)
    if epsilon == np.inf:
        return together
    response = RandomizedResponse(epsilon)
    p, q = response.truth, response.lie
    found = (together - q * (single[:, None] + single) + n * q * q) / (p - q) ** 2
    np.fill_diagonal(found, (single - n * q) / (p - q))
    counts: Array = found.astype(np.float32)
    return counts
