"""Shares of one noise: how much each party adds, and how much of it is taken out again when more stayed than had to.

Nobody knows beforehand who will drop out, so everyone adds as much as the fewest survivors would need. Once it is known
that more stayed, the excess is removed: each share is a sum of independent pieces from seeds of their own, and the
seeds of the pieces that were not needed are revealed. What remains is one noisy sum, and the pieces that were taken
out are independent of it (add-then-remove). Replacing noise by fresh noise instead, as in P0, Theorem 5, would show the
same sum twice.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from tacit.errors import PrivacyRefused

#: Pieces of excess: with five, and three tenths of drop-outs allowed for, at most 1.11 of the needed variance is left.
LEVELS = 5
#: Rounding of float64 must not make the noise smaller.
UP = 1 + 2.0**-40


def fewest_of(parties: int, tolerate: float) -> int:
    """How many of the parties stay at least, where a fraction ω of them may drop out: ⌈(1 − ω)·n⌉.

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
    reached; the honest ones are |S| − c at least, so that after the colluders have subtracted their own shares a
    variance of v·(|S| − c)/(s − c) ≥ v is left. Skellam noise adds up exactly. A share whose excess cannot be taken
    out, because its seed did not arrive, only leaves more.

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
        """How many survivors each level needs, from `fewest` to everybody."""
        span = self.parties - self.fewest
        return tuple(sorted({self.fewest + round(span * level / LEVELS) for level in range(LEVELS + 1)}))

    @property
    def extras(self) -> int:
        """How many pieces of excess a share has."""
        return len(self.levels) - 1

    def base(self, variance: float) -> float:
        """The variance of the piece that is never taken out: enough if everybody stays."""
        return UP * variance / (self.levels[-1] - self.colluding)

    def excess(self, variance: float) -> tuple[float, ...]:
        """The variance of each piece of excess; the l-th is not needed once level l + 1 is reached."""
        needed = [variance / (level - self.colluding) for level in self.levels]
        return tuple(UP * (more - less) for more, less in pairwise(needed))

    def spare(self, survivors: int) -> int:
        """How many pieces of excess these survivors do not need: the first so many."""
        if survivors < self.fewest:
            raise PrivacyRefused(
                f"{survivors:,} survivors are fewer than the {self.fewest:,} that the noise was shared among."
            )
        return sum(level <= survivors for level in self.levels[1:])

    def remaining_variance(self, variance: float, survivors: int) -> float:
        """The variance on each cell of the sum, once what can be spared is taken out."""
        kept = self.base(variance) + sum(self.excess(variance)[self.spare(survivors) :])
        return survivors * kept

    def largest_variance(self, variance: float) -> float:
        """The largest variance that can be on a cell: everybody's whole share."""
        return self.parties * (self.base(variance) + sum(self.excess(variance)))
