"""One coordinate of a device's projected item gradient, reported as one bit: local differential privacy.

Shin, Kim, Shin and Xiao 2018 ("Privacy Enhanced Matrix Factorization for Recommendation with Local Differential
Privacy", IEEE TKDE 30(9)). A device's item gradient G_i has a row for every item, nearly all of them 0, and which ones
are not is itself a secret. With a public random Φ (q × m, entries ±1/√q: Achlioptas 2003), ΦG_i is short and dense:

    (ΦG_i)[a, f] = Σ_j Φ[a, j]·2(u_i·v_j − r_ij)·u_if        over the items j that the device rated

The device draws one of the q·p coordinates, whatever its data, and reports that number by one bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from tacit.boundary.clipped_sums import check_ratings, participants
from tacit.boundary.query import Mechanism, Query
from tacit.boundary.randomized_response import RandomizedResponse
from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import BadMessage, DataError, UsageError
from tacit.guarantee import Relation, Unit


@dataclass(frozen=True)
class OneBit:
    """A number x, clipped to ±B, reported by one bit: P(1) = ½ + x/(2B)·(e^ε − 1)/(e^ε + 1).

    The mean estimation of Duchi, Jordan and Wainwright 2018 ("Minimax Optimal Procedures for Locally Private
    Estimation", JASA 113) in the form of Nguyên, Xiao, Yang, Hui, Shin and Shin 2016 ("Collecting and Analyzing Data
    from Smart Device Users with Local Differential Privacy", arXiv 1606.05053), one coordinate a device: x/B is rounded
    to ±1 at random, with itself as the mean, and the sign goes through randomised response.

    Attributes
    ----------
    epsilon : ε; infinite: the sign is reported as it is, which protects nothing
    bound : B, a public number

    Formal guarantee
    ----------------
    Whatever x is, also infinite or NaN (reported as 0), the sign before the response is +1 with *some*
    probability s in [0, 1]. A bit b then has P(b | x) = s·P(b | +1) + (1 − s)·P(b | −1), which lies between the two
    probabilities of the response; and their ratio is at most e^ε, exactly (see `RandomizedResponse`). So any two
    numbers make any bit within a factor e^ε as likely: ε-local DP, and neither floating-point rounding nor a wrong B
    changes that.

    >>> from tacit.boundary.randomness import Secure
    >>> OneBit(1.0, bound=2.0).bits(np.array([0.3, -9.0, np.nan]), Secure()).shape
    (3,)
    """

    epsilon: float
    bound: float

    def __post_init__(self) -> None:
        check_bound(self.bound)
        _ = self._response  # refuses an ε that cannot be guaranteed

    @cached_property
    def _response(self) -> RandomizedResponse | None:
        return None if self.epsilon == math.inf else RandomizedResponse(self.epsilon)

    def bits(self, numbers: Array, coins: Source) -> Array:
        """A bit for each number, (n,) int32: 1 for +1, 0 for −1."""
        inside = np.clip(np.nan_to_num(numbers / self.bound, nan=0.0, posinf=1.0, neginf=-1.0), -1.0, 1.0)
        signs = (coins.uniform(len(inside)) < (1 + inside) / 2).astype(np.int64)
        reported: Array = signs if self._response is None else self._response.report(signs, coins)
        return reported.astype(np.int32)

    draw = bits

    @property
    def values(self) -> Array:
        """What a bit says about the clipped number, unbiased: −B·gain for 0 and B·gain for 1, (2,) float64."""
        return self.bound * self.gain * np.array([-1.0, 1.0])

    def second_moment(self, numbers: Array) -> Array:
        """E[value²] of the report of each number, which is (B·gain)² whatever it is; its variance is x² less."""
        return np.full(np.shape(numbers), (self.bound * self.gain) ** 2)

    @property
    def gain(self) -> float:
        """(e^ε + 1)/(e^ε − 1): E[±1]·B·gain is the clipped number."""
        return 1.0 if self._response is None else 1 / (self._response.truth - self._response.lie)


def check_bound(bound: float) -> None:
    """Refuse a B that numbers cannot be clipped to."""
    if not 0 < bound < math.inf:
        raise UsageError(f"A bound of {bound:g} on what is reported is not possible; give a number above 0.")


@dataclass(frozen=True)
class ProjectedBit(Query):
    """One report of each device: which coordinate of its projected item gradient, and a bit about it.

    Attributes
    ----------
    shape : (q, p), that of ΦG_i
    bound : B, what numbers are clipped to

    Formal guarantee
    ----------------
    ε₀-local DP for a device's whole record under replace and hence under zero-out, against anyone who sees the report
    (c, b); ε₀ is the argument of `reports`. The coordinate c is drawn uniformly before the data is looked at, so that
    P(c, b | record) = P(b | c, record)/(q·p); given c the reported number is a function of the record and of what the
    device received, and `OneBit` makes any bit within a factor e^ε₀ as likely for any two numbers. A device without
    ratings has the number 0 and reports like all others. A rating is part of a record: per rating the same ε₀ holds.
    Later reports may depend on earlier ones through V; given those the same argument holds again, and T reports compose
    to T·ε₀ or less.
    """

    shape: tuple[int, int]
    bound: float

    mechanism: ClassVar[Mechanism] = Mechanism.RESPONSE

    def __post_init__(self) -> None:
        if len(self.shape) != 2 or min(self.shape) < 1:
            raise UsageError(f"A projected gradient of shape {self.shape} has no coordinates; give (q, p), above 0.")
        object.__setattr__(self, "shape", (int(self.shape[0]), int(self.shape[1])))
        check_bound(self.bound)

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        """1, by the multiplier's definition z = 1/ε₀: ε₀ holds whatever changes in a device's record."""
        return 1.0

    def over(
        self, ratings: Ratings, users: Array, items: Array, signs: Array, present: Array | None = None
    ) -> ProjectedGradient:
        return ProjectedGradient(self, ratings, users, items, signs, present)


class ProjectedGradient:
    """`ProjectedBit` over a party's devices.

    Parameters
    ----------
    ratings : the devices' ratings, one row each
    users : U (n, p), which stays at home and may depend on each device's own ratings
    items : V (m, p), as received
    signs : √q·Φ, (q, m) int8 of ±1, public
    """

    def __init__(
        self,
        query: ProjectedBit,
        ratings: Ratings,
        users: Array,
        items: Array,
        signs: Array,
        present: Array | None = None,
    ) -> None:
        check_ratings(ratings)
        (q, p), n, m = query.shape, ratings.n_users, ratings.n_items
        if (users.shape, items.shape, signs.shape) != ((n, p), (m, p), (q, m)):
            raise DataError(
                f"Factors of shapes {users.shape} and {items.shape} and signs of shape {signs.shape} do not fit "
                f"{n:,} users, {m:,} items and a projected gradient of shape {query.shape}."
            )
        self.query, self.ratings, self.users, self.items, self.signs = query, ratings, users, items, signs
        self.rows = np.flatnonzero(participants(present, n))

    def reports(self, stream: np.random.Generator, coins: Source, epsilon: float) -> dict[str, Array]:
        """Coordinates a·p + f and bits, (k,) int32 each."""
        (q, p), bit = self.query.shape, OneBit(epsilon, self.query.bound)
        drawn = stream.integers(q * p, size=len(self.rows), dtype=np.int32)
        return {"coordinate": drawn, "bit": bit.bits(self.numbers(drawn), coins)}

    def numbers(self, coordinates: Array) -> Array:
        """(ΦG_i)[a, f] of each device of `rows` at its own coordinate a·p + f, before clipping; (k,) float64.

        u_if·2/√q·(u_i·Σ_j s_aj·v_j − Σ_j s_aj·r_ij), so that one pass over all ratings is enough.
        """
        from scipy.sparse import csr_matrix

        ratings, (q, m), n = self.ratings, self.signs.shape, self.ratings.n_users
        a, f = np.divmod(coordinates, self.items.shape[1])
        row = np.zeros(n, dtype=np.int64)
        row[self.rows] = a
        owners = np.repeat(np.arange(n), np.diff(ratings.indptr))
        signs = self.signs[row[owners], ratings.items].astype(np.float32)
        along = csr_matrix((signs, ratings.items, ratings.indptr), shape=(n, m)) @ self.items
        predicted = np.einsum("if,if->i", self.users, along, dtype=np.float64)
        rated = np.bincount(owners, signs * (ratings.values - np.float32(ratings.scale.low)), minlength=n)
        numbers: Array = 2 / math.sqrt(q) * (predicted - rated)[self.rows] * self.users[self.rows, f]
        return numbers


def estimated(coordinates: Array, bits: Array, shape: tuple[int, int], bit: OneBit) -> Array:
    """The mean of clipped ΦG_i over those that reported, from what they reported; (q, p) float64.

    Unbiased: a report estimates q·p·B·gain·(±1) for its own coordinate and 0 for the others. One report has the
    variance q·p·(B·gain)² at most in each coordinate, and n of them a mean of that over n.
    """
    cells = shape[0] * shape[1]
    fine = len(coordinates) == len(bits) and np.all((bits == 0) | (bits == 1))
    if not fine or np.any((coordinates < 0) | (coordinates >= cells)):
        raise BadMessage(f"A report is not a coordinate from 0 to {cells - 1:,} and a bit; it was damaged or forged.")
    signs = np.bincount(coordinates, 2.0 * bits - 1.0, minlength=cells)
    mean: Array = cells * bit.bound * bit.gain / max(1, len(bits)) * signs.reshape(shape)
    return mean


def spread(shape: tuple[int, int], bit: OneBit, devices: int) -> float:
    """The standard deviation of a cell of Φᵀ·`estimated`, at most, whose reports come from so many devices.

    Φᵀ adds q coordinates over √q each, which leaves a cell with the spread of one coordinate.
    """
    return math.sqrt(shape[0] * shape[1] / max(1, devices)) * bit.bound * bit.gain
