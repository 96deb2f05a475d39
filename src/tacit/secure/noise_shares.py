"""Shares of one noise: how much each party adds, and how much is removed again when more parties stayed than had to.

Nobody knows beforehand who will drop out, so everyone adds as much as the fewest survivors would need. Once more have
stayed, the excess is removed: each share is a sum of independent parts with a seed each, and the seeds of the parts
that are not needed are revealed. What remains is one noisy sum, and the removed parts are independent of it
(add-then-remove). Replacing noise by fresh noise instead, as in P0, Theorem 5, would show the same sum twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tacit.errors import PrivacyRefused

#: Parts of excess: with five and tolerate = 0.3, at most 1.11 of the needed variance remains.
LEVELS = 5
#: Rounding of float64 must not make the noise smaller.
UP = 1 + 2.0**-40


def fewest_of(parties: int, tolerate: float) -> int:
    """The fewest parties that stay where a fraction ω may drop out: ⌈(1 − ω)·n⌉.

    >>> fewest_of(10, 0.3), fewest_of(7, 0.5)
    (7, 4)
    """
    return math.ceil((1 - tolerate) * parties - 1e-9)


@dataclass(frozen=True)
class NoiseShares:
    """The noise of one sum over `parties`, of which at least `fewest` stay and at most `colluding` collude.

    Guarantee
    ---------
    With survivors S, |S| ≥ `fewest`, every survivor's share keeps the variance v/(s − c), s ≤ |S| being the level
    reached; at least |S| − c are honest, so after the colluders have subtracted their own shares a variance of
    v·(|S| − c)/(s − c) ≥ v remains. Skellam noise adds up exactly. An excess that cannot be removed, because its seed
    did not arrive, only adds noise.

    >>> shares = NoiseShares.of(100, tolerate=0.3, colluding=1)
    >>> shares.fewest, shares.levels, [round(shares.remaining_variance(1.0, n), 3) for n in (70, 85, 100)]
    (70, (70, 76, 82, 88, 94, 100), [1.014, 1.049, 1.01])
    """

    parties: int
    fewest: int
    colluding: int

    @classmethod
    def of(cls, parties: int, tolerate: float, colluding: int) -> NoiseShares:
        """For `parties` of which a fraction `tolerate` may drop out."""
        fewest = fewest_of(parties, tolerate)
        if fewest - colluding < 1:
            raise PrivacyRefused(
                f"Of {parties:,} parties {fewest:,} may be left, and {colluding:,} of those may collude: nobody is "
                "left to add noise; let more parties take part, or lower [aggregation] tolerate or collusion."
            )
        return cls(parties, fewest, colluding)

    @property
    def honest(self) -> int:
        """h, the fewest honest survivors: what each share is sized for."""
        return self.fewest - self.colluding

    @cached_property
    def levels(self) -> tuple[int, ...]:
        """How many survivors each level needs, from `fewest` to all."""
        span = self.parties - self.fewest
        return tuple(sorted({self.fewest + round(span * level / LEVELS) for level in range(LEVELS + 1)}))

    @property
    def extras(self) -> int:
        """How many parts of excess a share has."""
        return len(self.levels) - 1

    def base(self, variance: float) -> float:
        """The variance of the part that is never removed: enough if everyone stays."""
        return UP * variance / (self.levels[-1] - self.colluding)

    def excess(self, variance: float) -> tuple[float, ...]:
        """The variance of each part of excess; the l-th is not needed once level l + 1 is reached."""
        needed = [variance / (level - self.colluding) for level in self.levels]
        return tuple(UP * (more - less) for more, less in pairwise(needed))

    def spare(self, survivors: int) -> int:
        """How many parts of excess, from the first, these survivors do not need."""
        if survivors < self.fewest:
            raise PrivacyRefused(
                f"{survivors:,} survivors are fewer than the {self.fewest:,} that the noise was shared among."
            )
        return sum(level <= survivors for level in self.levels[1:])

    def remaining_variance(self, variance: float, survivors: int) -> float:
        """The variance on each cell of the sum, once spare parts are removed."""
        return survivors * (self.base(variance) + sum(self.excess(variance)[self.spare(survivors) :]))

    def largest_variance(self, variance: float) -> float:
        """The largest variance that can be on a cell: everyone's whole share."""
        return self.parties * (self.base(variance) + sum(self.excess(variance)))
