"""The plain sum: the coordinator sees every contribution and adds them up."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Aggregation(Protocol):
    """One way to add up, as far as its noise goes."""

    @property
    def fewest(self) -> int:
        """How many contributors a sum needs; with fewer the round is void."""

    def noise(self, sigma: float, contributors: int) -> float:
        """The standard deviation on each cell of the sum, where a guarantee needs `sigma`."""


def exact_sum(contributions: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """Add in float64, in the order given, so that the result does not depend on who was faster."""
    totals = {name: np.zeros(block.shape, dtype=np.float64) for name, block in contributions[0].items()}
    for contribution in contributions:
        for name, total in totals.items():
            total += contribution[name]
    return totals


class Plain:
    """The sum of what everybody sees.

    Guarantee
    ---------
    None of its own: the coordinator sees every party's contribution, so each must carry noise of its own.
    """

    fewest = 1

    def noise(self, sigma: float, contributors: int) -> float:
        return sigma * math.sqrt(contributors)
