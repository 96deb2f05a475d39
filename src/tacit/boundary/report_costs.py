"""What randomised reports cost by themselves: one of them, those of one release, and those of a whole run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tacit.boundary.events import Event, Pure, Shuffled
from tacit.boundary.query import Mechanism
from tacit.boundary.spec import REPORTS, StepTerms


@dataclass(frozen=True)
class ReportCosts:
    """The local ε of a step's reports, which holds against anyone, also if a shuffler helps the coordinator.

    Attributes
    ----------
    step : the step's name
    epsilon : ε₀ of one report
    reports : k, how many reports of a device there are in one release
    releases : T, how many releases the run makes
    crowd : among how many distinct honest devices' reports each is mixed; 0 where nothing is mixed

    Formal guarantee
    ----------------
    By basic composition the reports of one release are k·ε₀-local DP and those of the run k·T·ε₀, with δ = 0. With a
    δ > 0 fewer ε hold (`tacit.boundary.account`), and fewer still for those who see mixed reports alone.
    """

    step: str
    epsilon: float
    reports: int
    releases: int
    crowd: int = 0

    @property
    def of_release(self) -> float:
        return self.reports * self.epsilon

    @property
    def of_run(self) -> float:
        return self.releases * self.of_release

    @classmethod
    def of(cls, terms: StepTerms) -> ReportCosts | None:
        """Those of a private step that ends in reports; None for any other."""
        event, spec = terms.event, terms.spec
        if terms.query.mechanism is not Mechanism.RESPONSE or not isinstance(event, Pure | Shuffled):
            return None
        if isinstance(event, Shuffled):
            return cls(spec.step, event.local_epsilon, event.count, spec.releases, event.crowd)
        return cls(spec.step, event.epsilon, event.count, spec.releases)

    def to_json(self) -> dict[str, Any]:
        """For plans and cards."""
        return {**asdict(self), "epsilon_of_release": self.of_release, "epsilon_of_run": self.of_run}


def local_epsilon(events: Iterable[Event]) -> float | None:
    """Σ count·ε₀ of all randomised reports among events; None where there are none."""
    spent = [
        event.count * (event.local_epsilon if isinstance(event, Shuffled) else event.epsilon)
        for event in events
        if isinstance(event, Shuffled) or (isinstance(event, Pure) and event.mechanism == REPORTS)
    ]
    return sum(spent) if spent else None
