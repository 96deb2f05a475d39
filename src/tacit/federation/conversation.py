"""One sum, one mean or one round of reports, as the coordinator's side of an aggregation holds it.

Every call is logged as it is made, with what it left and nothing more; so a run that is resumed goes on in the middle
of a sum, and an aggregation needs no code for that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from tacit.boundary.endpoint import Peers
from tacit.boundary.query import cells_of
from tacit.boundary.randomness import Seeded, Source
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import PeerFailed
from tacit.federation.calls import Heard, Line, Sealed, View
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Facts
from tacit.federation.messages import Exchange, Request, pack_parties, unpack_parties
from tacit.rng import stream_key


@dataclass(frozen=True, eq=False)
class Opened:
    """What an aggregation shows: blocks by name, and how many contributed."""

    blocks: Mapping[str, Array]
    contributors: int


@dataclass(frozen=True, eq=False)
class Conversation:
    """What the coordinator's side of an aggregation may use.

    Attributes
    ----------
    line : to the parties and other roles
    request : what every party is asked for
    terms : what was agreed about the step
    facts, peers : public facts of the run, and by which keys parties know each other
    shapes : of the step's blocks, by name
    dropout : in a simulation, how likely a party is to miss a sum; 0 for what is not a sum
    sealed : checks contributions that travel sealed; None where the step's schema does
    rejected : by party, why something of it was left out
    """

    line: Line
    request: Request
    terms: StepTerms
    facts: Facts
    peers: Peers
    shapes: Mapping[str, tuple[int, ...]]
    dropout: float = 0.0
    sealed: Sealed | None = None
    rejected: dict[str, str] = field(default_factory=dict)

    @property
    def roster(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.facts.roster)

    @property
    def size(self) -> int:
        """How many numbers all blocks have together."""
        return cells_of(self.shapes)

    def attendance(self, exchanges: int) -> list[Attendance]:
        """Who is there in each of several exchanges about this sum."""
        return Attendance.over(self.facts, self.dropout, self.request.round, self.line.calls, exchanges)

    def source(self, *purpose: str | int) -> Source:
        """Coins of a simulation; a coordinator draws nothing for anybody otherwise."""
        place = (*purpose, self.request.step, self.request.round, self.request.hash)
        return Seeded(stream_key(self.facts.seed, *place))

    def contributions(
        self,
        left: Callable[[Heard, Attendance], Mapping[str, Value]],
        verb: str = "sum",
        *,
        view: View = View.OPEN,
        names: Sequence[str] | None = None,
        there: Attendance | None = None,
    ) -> dict[str, Any]:
        """Ask everybody, or `names`, for the step; what `left` makes of all answers together is logged and returned.

        With `names`, an answer that is not as agreed is left out under its sender's name; otherwise it ends the run.
        """

        def compute() -> Mapping[str, Value]:
            here = there or Attendance.draw(self.facts, self.dropout, self.request.round, self.line.calls)
            requests = dict.fromkeys(self.roster if names is None else names, self.request)
            rejected = None if names is None else self.rejected
            return left(self.line.exchange(requests, here, view, self.sealed, rejected), here)

        key = f"{self.request.round}/{self.request.step}/{verb}/{self.request.attempt}"
        return self.line.call(key, self.request.hash, compute)

    def say(
        self, exchange: str, payloads: Mapping[str, Mapping[str, Value]], there: Attendance | None = None
    ) -> dict[str, dict[str, Any]]:
        """One exchange about this sum: to each its own payload; what came back, by name."""
        about = self.request
        requests = {
            name: Request(
                about.method, about.parameters, f"{exchange}:{about.step}", about.round, about.attempt, encode(payload)
            )
            for name, payload in payloads.items()
        }
        everybody = (*self.roster, *(role.name for role in self.facts.roles))

        def compute() -> dict[str, Value]:
            heard = self.line.exchange(requests, there or Attendance.full(), rejected=self.rejected)
            return _gathered({answer.party: answer.body for answer, _body in heard}, everybody)

        whole = hashlib.sha256("|".join(sorted(asked.hash for asked in requests.values())).encode()).hexdigest()
        result = self.line.call(f"{about.round}/{about.step}/{exchange}/{about.attempt}", whole, compute)
        return {party: decode(body) for party, body in _parted(result, everybody).items()}

    def somebody(self, heard: Heard) -> Heard:
        """What was heard, unless it is nothing."""
        if not heard:
            raise PeerFailed(
                f'Nobody answered step "{self.request.step}" of round {self.request.round}; allow more time with '
                "[engine] timeout, or fewer drop-outs with [aggregation] dropout."
            )
        return heard


class Opening(Protocol):
    """The coordinator's side of an aggregation."""

    @property
    def exchanges(self) -> Mapping[str, Exchange]: ...

    @property
    def fewest(self) -> int:
        """How many contributors a sum needs; with fewer the round is void."""

    def seals(self, terms: StepTerms) -> bool: ...

    def check_sealed(self, payload: Mapping[str, Value], terms: StepTerms, cells: int, who: str) -> None: ...

    def noise(self, sigma: float, contributors: int) -> float:
        """The standard deviation on each cell of a sum, where a guarantee needs `sigma`."""

    def add(self, conversation: Conversation) -> Opened | None:
        """The sum of those that stayed; None where too few did."""

    def mean(self, conversation: Conversation) -> Array:
        """The weighted mean of a step with one block, by the roster's weights over those that answered."""

    def gather(self, conversation: Conversation) -> dict[str, Any]:
        """Everybody's single reports, parted from their senders."""


def _gathered(bodies: Mapping[str, bytes], roster: Sequence[str]) -> dict[str, Value]:
    """Many parties' answers as one result: who answered, how long, and all bytes; names would fill a header."""
    here = [name for name in roster if name in bodies]
    lengths = np.array([len(bodies[name]) for name in here], dtype=np.int64)
    together = np.frombuffer(b"".join(bodies[name] for name in here), dtype=np.uint8)
    return {"who": pack_parties(here, roster), "lengths": lengths, "bodies": together}


def _parted(result: Mapping[str, Any], roster: Sequence[str]) -> dict[str, bytes]:
    """The answers that `_gathered` put together."""
    here = [name for name, there in zip(roster, unpack_parties(result["who"], len(roster)), strict=True) if there]
    ends = np.cumsum(result["lengths"])
    raw = result["bodies"].tobytes()
    return {name: raw[end - size : end] for name, size, end in zip(here, result["lengths"], ends, strict=True)}
