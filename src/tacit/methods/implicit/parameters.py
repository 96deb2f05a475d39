"""Parameters of `implicit`, and the rules that choose those that are not set, from public quantities alone."""

import math
from typing import Self

from pydantic import Field

from tacit.boundary.cell_reports import Choice
from tacit.data.public_facts import PublicFacts
from tacit.errors import UsageError
from tacit.federation import Facts
from tacit.methods.context import Context
from tacit.methods.method import Parameters
from tacit.partition import Setting


class ImplicitParameters(Parameters):
    """Parameters of `implicit`.

    The paper's λ = 1e-6 and γ = 1e-3 are no defaults: without λ a user's factors grow without bound where items' are
    small, and all of their gradient is clipped; and a rate that fits depends on how large gradients and noise are.

    Parameters
    ----------
    factors : F
    rounds : T, epochs; each makes one release
    steps : descent steps of the coordinator in an epoch, all along the epoch's own gradient
    reports : k, cells of its gradient that each device reports in an epoch; without it gradients are summed
    mechanism : how a report says a number: "one-bit" as in the paper, or "piecewise"; default whichever has less
        variance at the run's ε₀
    confidence : α in c = 1 + α·r
    regularization : λ
    rate : γ of every step; default a rule from public quantities
    """

    factors: int = Field(default=5, ge=1, le=256)
    rounds: int = Field(default=20, ge=1, le=100_000)
    steps: int = Field(default=20, ge=1, le=10_000)
    reports: int | None = Field(default=None, ge=1, le=1_000_000)
    mechanism: Choice | None = None
    confidence: float = Field(default=1.0, ge=0, le=1e6)
    regularization: float = Field(default=1.0, gt=0)
    rate: float | None = Field(default=None, gt=0)

    @property
    def dimensions(self) -> dict[str, int]:
        return {"factors": self.factors, "triangle": self.factors * (self.factors + 1) // 2}

    def resolved(self, context: Context) -> Self:
        """The same; refuses reports of silos, and a mechanism that nothing is reported by."""
        if self.reports is not None and context.setting is not Setting.DEVICE:
            raise UsageError(
                f"reports = {self.reports} is what each device sends, and [partition] makes a {context.setting} "
                'setting; divide by = "device", or leave reports out, so that gradients are summed.'
            )
        if self.mechanism is not None and self.reports is None:
            raise UsageError(f'mechanism = "{self.mechanism}" is how devices report; set reports, or leave it out.')
        return self

    def start(self, facts: Facts | PublicFacts) -> float:
        """The size of an item's factors at the start: then a user's are about 1, who took |Ω|/n of the m items."""
        return (1 + self.confidence) * math.sqrt(facts.ratings / facts.users) / facts.items
