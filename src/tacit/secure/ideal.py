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
    collusion : the fraction of contributors that may collude; at least one
    seed : of the noise, which is SIMULATED

    Guarantee
    ---------
    Each of |S| contributors adds a share of variance σ²/(|S| − c); c of them can subtract their own and are left with
    σ². So whoever sees the sum, and c colluding contributors, face a Gaussian mechanism of standard deviation σ.
    Assumes what a secure sum provides: that nobody sees a single contribution.
    """

    sealed = True

    def __init__(self, collusion: float, seed: int) -> None:
        self._collusion, self._seed = collusion, seed

    def noise(self, sigma: float, contributors: int) -> float:
        colluding = max(1, math.ceil(self._collusion * contributors))
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
