"""SGDMF's parameters, and its step size as a rule from public quantities."""

from __future__ import annotations

from pydantic import Field

from tacit.federation import Facts
from tacit.methods.base import Parameters
from tacit.methods.start import falling


class SGDMFParameters(Parameters):
    """Parameters of SGDMF.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T
    local_steps : T', steps between two messages; on a device, steps on its own factors before it contributes
    sampling : η, the probability that a user takes part in a step
    rate : γ, the first step's size for the mean gradient; default `first_rate`
    regularization : the first step's weight decay, once per row and step; it falls with the rate
    """

    factors: int = Field(default=20, ge=1, le=1024)
    rounds: int = Field(default=100, ge=1, le=100_000)
    local_steps: int = Field(default=10, ge=1, le=10_000)
    sampling: float = Field(default=0.1, gt=0, le=1)
    rate: float | None = Field(default=None, gt=0)
    regularization: float = Field(default=0.0, ge=0)

    @property
    def dimensions(self) -> dict[str, int]:
        return {"factors": self.factors}

    def rate_per_rating(self, facts: Facts, step: int, steps: int) -> float:
        """γ_t/(η·|Ω|): what one sampled rating's gradient is multiplied by."""
        first = self.rate if self.rate is not None else first_rate(facts, self.sampling)
        return falling(first, step, steps, LAST) / (self.sampling * max(1, facts.ratings))

    def decay(self, step: int, steps: int) -> float:
        """The part of every row that one step takes away."""
        return min(1.0, falling(self.regularization, step, steps, LAST))


#: The last rate as a part of the first.
LAST = 0.02


def first_rate(facts: Facts, sampling: float) -> float:
    """γ = 4·min(η·n, m)/R.

    A sampled user's factors move by γ/(η·|Ω|) times a sum over her |Ω|/n ratings, of curvature ≤ 2R each; so the
    average user's step is stable for γ < η·n/R, and the average item's for γ < m/R. The first steps are larger than
    that, the last ones far smaller: embedding clipping bounds the first, and their noise is what finds good factors.
    The 4 was chosen on synthetic data and public sets; docs/results/foundation.md says how.
    """
    return 4.0 * min(sampling * facts.users, facts.items) / facts.scale.span
