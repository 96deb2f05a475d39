"""Choosing among candidates by score: the k best by Gumbel noise, which for k = 1 is the exponential mechanism.

A score's sensitivity Δ is the most that one unit can move any single score. Scores are *monotone* where a unit moves
all of them in one direction, as counts do when a record is emptied; under the replace relation they are not.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.boundary import events
from tacit.boundary.randomness import Source
from tacit.errors import PrivacyRefused, UsageError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TopK:
    """The k largest of score + scale·G, best first, with G standard Gumbel: P(G ≤ g) = exp(−e^−g).

    Formal guarantee
    ----------------
    For any two score vectors that differ by at most Δ in every entry it is ε-DP with ε = k·2Δ/scale, or k·Δ/scale
    where all scores move one way. To add noise once and take k is to *peel*: k rounds, each of which picks i among
    those left with probability e^(s_i/scale)/Σ_j e^(s_j/scale). For the largest of independent Gumbels shifted by
    s_j/scale has that law, and given which one it is, the order of the others is as if drawn anew (Durfee and Rogers
    2019, §4.1; McSherry and Talwar 2007 for one round). In a round the numerator changes by a factor of e^(Δ/scale) at
    most, and the denominator by as much the other way; if all scores move one way, only one of the two does harm. Who
    is left is known from the output so far, so rounds add up. The order is part of the output, and covered.

    Computed in float64 from 116 random bits each, G reaches 80. What leaves is an index, which has no low-order bits to
    leak; each probability is that of real arithmetic to about 10⁻¹⁴ of it.
    """

    k: int
    scale: float

    def __post_init__(self) -> None:
        if not 0 < self.scale < math.inf:
            raise PrivacyRefused(f"Gumbel noise of scale {self.scale:g} protects no one; give a positive number.")
        if self.k < 1:
            raise UsageError(f"There are no {self.k} best candidates; choose at least 1.")

    def choose(self, scores: Array, source: Source) -> NDArray[np.int64]:
        """Positions of the chosen, (k,) int64; scores: (n,), n ≥ k."""
        if scores.ndim != 1 or len(scores) < self.k:
            raise UsageError(f"{self.k} cannot be chosen from scores of shape {scores.shape}; give a vector as long.")
        if not np.isfinite(scores).all():
            raise PrivacyRefused("A score is not finite, which no noise covers; bound the scores first.")
        below = scores.astype(np.float64) - float(scores.max())  # the contenders keep all their digits
        noised = below + self.scale * gumbel(source, len(scores))
        return np.argsort(-noised, kind="stable")[: self.k].astype(np.int64)

    def event(self, sensitivity: float, monotone: bool = False, count: int = 1) -> events.Pure:
        """What `count` choices spend."""
        if not 0 < sensitivity < math.inf:
            raise PrivacyRefused(f"No noise protects scores whose sensitivity is {sensitivity:g}; bound them first.")
        epsilon = self.k * (1 if monotone else 2) * sensitivity / self.scale
        return events.Pure(math.nextafter(epsilon, math.inf), "gumbel top-k", count)


def gumbel(source: Source, n: int) -> NDArray[np.float64]:
    """Standard Gumbel noise, (n,): −ln E with E = −ln(1 − u) exponential; u has 52 bits, and 64 finer ones near 0.

    Small u make large noise. There the logarithm keeps all bits, so that an unlikely candidate keeps its chance.
    """
    top, fine = source.words(2 * n).reshape(2, n)
    u = ((top >> np.uint64(12)).astype(np.float64) + (fine.astype(np.float64) + 0.5) * 2.0**-64) * 2.0**-52
    noise: NDArray[np.float64] = -np.log(-np.log1p(-np.minimum(u, 1.0 - 2.0**-53)))
    return noise
