"""`ideal`: the ideal functionality of a secure sum, for simulations. Cohorts of devices run `secagg` this way too."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tacit.aggregation.aggregation import Aggregation, colluders, colluding, decoded, nothing_to_hide
from tacit.boundary.code import SEALED, Grid
from tacit.boundary.endpoint import Endpoint
from tacit.boundary.mechanisms import Skellam
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value
from tacit.config import AggregationSection
from tacit.errors import PrivacyRefused
from tacit.federation.calls import Answers, Call, Total, View
from tacit.federation.dropout import Attendance
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.secure.masks import pack, unpack
from tacit.secure.quantize import reduced, wrapped


@dataclass(frozen=True)
class HiddenSum(Aggregation):
    """Both sides of a sum that a simulation hides: it adds the noise, and nobody sees a single contribution."""

    def ready(self, terms: StepTerms, endpoint: Endpoint) -> None:
        """Refuse, before anything is charged, what only a simulation may do."""
        endpoint.require_simulation("leave the noise of a sum to the aggregation")

    def noised(self, exact: Any, terms: StepTerms, endpoint: Endpoint) -> Any:
        """Unchanged: the sum gets the noise that the shares of those who stay would add up to."""
        return exact

    def count_traffic(self, call: Call, there: Attendance) -> None:
        """Count what the protocol would send, where there is one."""

    def add(self, call: Call) -> Total | None:
        """The sum mod 2^bits with the noise that shares would leave. Only this function sees a contribution."""
        bits, size = call.terms.code.bits, call.size

        def reduce(answers: Answers, there: Attendance) -> dict[str, Value]:
            contributors = sum(answer.contributors for answer, _body in answers)
            self.count_traffic(call, there)
            if contributors < max(1, self.fewest):
                return {"contributors": contributors}
            total = wrapped(self._shared_noise(call, contributors), bits)
            for _answer, body in answers:
                total += unpack(body[SEALED], size, bits)
            return {"contributors": contributors, "total": pack(reduced(total, bits), bits)}

        result = call.contributions(reduce, view=View.HIDDEN)
        if "total" not in result:
            return None
        return decoded(call, result["contributors"], unpack(result["total"], size, bits))

    def _shared_noise(self, call: Call, contributors: int) -> Array:
        """The noise of all survivors' shares together: one Skellam variable a cell, since these add up exactly."""
        code, size = call.terms.code, call.size
        if not isinstance(code, Grid):
            return np.zeros(size, dtype=np.int64)
        variance = (self.noise(code.sigma, contributors) / code.rounding.step) ** 2
        return Skellam(variance).sample(size, call.source("sum noise"))


@dataclass(frozen=True)
class Ideal(HiddenSum):
    """The exact sum of integers plus the noise that a secure sum leaves: variance σ²·|S|/(|S| − c) per cell.

    Attributes
    ----------
    colluding : c, how many of all parties may collude; at least one

    Guarantee
    ---------
    Each of |S| contributors adds a share of variance σ²/(|S| − c); c of them can subtract their own and are left with
    σ². Assumes what a secure sum provides: that nobody sees a single contribution. It exists in simulations only.
    """

    colluding: int = 1

    name: ClassVar[str] = "ideal"
    seen: ClassVar[str] = "it simulates a secure sum, and no cryptography was run"
    hides: ClassVar[frozenset[Kind]] = frozenset({Kind.SUM})
    only_simulated: ClassVar[bool] = True

    @classmethod
    def of(cls, setting: Setting, parties: int, section: AggregationSection) -> Self:
        return cls(setting, parties, colluding(section.collusion, parties))

    def check(self, method: str, steps: Mapping[str, tuple[Kind, bool]]) -> None:
        if any(kind is not Kind.SUM for kind, _mean in steps.values()) or not steps:
            raise nothing_to_hide("ideal", method, "hides contributions to a sum alone")

    def trust(self) -> tuple[Trust, str]:
        return Trust.DISTRIBUTED, f"the coordinator and {colluders(self.colluding, self.setting)}"

    def noise(self, sigma: float, contributors: int) -> float:
        if contributors <= self.colluding:  # all of those may be among the ones that stayed
            raise PrivacyRefused(
                f"{contributors} contributors with {self.colluding} of them colluding leave no honest one to add "
                "noise; let more parties take part."
            )
        return sigma * math.sqrt(contributors / (contributors - self.colluding))

    def largest_variance(self, variance: float) -> float:
        return variance * (self.colluding + 1)

    def description(self) -> dict[str, Any] | None:
        return {"colluding": self.colluding}
