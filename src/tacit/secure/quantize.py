"""From numbers to integers, as modular sums and exact noise need them, one contribution at a time.

A contribution is what one user, or where single ratings are protected one rating, adds to a sum. Its numbers are
divided by a step γ and rounded up or down at random, so that each keeps its mean; a result that is too long is drawn
again (Kairouz, Liu and Steinke 2021, "The distributed discrete Gaussian mechanism", conditional stochastic rounding).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from tacit.errors import DataError, PrivacyRefused
from tacit.kernels.rounding import add_rows, round_and_add, round_rows
from tacit.secure.masks import words

Array = np.ndarray[Any, Any]

#: β, the largest probability that a draw is rejected.
BETA = math.exp(-0.5)
#: Steps to a clip, at least, and per √d: rounding then lengthens a contribution by under 0.1 %.
STEPS, STEPS_PER_ROOT = 256, 32
#: Draws before a contribution is cut towards 0 instead; by chance that happens once in β⁻¹⁰⁰ = e⁵⁰.
TRIES = 100
#: The chance that a release's noise makes any cell of its sum wrap around.
WRAP = 2.0**-40
#: The largest variance of noise that is sampled exactly, in steps².
LOUDEST = 2.0**40
#: Bits that a cell may have on the wire.
WIDTHS = tuple(range(8, 65, 8))


class Uniform(Protocol):
    """A source of coins."""

    def uniform(self, shape: int) -> Array:
        """Uniform numbers in (0, 1)."""


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each user, or each rating, adds to which cells.

    Attributes
    ----------
    starts : (k+1,) int64; the a-th contribution has the entries starts[a] : starts[a+1]
    cells : (nnz,) int64, the place of an entry in the blocks of an answer, flattened in the order of their names; each
        at most once per contribution
    values : (nnz,) float64
    size : the number of cells
    """

    starts: Array
    cells: Array
    values: Array
    size: int

    def some(self, wanted: Array) -> Contributions:
        """The contributions that are wanted, (k,) bool."""
        counts = np.diff(self.starts)
        entries = np.repeat(wanted, counts)
        starts = np.concatenate([[0], np.cumsum(counts[wanted])]).astype(np.int64)
        return Contributions(starts, self.cells[entries], self.values[entries], self.size)


@dataclass(frozen=True, eq=False)
class Repeated:
    """Contributions that hold one row of numbers at several places alike, and others number by number.

    Attributes
    ----------
    starts : (k+1,) int64; the a-th contribution holds its row at places[starts[a] : starts[a+1]], all of them different
    places : (nnz,) int64, 0 … height − 1; a row at place i lies in the cells from first + i·width on
    rows : (k, width) float64
    first, height : where the places begin among the cells, and how many there are
    rest : the others, in cells that no place covers
    """

    starts: Array
    places: Array
    rows: Array
    first: int
    height: int
    rest: Contributions

    @property
    def each(self) -> Contributions:
        """The same number by number."""
        width, counts, lengths = self.rows.shape[1], np.diff(self.starts), np.diff(self.rest.starts)
        owners = np.repeat(np.arange(len(counts)), counts)
        cells = self.first + self.places[:, None] * width + np.arange(width)
        who = np.concatenate([np.repeat(owners, width), np.repeat(np.arange(len(lengths)), lengths)])
        order = np.argsort(who, kind="stable")
        starts = np.concatenate([[0], np.cumsum(counts * width + lengths)]).astype(np.int64)
        values = np.concatenate([self.rows[owners].ravel(), self.rest.values])
        return Contributions(
            starts, np.concatenate([cells.ravel(), self.rest.cells])[order], values[order], self.rest.size
        )

    def some(self, wanted: Array) -> Repeated:
        """The contributions that are wanted, (k,) bool."""
        counts = np.diff(self.starts)
        starts = np.concatenate([[0], np.cumsum(counts[wanted])]).astype(np.int64)
        places = self.places[np.repeat(wanted, counts)]
        return Repeated(starts, places, self.rows[wanted], self.first, self.height, self.rest.some(wanted))


#: What many users, or many ratings, add to a sum.
Summands = Contributions | Repeated


@dataclass(frozen=True)
class Rounding:
    """How a contribution becomes integers, and how long it can be then.

    Attributes
    ----------
    step : γ, the value of 1
    clip : c, the largest ℓ2 norm of a contribution before rounding
    touched : d, the most non-zero coordinates of a contribution; every run's requests are bound to this name

    Guarantee
    ---------
    Rounded at random, a contribution has norm at most Δ₂ = min(c/γ + √d, √(c²/γ² + d/4 + √(2 ln 1/β)·(c/γ + √d/2))):
    the first always holds, since every entry moves by less than 1; the second with probability 1 − β (Kairouz, Liu and
    Steinke 2021, Lemma on conditional rounding), and what is longer is drawn again. So the bound holds for *every*
    outcome and contribution. No other contribution's numbers or coins enter its rounding. An entry of 0 stays 0, so an
    empty record adds 0. Integers satisfy |x| ≤ x², hence Δ₁ ≤ min(√d·Δ₂, Δ₂²); that is enforced as well, should a
    contribution have more non-zero coordinates than were declared. A `Repeated` row is rounded once for all its places:
    the bounds, which are enforced on the whole contribution, hold as before. Its coins count several times, so that
    more draws are too long, and those that are kept are shorter on average, by below 1 %/√width.
    """

    step: float
    clip: float
    touched: int

    @classmethod
    def fine(cls, clip: float, touched: int) -> Rounding:
        """A step so fine that rounding costs almost nothing: a power of two of steps to the clip."""
        if not 0 < clip < math.inf or touched < 1:
            raise PrivacyRefused(
                f"Nothing bounds what one unit adds to a sum (norm {clip:g}, {touched} cells); clip it first."
            )
        steps = 2.0 ** math.ceil(math.log2(max(STEPS, STEPS_PER_ROOT * math.sqrt(touched))))
        return cls(clip / steps, clip, touched)

    @property
    def l2(self) -> float:
        """Δ₂ of one contribution, in steps."""
        reach, root = self.clip / self.step, math.sqrt(self.touched)
        squared = reach**2 + self.touched / 4 + math.sqrt(2 * math.log(1 / BETA)) * (reach + root / 2)
        return min(reach + root, math.sqrt(squared))

    @property
    def l1(self) -> float:
        """Δ₁ of one contribution, in steps."""
        return max(self.l2, min(math.sqrt(self.touched) * self.l2, self.l2**2))

    def summed(self, given: Summands, coins: Uniform, total: Array | None = None) -> Array:
        """The sum of all contributions, each rounded by itself, and of `total`, in place; (size,) int64."""
        pending = _checked(given)
        total = np.zeros(pending.rest.size, dtype=np.int64) if total is None else total
        for _attempt in range(TRIES + 1):
            of_rows = coins.uniform(pending.rows.size) if pending.rows.size else np.zeros(0)
            drawn = of_rows, coins.uniform(len(pending.rest.values))
            too_long = self._added(pending, drawn, self.step, total)
            if not too_long.any():
                return total
            pending = pending.some(too_long)
        # Cut towards 0, which lengthens nothing; what is too long even so broke its clip, and adds nothing.
        rest = replace(pending.rest, values=np.trunc(pending.rest.values / self.step))
        cut = replace(pending, rows=np.trunc(pending.rows / self.step), rest=rest)
        self._added(cut, (np.zeros(cut.rows.size), np.zeros(len(rest.values))), 1.0, total)
        return total

    def _added(self, given: Repeated, coins: tuple[Array, Array], step: float, total: Array) -> Array:
        """Round and add what is not too long then; (k,) bool, what was."""
        most, rest = (self.l2**2, self.l1), given.rest
        whole, before = round_rows(given.starts, given.places, given.rows, coins[0], step, *most, given.height)
        too_long = round_and_add(rest.starts, rest.cells, rest.values, coins[1], step, *most, before, total)
        whole[too_long] = 0
        add_rows(given.starts, given.places, whole, total[given.first :], given.height)
        return too_long


def _checked(given: Summands) -> Repeated:
    """With rows of no width where there are none; refused where it does not fit together."""
    if isinstance(given, Contributions):
        none = np.zeros(0, dtype=np.int64)
        count = max(0, len(given.starts) - 1)
        given = Repeated(np.zeros(count + 1, dtype=np.int64), none, np.zeros((count, 0)), 0, 0, given)
    for starts, cells, size in (
        (given.rest.starts, given.rest.cells, given.rest.size),
        (given.starts, given.places, given.height),
    ):
        if len(starts) != len(given.rows) + 1 or starts[-1] != len(cells):
            raise DataError("The contributions to a sum do not cover their entries; build them again.")
        if len(cells) and not (cells.min() >= 0 and cells.max() < size):
            raise DataError(f"A contribution to a sum lies outside its {size:,} cells; build it again.")
    if len(given.rest.cells) != len(given.rest.values):
        raise DataError("The contributions to a sum do not cover their entries; build them again.")
    if given.first + given.height * given.rows.shape[1] > given.rest.size:
        raise DataError(f"A contribution to a sum lies outside its {given.rest.size:,} cells; build it again.")
    return given


def bits_for(contributions: int, rounding: Rounding, variance: float, cells: int) -> int:
    """The bits per cell with which a sum wraps only through its noise, and that with probability ≤ 2⁻⁴⁰.

    `contributions` is how many can meet in one cell, each with at most c/γ + 1; `variance` that of all noise that may
    be in a cell, in steps². By Bernstein, P(|N| ≥ t) ≤ 2·exp(−t²/(2(v + t/3))) for Skellam noise of variance v, which
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
    most = contributions * (rounding.clip / rounding.step + 1) + reach
    needed = math.ceil(math.log2(most)) + 1
    width = next((width for width in WIDTHS if width >= needed), None)
    if width is None or most >= 2.0**53:
        raise PrivacyRefused(
            f"A sum of {contributions:,} contributions with this noise needs {needed} bits a cell, and 53 are exact; "
            "ask for a larger epsilon, or let fewer take part in one sum."
        )
    return width


def wrapped(vector: Array, bits: int) -> Array:
    """Integers mod 2^bits, in the words of masks."""
    return reduced(vector.astype(np.int64).view(np.uint64), bits)


def reduced(vector: Array, bits: int) -> Array:
    """Unsigned words mod 2^bits."""
    low: Array = (vector & vector.dtype.type((1 << bits) - 1)).astype(words(bits))
    return low


def centred(vector: Array, bits: int) -> Array:
    """Words mod 2^bits as the integers around 0 that they stand for, int64."""
    up = np.uint64(64 - bits)
    signed: Array = (vector.astype(np.uint64) << up).view(np.int64) >> up.astype(np.int64)
    return signed
