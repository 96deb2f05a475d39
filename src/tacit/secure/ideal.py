"""`IdealSum`, what a secure sum with distributed noise realises, and `SecureSum`, which realises it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit.errors import PrivacyRefused
from tacit.secure.shares import Shares


@dataclass(frozen=True)
class IdealSum:
    """The exact sum of whole numbers plus the noise that a secure sum leaves: variance σ²·|S|/(|S| − c) per cell.

    Parameters
    ----------
    colluding : c, how many of all parties may collude; at least one

    Guarantee
    ---------
    Each of |S| contributors adds a share of variance σ²/(|S| − c); c of them can subtract their own and are left with
    σ². Assumes what a secure sum provides: that nobody sees a single contribution. It exists in simulations only.
    """

    colluding: int

    fewest = 1

    def noise(self, sigma: float, contributors: int) -> float:
        colluding = max(1, self.colluding)  # of everybody, and all of them may be among those that stayed
        if contributors <= colluding:
            raise PrivacyRefused(
                f"{contributors} contributors with {colluding} of them colluding leave nobody to add noise; "
                "let more parties take part."
            )
        return sigma * math.sqrt(contributors / (contributors - colluding))


@dataclass(frozen=True)
class SecureSum:
    """The sum that the parties' masks reveal (`tacit.secure.secagg`), with noise in shares (`tacit.secure.shares`).

    Parameters
    ----------
    shares : who adds how much noise
    """

    shares: Shares

    @property
    def fewest(self) -> int:
        return self.shares.fewest

    def noise(self, sigma: float, contributors: int) -> float:
        return math.sqrt(self.shares.left(sigma * sigma, contributors))
