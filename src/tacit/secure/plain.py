"""The plain sum: the coordinator sees every contribution and adds them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Aggregation(Protocol):
    """One way to add up. What it reveals beside the sum is part of the guarantee."""

    name: str

    def combine(self, contributions: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The sum, block by block, of at least one contribution."""


class Plain:
    """Add in float64, in the order given, so that the result does not depend on who was faster.

    Guarantee
    ---------
    None of its own: the coordinator sees every party's contribution.
    """

    name = "plain"

    def combine(self, contributions: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        totals = {name: np.zeros(block.shape, dtype=np.float64) for name, block in contributions[0].items()}
        for contribution in contributions:
            for name, total in totals.items():
                total += contribution[name]
        return totals
