"""From numbers to integers, as modular sums and exact noise need them, one contribution at a time.

A contribution is what one user, or where single ratings are protected one rating, adds to a sum. Its numbers are
divided by a step γ and rounded up or down at random, so that each keeps its mean; a result that is too long is drawn
again (Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism", conditional stochastic rounding).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.errors import DataError, PrivacyRefused
from tacit.kernels.rounding import round_and_add
from tacit.secure.masks import words

Array = np.ndarray[Any, Any]

#: How often a draw may be rejected, at most: β.
BETA = math.exp(-0.5)
#: A clip has at least this many steps, and this many times √d of them: rounding then lengthens a piece by under 0.1 %.
STEPS, STEPS_PER_ROOT = 256, 32
#: Draws of one piece before it is cut towards 0 instead; by chance that happens once in β⁻¹⁰⁰ = e⁵⁰ pieces.
TRIES = 100
#: The chance that a release's noise makes any cell of its sum wrap around.
WRAP = 2.0**-40
#: The largest variance of noise that is sampled exactly, in steps².
LOUDEST = 2.0**40
#: Bits that a cell may have on the wire.
WIDTHS = tuple(range(8, 65, 8))


class Uniform(Protocol):
    """Where coins come from."""

    def uniform(self, shape: int) -> Array:
        """Uniform numbers in (0, 1)."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each piece adds to which cells.

    Attributes
    ----------
    starts : (k+1,) int64; the a-th piece has the entries starts[a] : starts[a+1]
    cells : (nnz,) int64, where an entry is added: in the blocks of an answer, flattened, by name; a piece meets a cell
        once at most
    values : (nnz,) float64
    size : how many cells there are
    """

    starts: Array
    cells: Array
    values: Array
    size: int

    def some(self, wanted: Array) -> Contributions:
        """The pieces that are wanted, (k,) bool."""
        counts = np.diff(self.starts)
        entries = np.repeat(wanted, counts)
        starts = np.concatenate([[0], np.cumsum(counts[wanted])]).astype(np.int64)
        return Contributions(starts, self.cells[entries], self.values[entries], self.size)


@dataclass(frozen=True)
class Rounding:
    """How the numbers of a piece become whole, and how long a piece can be then.

    Attributes
    ----------
    step : γ, what 1 stands for
    clip : c, the ℓ2 norm that no piece exceeds before
    touched : d, how many cells of a piece may be other than 0

    Guarantee
    ---------
    Rounded at random, a piece has norm at most Δ₂ = min(c/γ + √d, √(c²/γ² + d/4 + √(2 ln 1/β)·(c/γ + √d/2))): the first
    always holds, since every entry moves by less than 1; the second with probability 1 − β (Kairouz, Liu and Steinke
    2021, Lemma on conditional rounding), and what is longer is drawn again. So the bound holds for *every* outcome,
    whatever a piece was. Rounding is each piece's own: no other piece's numbers or coins go into it. An entry that is
    0 stays 0, so an empty record adds 0. Whole numbers satisfy |x| ≤ x², hence Δ₁ ≤ min(√d·Δ₂, Δ₂²); that is held to as
    well, should a piece have more cells than were declared.
    """

    step: float
    clip: float
    touched: int

    @classmethod
    def fine(cls, clip: float, touched: int) -> Rounding:
        """A step so fine that rounding costs next to nothing: a power of two of steps to the clip."""
        if not 0 < clip < math.inf or touched < 1:
            raise PrivacyRefused(
                f"Nothing bounds what one unit adds to a sum (norm {clip:g}, {touched} cells); clip it first."
            )
        steps = 2.0 ** math.ceil(math.log2(max(STEPS, STEPS_PER_ROOT * math.sqrt(touched))))
        return cls(clip / steps, clip, touched)

    @property
    def l2(self) -> float:
        """Δ₂ of one piece, in steps."""
        reach, root = self.clip / self.step, math.sqrt(self.touched)
        squared = reach**2 + self.touched / 4 + math.sqrt(2 * math.log(1 / BETA)) * (reach + root / 2)
        return min(reach + root, math.sqrt(squared))

    @property
    def l1(self) -> float:
        """Δ₁ of one piece, in steps."""
        return max(self.l2, min(math.sqrt(self.touched) * self.l2, self.l2**2))

    def summed(self, pieces: Contributions, coins: Uniform) -> Array:
        """The sum of all pieces, rounded one by one; (size,) int64."""
        if len(pieces.starts) < 1 or pieces.starts[-1] != len(pieces.cells) or len(pieces.cells) != len(pieces.values):
            raise DataError("The pieces of a sum do not cover their entries; build them anew.")
        if len(pieces.cells) and not (pieces.cells.min() >= 0 and pieces.cells.max() < pieces.size):
            raise DataError(f"A piece of a sum lies outside its {pieces.size:,} cells; build the pieces anew.")
        total, left, most = np.zeros(pieces.size, dtype=np.int64), pieces, (self.l2**2, self.l1)
        for _attempt in range(TRIES + 1):
            drawn = coins.uniform(len(left.values))
            too_long = round_and_add(left.starts, left.cells, left.values, drawn, self.step, *most, total)
            if not too_long.any():
                return total
            left = left.some(too_long)
        # Cut towards 0, which lengthens nothing; a piece that is too long even so broke its clip, and adds nothing.
        cut, still = np.trunc(left.values / self.step), np.zeros(len(left.values))
        round_and_add(left.starts, left.cells, cut, still, 1.0, *most, total)
        return total


def bits_for(pieces: int, rounding: Rounding, variance: float, cells: int) -> int:
    """How many bits a cell needs so that a sum never wraps but by its noise, and by that with probability ≤ 2⁻⁴⁰.

    `pieces` is how many can meet in one cell, each with at most c/γ + 1; `variance` that of all noise that may be in a
    cell, in steps². By Bernstein, P(|N| ≥ t) ≤ 2·exp(−t²/(2(v + t/3))) for Skellam noise of variance v, which
    t = L/3 + √(L²/9 + 2Lv) with L = ln(2·cells/2⁻⁴⁰) brings down to 2⁻⁴⁰ for all cells together. A wrap would cost
    accuracy, never privacy.
    """
    if variance > LOUDEST:
        raise PrivacyRefused(
            f"The noise of a sum would have a variance of {variance:.3g} steps², and {LOUDEST:.3g} is the most that is "
            "drawn exactly; ask for a larger epsilon, or, where a method has rounds, for fewer of them."
        )
    tail = math.log(2 * cells / WRAP)
    reach = tail / 3 + math.sqrt((tail / 3) ** 2 + 2 * tail * variance)
    most = pieces * (rounding.clip / rounding.step + 1) + reach
    needed = math.ceil(math.log2(most)) + 1
    width = next((width for width in WIDTHS if width >= needed), None)
    if width is None or most >= 2.0**53:
        raise PrivacyRefused(
            f"A sum of {pieces:,} contributions with this noise needs {needed} bits a cell, and 53 are exact; ask for "
            "a larger epsilon, or let fewer take part in one sum."
        )
    return width


def wrapped(vector: Array, bits: int) -> Array:
    """Whole numbers mod 2^bits, in the words that masks are made of."""
    return reduced(vector.astype(np.int64).view(np.uint64), bits)


def reduced(vector: Array, bits: int) -> Array:
    """Unsigned words mod 2^bits."""
    low: Array = (vector & vector.dtype.type((1 << bits) - 1)).astype(words(bits))
    return low


def centred(vector: Array, bits: int) -> Array:
    """Numbers mod 2^bits as the whole numbers around 0 that they stand for, int64."""
    up = np.uint64(64 - bits)
    signed: Array = (vector.astype(np.uint64) << up).view(np.int64) >> up.astype(np.int64)
    return signed
