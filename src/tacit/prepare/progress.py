"""What is shown of a run in progress: one entry per round, and a word on what is done between rounds."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tacit.federation import Transcript
from tacit.prepare.prepared import PreparedRun

#: Receives what a run is doing between its rounds and, where known, which part of that is done, from 0 to 1.
Phase = Callable[[str, float | None], None]


def ignore_phase(_doing: str, _done: float | None = None) -> None:
    """The `Phase` that shows nothing."""


@dataclass(frozen=True)
class RoundProgress:
    """What the experimenter sees after a round."""

    round: int
    rounds: int
    mse: float | None
    bytes_up: int
    epsilon: float | None = None


class ProgressLine(Protocol):
    """Where one training is shown: its rounds, and what is done between them."""

    def __call__(self, progress: RoundProgress) -> None: ...

    def phase(self, doing: str, done: float | None = None) -> None: ...


def progress_reporter(
    prepared: PreparedRun, watch: Callable[[RoundProgress], None]
) -> Callable[[int, int, Transcript], float | None]:
    """A function that shows `watch` every round of a deployment and returns the ε that this run requested by then."""

    def report(round: int, rounds: int, transcript: Transcript) -> float | None:
        spent = prepared.spent(transcript.requests_by_step)
        watch(RoundProgress(round, rounds, None, transcript.meter.bytes_up, spent))
        return spent

    return report
