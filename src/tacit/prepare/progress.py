"""What is shown of a run while it goes on: one glance a round, and in words what is done beside the rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tacit.federation import Transcript
from tacit.prepare.prepared import PreparedRun

#: Hears what a run is doing beside its rounds and, where it is known, which part of that is done, a number up to 1.
Phase = Callable[[str, float | None], None]


class Line(Protocol):
    """Where one training is shown: its rounds, and what is done beside them."""

    def __call__(self, glance: Glance) -> None: ...

    def phase(self, doing: str, done: float | None = None) -> None: ...


@dataclass(frozen=True)
class Glance:
    """What the experimenter sees after a round."""

    round: int
    rounds: int
    mse: float | None
    bytes_up: int
    epsilon: float | None = None


def glances(prepared: PreparedRun, see: Callable[[Glance], None]) -> Callable[[int, int, Transcript], float | None]:
    """What shows `see` every round: its number, the bytes up, and the ε of what was asked for by then, its result.

    The ε is this run's: what a site has spent over all its runs is in its own ledger.
    """

    def look(round: int, rounds: int, transcript: Transcript) -> float | None:
        spent = prepared.spent(transcript.requests_by_step)
        see(Glance(round, rounds, None, transcript.meter.bytes_up, spent))
        return spent

    return look
