"""How a step's numbers travel: as floats, as integers with exact noise, or in fixed point. Here a sum gets its noise.

`Floats` are blocks of float32. A `Grid` is for sums whose single contributions nobody sees, and for every deployed sum:
clip, quantise each contribution, add up integers, add exact discrete noise, reduce mod 2^b; only the sum over all
parties is decoded. `Fixed` is for what is averaged under masks, and for sums without noise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from tacit.boundary import mechanisms
from tacit.boundary.clipped_sums import as_float32
from tacit.boundary.events import Event, SampledSkellam, Skellam
from tacit.boundary.query import Answering, Blocks, Query, Rows, Summable, cells_of
from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array, Value
from tacit.errors import PrivacyRefused
from tacit.secure.masks import pack, unpack
from tacit.secure.quantize import WIDTHS, Rounding, Uniform, centred, wrapped

#: The one block of a contribution in integers.
SEALED = "sealed"

#: What a deployment rounds released factors to: a public grid, far finer than their noise.
PUBLIC_GRID = 2.0**-20


@dataclass(frozen=True)
class Floats:
    """Blocks of float32, as the step's schema has them.

    Guarantee
    ---------
    `noised` adds N(0, σ²) to every cell, sampled or not: see `tacit.boundary.mechanisms.Gaussian`.
    """

    sigma: float = 0.0
    bits = 0

    def exact(self, answering: Answering, stream: np.random.Generator, coins: Uniform, users: int) -> Blocks:
        """The answer that noise is added to, of so many users."""
        return cast(Blocks, answering.exact({}, stream))

    def noised(self, exact: Any, contributors: int, source: Source) -> Blocks:
        """The noise of every contributor, added up: one normal variable per cell."""
        if self.sigma == 0:
            return {name: as_float32(block) for name, block in exact.items()}
        return mechanisms.Gaussian(self.sigma * math.sqrt(contributors)).noised(exact, source)

    def payload(self, vector: Any) -> Mapping[str, Value]:
        """What travels."""
        return cast(Mapping[str, Value], vector)

    def numbers(self, total: Array) -> Array:
        """Refused: what is hidden travels in integers."""
        raise PrivacyRefused("A sum of floats cannot be hidden; nothing was released.")

    def blocks(self, body: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Mapping[str, Array]:
        """What travelled, as numbers."""
        return body


class Integers:
    """What encodings in integers share: numbers of `bits` bits, of which 1 stands for `unit`, and sums mod 2^bits."""

    bits: int

    @property
    def unit(self) -> float:
        """What 1 stands for."""
        raise NotImplementedError(f"{type(self).__name__} must say what 1 stands for.")

    def payload(self, vector: Array) -> dict[str, Value]:
        """What travels."""
        return {SEALED: pack(wrapped(vector, self.bits), self.bits)}

    def numbers(self, total: Array) -> Array:
        """A sum mod 2^bits as the numbers it stands for, (size,) float64."""
        return centred(total, self.bits) * self.unit

    def blocks(self, body: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Mapping[str, Array]:
        """What travelled, as numbers."""
        return in_blocks(self.numbers(unpack(body[SEALED], cells_of(shapes), self.bits)), shapes)


@dataclass(frozen=True)
class Grid(Integers):
    """The integers that a step's sum is made of, and the Skellam noise on it.

    Attributes
    ----------
    rounding : how a contribution becomes integers, and how long it can be then
    times : by how many contributions' lengths one unit can move the sum: 1, or 2 where it can change one into another
    multiplier : z, the noise's standard deviation over Δ₂
    bits : of each cell

    Guarantee
    ---------
    One unit moves the sum of integers by at most `l2` = times·Δ₂ and `l1` = times·Δ₁ of a contribution, and the noise
    that remains on it has at least the variance (z·l2)²; so a release costs what the event `Skellam` says.
    """

    rounding: Rounding
    times: float
    multiplier: float
    bits: int

    @property
    def l2(self) -> float:
        return self.times * self.rounding.l2

    @property
    def l1(self) -> float:
        return self.times * self.rounding.l1

    @property
    def variance(self) -> float:
        """What the noise on the sum must have at least, in steps²."""
        return (self.multiplier * self.l2) ** 2

    @property
    def sigma(self) -> float:
        """The same as a standard deviation, in the sum's own unit."""
        return self.multiplier * self.l2 * self.rounding.step

    def event(self, sampling: float, count: int) -> Event:
        """What `count` answers spend."""
        charged = (self.multiplier * self.l2) ** 2  # not `variance`, so that tests can tell the noise from its price
        if sampling < 1:
            return SampledSkellam(charged, self.l1, self.l2, sampling, count)
        return Skellam(charged, self.l1, self.l2, count)

    def exact(self, answering: Answering, stream: np.random.Generator, coins: Uniform, users: int) -> Array:
        """The answer in integers, each contribution rounded by itself; (size,) int64."""
        if not hasattr(answering, "chunks"):
            raise PrivacyRefused(
                f"A {type(answering).__name__} exposes no per-user contributions, so it cannot be summed in integers; "
                "nothing was released."
            )
        whole = None
        for part in cast(Summable, answering).chunks({}, stream):
            whole = self.rounding.summed(part, coins, whole)
        return cast(Array, whole)

    def noised(self, exact: Any, contributors: int, source: Source) -> Array:
        """All of the noise, once for each of the contributors."""
        return mechanisms.Skellam(self.variance * contributors).add(exact, source)

    @property
    def unit(self) -> float:
        return self.rounding.step


#: Steps to the largest number of an un-noised sum, unless its query states others.
FINE = Query.resolution


@dataclass(frozen=True)
class Fixed(Integers):
    """Fixed-point numbers: for noised factors in a masked mean, and for sums that carry no noise.

    Attributes
    ----------
    limit : the largest absolute value that one user adds to a cell, a public number: what is larger is cut to it
    step : what 1 stands for
    bits : of each cell

    Guarantee
    ---------
    None: what is encoded carries its noise already, or none at all, which is NON-PRIVATE. It never wraps:
    contributions are cut to their limit before they are encoded, and `bits` hold all of them together.
    """

    limit: float
    step: float
    bits: int
    sigma = 0.0

    @property
    def unit(self) -> float:
        return self.step

    @classmethod
    def of(cls, largest: float, users: int, resolution: float = FINE) -> Fixed:
        """For sums over so many users, none of whom adds more than `largest`, that many steps, to a cell."""
        if not 0 < largest < math.inf:
            raise PrivacyRefused(
                "A hidden sum travels in integers, and this one has no public bound on what one user adds to a cell; "
                'use [aggregation] name = "plain", or let its query declare `largest`.'
            )
        needed = math.ceil(math.log2((resolution + 1) * max(1, users))) + 1
        width = next((width for width in WIDTHS if width >= needed), None)
        if width is None:
            raise PrivacyRefused(f"A sum over {users:,} users in fixed point needs {needed} bits a cell.")
        return cls(largest, largest / resolution, width)

    def exact(self, answering: Answering, stream: np.random.Generator, coins: Uniform, users: int) -> Array:
        """The answer in steps, cut to what so many users can add."""
        return self.encoded(answering.exact({}, stream), 1.0, users)

    def noised(self, exact: Any, contributors: int, source: Source) -> Array:
        return cast(Array, exact)

    def encoded(self, blocks: Mapping[str, Any], weight: float, users: int = 1) -> Array:
        """weight·blocks in steps, flattened by name, (size,) int64; NaN counts as 0."""
        flat = np.concatenate([dense(x).astype(np.float64).ravel() for _name, x in sorted(blocks.items())])
        most = self.limit * users
        whole: Array = np.rint(np.clip(np.nan_to_num(flat), -most, most) * (weight / self.step)).astype(np.int64)
        return whole


#: What a masked mean of factors travels in: weights add up to 1, and no factor on a public scale comes near 2¹⁴.
AVERAGED = Fixed(2.0**14, 2.0**-24, 40)

Code = Floats | Grid | Fixed


def in_blocks(flat: Array, shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """A flattened answer as its blocks, which lie in it in the order of their names."""
    names = sorted(shapes)
    ends = np.cumsum([math.prod(shapes[name]) for name in names])
    parts = np.split(flat, ends[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(names, parts, strict=True)}


def dense(block: Any) -> Array:
    """A block of an exact answer, whole."""
    return np.asarray(block.dense() if isinstance(block, Rows) else block)


def on_public_grid(block: Array) -> Array:
    """Noised numbers rounded to `PUBLIC_GRID`: the last bits of floating-point noise are not released."""
    rounded: Array = (np.rint(np.asarray(block, dtype=np.float64) / PUBLIC_GRID) * PUBLIC_GRID).astype(block.dtype)
    return rounded
