"""What leaves under a seal: a sum as whole numbers mod 2^b with its noise, and what is averaged as fixed-point numbers.

Clip, quantise piece by piece, add up integers, add exact discrete noise, reduce mod 2^b; only the sum of all parties is
ever made a number again. Reducing and masking see a noised vector's bits and no data beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tacit.boundary.events import Event, SampledSkellam, Skellam
from tacit.boundary.wire import Array
from tacit.secure.quantize import Rounding, centred, wrapped
from tacit.secure.shares import Shares

#: The one block of a contribution in whole numbers.
SEALED = "sealed"

#: What a deployment rounds released factors to: a public grid, far finer than their noise.
PUBLIC_GRID = 2.0**-20


@dataclass(frozen=True)
class Grid:
    """The whole numbers that a step's sum is made of, and the Skellam noise on it.

    Attributes
    ----------
    rounding : how a piece becomes whole numbers, and how long it can be then
    times : how many pieces' lengths one unit can move the sum by: 1, or 2 where it can change a piece into another
    multiplier : z, the noise's standard deviation over Δ₂
    bits : of each cell
    shares : how the noise is divided among parties; None where a simulation adds it to the sum, or each its own
    own : whether every party adds all of the noise itself, so that its contribution may be seen

    Guarantee
    ---------
    One unit moves the sum of whole numbers by at most `l2` = times·Δ₂ and `l1` = times·Δ₁ of a piece, and the noise
    left on it has at least the variance (z·l2)²; so a release costs what the event `Skellam` says.
    """

    rounding: Rounding
    times: float
    multiplier: float
    bits: int
    shares: Shares | None = None
    own: bool = field(default=False, repr=False)  # the guarantee's trust model, which requests are bound to, says it

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
        return skellam_event(self.multiplier, self.l1, self.l2, sampling, count)

    def numbers(self, total: Array) -> Array:
        """A sum mod 2^bits as the numbers it stands for, (size,) float64."""
        return centred(total, self.bits) * self.rounding.step


def skellam_event(multiplier: float, l1: float, l2: float, sampling: float, count: int) -> Event:
    """`count` answers of that sensitivity with Skellam noise of standard deviation multiplier·Δ₂."""
    variance = (multiplier * l2) ** 2
    if sampling < 1:
        return SampledSkellam(variance, l1, l2, sampling, count)
    return Skellam(variance, l1, l2, count)


class Fixed:
    """Fixed-point numbers for what is averaged under masks: a party's own noised factors, weighted.

    Guarantee
    ---------
    None of its own: what is encoded carries its noise already, and clipping and rounding it is post-processing.
    Numbers beyond ±`LIMIT` are cut to it, and what is none counts as 0; no factor on a public scale comes near.
    """

    LIMIT, STEP, BITS = 2.0**14, 2.0**-24, 40

    @classmethod
    def encoded(cls, blocks: Mapping[str, Array], weight: float) -> Array:
        """weight·blocks, flattened by name, mod 2^40, (size,) words."""
        flat = np.concatenate([np.asarray(x, dtype=np.float64).ravel() for _name, x in sorted(blocks.items())])
        whole = np.rint(np.clip(np.nan_to_num(flat), -cls.LIMIT, cls.LIMIT) * (weight / cls.STEP))
        return wrapped(whole.astype(np.int64), cls.BITS)

    @classmethod
    def decoded(cls, total: Array) -> Array:
        """The sum of what several encoded, (size,) float64."""
        return centred(total, cls.BITS) * cls.STEP


def in_blocks(flat: Array, shapes: Mapping[str, Sequence[int]]) -> dict[str, Array]:
    """A flattened answer as its blocks, which lie in it in the order of their names."""
    names = sorted(shapes)
    ends = np.cumsum([math.prod(shapes[name]) for name in names])
    parts = np.split(flat, ends[:-1])
    return {name: part.reshape(shapes[name]) for name, part in zip(names, parts, strict=True)}


def on_public_grid(block: Array) -> Array:
    """Noised numbers rounded to `PUBLIC_GRID`: the last bits of floating-point noise are not let out."""
    rounded: Array = (np.rint(np.asarray(block, dtype=np.float64) / PUBLIC_GRID) * PUBLIC_GRID).astype(block.dtype)
    return rounded
