"""`IdealSum`: the functionality that a secure sum with distributed noise realises. It exists in simulations only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from tacit.errors import PrivacyRefused
from tacit.rng import derive
from tacit.secure.plain import Array, exact_sum


class IdealSum:
    """The exact sum plus the noise that a secure sum leaves: N(0, σ²·|S|/(|S| − c)) per cell.

    Parameters
    ----------
    colluding : how many of all parties may collude; at least one
    seed : of the noise, which is SIMULATED

    Guarantee
    ---------
    Each of |S| contributors adds a share of variance σ²/(|S| − c); c of them can subtract their own and are left with
    σ². So whoever sees the sum, and c colluding contributors, face a Gaussian mechanism of standard deviation σ.
    Assumes what a secure sum provides: that nobody sees a single contribution.
    """

    sealed = True

    def __init__(self, colluding: int, seed: int) -> None:
        self._colluding, self._seed = max(1, colluding), seed

    def noise(self, sigma: float, contributors: int) -> float:
        colluding = self._colluding  # of everybody, and all of them may be among those that stayed
        if contributors <= colluding:
            raise PrivacyRefused(
                f"{contributors} contributors with {colluding} of them colluding leave nobody to add noise; "
                "let more parties take part."
            )
        return sigma * math.sqrt(contributors / (contributors - colluding))

    def combine(
        self, contributions: Sequence[Mapping[str, Array]], noise: float, *purpose: str | int
    ) -> dict[str, Array]:
        stream = derive(self._seed, "ideal sum", *purpose)
        totals = sorted(exact_sum(contributions).items())
        return {name: total + noise * stream.standard_normal(total.shape) for name, total in totals}
