"""Some cells of a device's item gradient, each reported by itself: local differential privacy.

Minto, Haller, Haddadi and Livshits 2021 ("Stronger Privacy for Federated Collaborative Filtering With Implicit
Feedback", RecSys), Algorithms 1 and 2. A device's gradient (eq. 5)

    (1 + α·r_ij)·(p_ij − x_i·v_j)·x_if        for item j and factor f

has a number for every item and factor, whether or not the device took the item. The device draws k of the m·F cells,
whatever its data, clips the number in each to [−1, 1], and reports it by one bit, or one of a few values.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from tacit.boundary.clipped_sums import check_ratings, participants
from tacit.boundary.piecewise import LEVELS, Piecewise
from tacit.boundary.projected import OneBit
from tacit.boundary.query import Mechanism, Query
from tacit.boundary.randomness import Source
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import BadMessage, DataError, UsageError
from tacit.guarantee import Relation, Unit
from tacit.kernels.confidence import cell_gradients

#: What numbers are clipped to (Algorithm 1, line 3).
BOUND = 1.0
#: A cell and what is reported of it are one int32.
MOST = 2**31 - 1

Randomizer = OneBit | Piecewise
Choice = Literal["one-bit", "piecewise"]


@dataclass(frozen=True)
class CellReports(Query):
    """k reports of each device: which cell of its item gradient, and a randomised report of the number in it.

    Attributes
    ----------
    shape : (m, F), that of the gradient
    confidence : α
    per_device : k, independent reports of a device in one release
    how : what a number is reported by; None: by `OneBit` or `Piecewise`, whichever has less variance at 0

    Formal guarantee
    ----------------
    Each report is ε₀-local DP for the device's whole record, under replace and hence under zero-out, against anyone who
    sees it; ε₀ is the argument of `reports`. Its cell c is drawn uniformly before the data is looked at, so that
    P(c, o | record) = P(o | c, record)/(m·F); given c the number is a function of the record and of what the device
    received (x_i is the closed form of eq. 4), and the randomiser makes any o within a factor e^ε₀ as likely for any
    two numbers. A device without items reports like all others. A rating is part of a record: it costs the same.

    The k reports draw cells and coins independently: given the record, and V, they are k independent ε₀-local
    randomisers, the same ones on every device. So one release costs k·ε₀ and T of them k·T·ε₀ (V depends on earlier
    reports alone), and each index of a report is one shuffle among all devices: the event has count k. Drawing k
    *different* cells would not be that: what is left for the second depends on the first.

    Whoever makes V decides which V a device gets; a shuffle hides a device among those that got the same.
    """

    shape: tuple[int, int]
    confidence: float
    per_device: int
    how: Choice | None = None

    mechanism: ClassVar[Mechanism] = Mechanism.RESPONSE

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", (int(self.shape[0]), int(self.shape[1])))
        if len(self.shape) != 2 or min(self.shape) < 1 or self.cells * LEVELS > MOST:
            raise UsageError(
                f"A gradient of shape {self.shape} cannot be reported by cells; it has 1 to {MOST // LEVELS:,} of them."
            )
        if self.per_device < 1 or not 0 <= self.confidence < math.inf:
            raise UsageError(
                f"{self.per_device} reports at confidence {self.confidence:g} are not possible; give 1 or more, at a "
                "finite confidence of 0 or more."
            )

    @property
    def cells(self) -> int:
        """m·F."""
        return self.shape[0] * self.shape[1]

    @property
    def reports(self) -> int:
        return self.per_device

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        """1, by the multiplier's definition z = 1/ε₀: ε₀ holds whatever changes in a device's record."""
        return 1.0

    def randomizer(self, epsilon: float) -> Randomizer:
        """What reports a number at ε₀; the same at a device and at the coordinator."""
        bit, several = OneBit(epsilon, BOUND), Piecewise(epsilon, BOUND)
        if self.how is None:
            middle = np.zeros(1)
            return several if several.second_moment(middle) < bit.second_moment(middle) else bit
        return bit if self.how == "one-bit" else several

    def over(self, ratings: Ratings, users: Array, items: Array, present: Array | None = None) -> CellGradients:
        return CellGradients(self, ratings, users, items, present)


class CellGradients:
    """`CellReports` over a party's devices.

    Parameters
    ----------
    ratings : the devices' histories, one row each
    users : X (n, F), which stays at home and is a function of each device's own history and of `items`
    items : V (m, F), as received
    """

    def __init__(
        self, query: CellReports, ratings: Ratings, users: Array, items: Array, present: Array | None = None
    ) -> None:
        check_ratings(ratings)
        (m, p), n = query.shape, ratings.n_users
        if ratings.n_items != m or (users.shape, items.shape) != ((n, p), (m, p)):
            raise DataError(
                f"Factors of shapes {users.shape} and {items.shape} do not fit {n:,} users, {ratings.n_items:,} items "
                f"and a gradient of shape {query.shape}."
            )
        self.query, self.ratings, self.users, self.items = query, ratings, users, items
        self.rows = np.flatnonzero(participants(present, n))

    def reports(self, stream: np.random.Generator, coins: Source, epsilon: float) -> dict[str, Array]:
        """k reports of each device, one integer each: cell · number of outcomes + outcome; (n·k,) int32."""
        query, randomizer = self.query, self.query.randomizer(epsilon)
        cells = stream.integers(query.cells, size=len(self.rows) * query.per_device, dtype=np.int32)
        outcomes = len(randomizer.values)
        return {"report": cells * np.int32(outcomes) + randomizer.draw(self.numbers(cells), coins)}

    def numbers(self, cells: Array) -> Array:
        """The gradient's numbers in each device's own k cells, before clipping; (n·k,) float64."""
        ratings, alpha = self.ratings, self.query.confidence
        columns = ratings.indptr, ratings.items, ratings.values
        return cell_gradients(*columns, self.users, self.items, alpha, self.rows, cells)


def estimated(reports: Array, shape: tuple[int, int], randomizer: Randomizer) -> Array:
    """The mean of clipped gradients over those that reported, from what they reported (eq. 9); (m, F) float64.

    Unbiased: a report says m·F·value about its own cell and 0 about the others, with E[value] the clipped number.
    """
    cells, values = shape[0] * shape[1], randomizer.values
    if np.any((reports < 0) | (reports >= cells * len(values))):
        raise BadMessage(
            f"A report is not one of {cells:,} cells with one of {len(values)} outcomes; it was damaged or forged."
        )
    cell, outcome = np.divmod(reports, np.int32(len(values)))
    totals = np.bincount(cell, weights=values[outcome], minlength=cells)
    mean: Array = cells / max(1, len(reports)) * totals.reshape(shape)
    return mean


def variance(numbers: Array, randomizer: Randomizer, reports: int) -> Array:
    """The variance of every cell of `estimated` where all devices have the same gradient `numbers`, (m, F).

    A report is about the cell with probability 1/(m·F): (m·F·E[value²] − x²)/reports.
    """
    clipped = np.clip(numbers, -BOUND, BOUND)
    found: Array = (numbers.size * randomizer.second_moment(numbers) - np.square(clipped)) / max(1, reports)
    return found


def spread(cells: int, randomizer: Randomizer, reports: int) -> float:
    """The standard deviation of a cell of `estimated` where the numbers are near 0, as nearly all are."""
    return math.sqrt(cells * float(randomizer.second_moment(np.zeros(1))[0]) / max(1, reports))
