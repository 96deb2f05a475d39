"""`shuffle`: a shuffler separates single reports from their senders, so that one device hides among all others.

The shuffler is simulated here: only it sees who sent a report.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from tacit.aggregation.aggregation import Aggregation, colluders, colluding, nothing_to_hide, shuffled
from tacit.boundary.release import Kind
from tacit.boundary.wire import Value
from tacit.config import AggregationSection
from tacit.errors import PeerFailed
from tacit.federation.calls import Answers, Call, View, require
from tacit.federation.dropout import Attendance
from tacit.guarantee import Trust
from tacit.partition import Setting
from tacit.secure.noise_shares import fewest_of


@dataclass(frozen=True)
class Shuffle(Aggregation):
    """Reports that are shuffled before the coordinator sees them.

    Attributes
    ----------
    tolerate : ω, the fraction of devices that may drop out of a round
    colluding : c, how many of all devices may collude; at least one

    Guarantee
    ---------
    The shuffler passes nothing on that fewer than ⌈(1 − ω)·n⌉ devices sent; of those, all but c are honest, and one of
    them hides among so many (`tacit.boundary.shuffle_amplification`). If the shuffler helps the coordinator, only each
    report's own ε holds.
    """

    tolerate: float = 0.3
    colluding: int = 1

    name: ClassVar[str] = "shuffle"
    seen: ClassVar[str] = "reports are mixed before the coordinator sees them"
    hides: ClassVar[frozenset[Kind]] = frozenset({Kind.REPORT})
    only_simulated: ClassVar[bool] = True

    @classmethod
    def of(cls, setting: Setting, parties: int, section: AggregationSection) -> Self:
        return cls(setting, parties, section.tolerate, colluding(section.collusion, parties))

    @property
    def passes(self) -> int:
        """How many devices' reports it waits for."""
        return fewest_of(self.parties, self.tolerate)

    @property
    def crowd(self) -> int:  # type: ignore[override]
        return max(1, self.passes - self.colluding)

    def check(self, method: str, steps: Mapping[str, tuple[Kind, bool]]) -> None:
        if any(kind is not Kind.REPORT for kind, _mean in steps.values()) or not steps:
            raise nothing_to_hide("shuffle", method, "mixes single reports alone", '"secagg" or "plain"')

    def trust(self) -> tuple[Trust, str]:
        return Trust.SHUFFLED, f"whoever sees the shuffled reports, with {colluders(self.colluding, self.setting)}"

    def gather(self, call: Call) -> dict[str, Any]:
        request = call.request

        def reduce(answers: Answers, _there: Attendance) -> dict[str, Value]:
            reported = sum(answer.contributors for answer, _body in require(answers, request))
            if reported < self.passes:
                raise PeerFailed(
                    f'{reported:,} devices reported for step "{request.step}" in round {request.round}, and the '
                    f"shuffler passes nothing on below {self.passes:,}; what left is charged. Allow for more drop-outs "
                    "with [aggregation] tolerate."
                )
            return shuffled(call, answers)

        return call.contributions(reduce, "reports", view=View.HIDDEN)
