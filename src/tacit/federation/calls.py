"""Calls on the parties: send requests, check and record the answers, log each result so that a run can resume.

A `Messenger` does this for one run. A `Call` is one sum, one mean or one round of reports as the coordinator's side of
an aggregation sees it; each of its exchanges is logged, so a resumed run continues in the middle of a sum.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from tacit.boundary.endpoint import Peers
from tacit.boundary.ledger import next_head
from tacit.boundary.query import cells_of
from tacit.boundary.randomness import Seeded, Source
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError, TamperingFound
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Facts
from tacit.federation.messages import Answer, Exchange, Request, Step, exchange_step, named_parties, pack_parties
from tacit.federation.transcript import Entry, Transcript
from tacit.rng import stream_key


@dataclass(frozen=True)
class Logged:
    """The result of one call in the wire format, its messages, and the parties' ledger heads after it."""

    result: bytes
    entries: tuple[Entry, ...]
    heads: Mapping[str, str]


class Log(Protocol):
    """Where results of calls are stored, so that a run can be resumed."""

    def recall(self, key: str, request: str) -> Logged | None: ...

    def keep(self, key: str, request: str, logged: Logged) -> None: ...


class Engine(Protocol):
    """What carries messages: deliver to each party its request, gather the answers in roster order, time out."""

    def deliver(self, requests: Mapping[str, Request], attendance: Attendance) -> Sequence[Answer]: ...


class View(StrEnum):
    """What the coordinator sees of single answers."""

    OPEN = "open"  # everything
    HIDDEN = "hidden"  # nothing: a simulation adds them up for it
    MASKED = "masked"  # masked bytes, which reveal nothing alone and differ each time


#: Answers with their decoded content.
Answers = list[tuple[Answer, dict[str, Any]]]

#: Raises `BadMessage` unless a sealed contribution of so many cells from that sender is well formed.
CheckSealed = Callable[[Mapping[str, Value], int, str], None]


@dataclass(eq=False)
class Messenger:
    """Sends the requests of one run, and checks and records every answer.

    Attributes
    ----------
    engine, facts, steps, dimensions, transcript, log, stop_on_refusal : as in `Federation`
    exchanges : the messages of the run's aggregation besides contributions
    private : whether parties have ledgers, whose heads must continue from answer to answer
    calls : how many calls were made
    heads : each party's latest ledger head
    """

    engine: Engine
    facts: Facts
    steps: Mapping[str, Step]
    exchanges: Mapping[str, Exchange]
    dimensions: Mapping[str, int]
    transcript: Transcript
    log: Log | None = None
    private: bool = False
    stop_on_refusal: bool = False
    calls: int = field(default=0, init=False)
    heads: dict[str, str] = field(default_factory=dict, init=False)

    @cached_property
    def devices(self) -> dict[str, int]:
        return {member.name: member.devices for member in (*self.facts.roster, *self.facts.roles)}

    def call(self, key: str, request: str, compute: Callable[[], Mapping[str, Value]]) -> dict[str, Any]:
        """One call: its logged result if the run is being resumed, else a new one, logged before it is used."""
        key = f"{self.calls}/{key}"
        logged = None if self.log is None else self.log.recall(key, request)
        if logged is not None:
            self.transcript.restore(logged.entries)
            self.heads = dict(logged.heads)
            result = dict(decode(logged.result))
        else:
            first = len(self.transcript.entries)
            result = dict(compute())
            if self.log is not None:
                entries = tuple(self.transcript.entries[first:])
                self.log.keep(key, request, Logged(encode(result), entries, dict(self.heads)))
        self.calls += 1
        return result

    def send(
        self,
        requests: Mapping[str, Request],
        attendance: Attendance,
        view: View = View.OPEN,
        sealed: CheckSealed | None = None,
        rejected: dict[str, str] | None = None,
    ) -> Answers:
        """Send each party its request; the answers that arrived, checked against schema and ledger head.

        `sealed` checks sealed contributions; others are checked against their schema. If `rejected` is given, a bad
        answer is left out and noted there under its sender's name; otherwise it ends the run.
        """
        if not requests:
            return []
        first = next(iter(requests.values()))
        step = self.steps.get(first.step) or exchange_step(first.step, self.steps, self.exchanges)
        if step is None:
            raise BadMessage(f'"{first.step}" is no step of this run\'s method.')
        self._record_requests(step, requests, attendance)
        arrived: Answers = []
        refused, senders = [], set[str]()
        for answer in self.engine.deliver(requests, attendance):
            answer = self._checked(step, answer)
            if answer.party in senders or answer.party not in requests:
                raise BadMessage(f'{answer.party} answered step "{step.name}" twice, or without a request.')
            senders.add(answer.party)
            request = requests[answer.party]
            self._record_answer(step, request, answer, view)
            if answer.status in ("ok", "bad"):
                try:
                    self._check_head(request, answer, view)
                    arrived.append((answer, self._content(step, answer, sealed)))
                except TacitError as error:
                    if rejected is None:
                        raise
                    rejected[answer.party] = str(error)
            elif answer.status == "refused":
                refused.append(answer)
            else:  # a lost answer is in its sender's ledger all the same, so the next head is unknown
                self.heads.pop(answer.party, None)
        if refused and (self.stop_on_refusal or not arrived):
            who, why = refused[0].party, refused[0].why or "it does not say why."
            raise PrivacyRefused(why if who in why else f"{who} refuses: {why}")
        return arrived

    def _checked(self, step: Step, answer: Answer) -> Answer:
        """The answer, or one of status "bad" where its envelope is malformed; an unknown sender is an error."""
        if type(answer) is not Answer:
            raise BadMessage(f'Something that is no answer came back for step "{step.name}".')
        try:
            answer.check(self.devices)
        except BadMessage as error:
            if type(answer.party) is not str or answer.party not in self.devices:
                raise
            return Answer(answer.party, "bad", Kind.PUBLIC, why=str(error))
        return answer

    def _kind(self, step: Step) -> str:
        return str(step.kind) if step.name in self.steps else "protocol"

    def _record_requests(self, step: Step, requests: Mapping[str, Request], attendance: Attendance) -> None:
        kind = self._kind(step)
        for name, request in requests.items():
            if copies := attendance.receivers(name, self.devices[name]):
                place, size = (self.calls, request.round, step.name, name), len(request.body) * copies
                self.transcript.record(Entry(*place, "down", kind, size, copies, request.digest, "ok"), request.body)

    def _record_answer(self, step: Step, request: Request, answer: Answer, view: View) -> None:
        kind, body = self._kind(step), answer.body
        copies = 1 if kind in ("disclose", "report") else answer.contributors  # those hold everyone's already
        digest = answer.digest if body and view is View.OPEN else ""
        place, size = (self.calls, request.round, step.name, answer.party), len(body) * copies
        entry = Entry(*place, "up", kind, size, copies, digest, answer.status, answer.head)
        self.transcript.record(entry, body if answer.status == "ok" and view is not View.HIDDEN else None)

    def count_protocol(self, request: Request, up: int, down: int, attendance: Attendance) -> None:
        """Record the bytes that every simulated device would send and receive during a secure sum."""
        for name, devices in ((member.name, member.devices) for member in self.facts.roster):
            copies = attendance.receivers(name, devices)
            place = (self.calls, request.round, f"protocol:{request.step}", name)
            for direction, each in (("down", down), ("up", up)):
                self.transcript.record(Entry(*place, direction, "protocol", each * copies, copies, "", "ok"))

    def count_proxied(self, request: Request, size: int) -> None:
        """Record the bytes that devices sent to the proxy, all together: whose they are cannot be seen here."""
        place = (self.calls, request.round, f"protocol:{request.step}", "proxy")
        self.transcript.record(Entry(*place, "up", "protocol", size, 1, "", "ok"))

    def _check_head(self, request: Request, answer: Answer, view: View) -> None:
        """Each ledger head must continue from the one before; of a shortened or restored ledger it does not."""
        if answer.status == "bad":  # its ledger may have advanced all the same
            self.heads.pop(answer.party, None)
            raise BadMessage(answer.why if answer.party in answer.why else f"{answer.party}: {answer.why}")
        if any(role.name == answer.party for role in self.facts.roles) or (not answer.head and not self.private):
            return
        before = self.heads.get(answer.party)
        continues = before is None or answer.head == next_head(before, answer.event, request.hash, answer.payload)
        genuine = view is View.HIDDEN or answer.payload == answer.digest
        if continues:  # an answer that was damaged on its way is in the sender's ledger all the same
            self.heads[answer.party] = answer.head
        if not continues or not genuine:
            raise TamperingFound(
                f"The ledger of {answer.party} does not go on from where it was: rows were cut off or changed, "
                "or an old ledger was put back."
            )

    def _content(self, step: Step, answer: Answer, sealed: CheckSealed | None) -> dict[str, Any]:
        if answer.kind is not step.kind:
            raise BadMessage(
                f'{answer.party} answered step "{step.name}" with a {answer.kind} where a {step.kind} is agreed.'
            )
        try:
            body = decode(answer.body)
        except BadMessage as error:
            raise BadMessage(f"{answer.party}: {error}") from None
        dimensions = {**self.facts.dimensions_of(answer.party), **self.dimensions}
        if sealed is not None:
            cells = 0 if step.kind is Kind.REPORT else step.gives.cells(dimensions)
            sealed(body, cells, answer.party)
        else:
            step.gives.check(body, dimensions, answer.party, step.name)
        return body


def require(answers: Answers, request: Request) -> Answers:
    """The answers, unless there are none."""
    if not answers:
        raise PeerFailed(
            f'No party answered step "{request.step}" of round {request.round}; allow more time with [engine] timeout, '
            "or fewer drop-outs with [aggregation] dropout."
        )
    return answers


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over those that answered: its blocks by name, how many contributed, and the noise on each cell."""

    blocks: Mapping[str, Array]
    contributors: int
    noise: float = 0.0

    def __getitem__(self, name: str) -> Array:
        return self.blocks[name]


@dataclass(frozen=True, eq=False)
class Call:
    """What the coordinator's side of an aggregation may use.

    Attributes
    ----------
    messenger : sends to parties and other roles
    request : the request that every party gets
    terms : what the run promises about the step
    facts, peers : public facts of the run, and the keys by which parties know each other
    shapes : of the step's blocks, by name
    dropout : in a simulation, the probability that a party misses a sum; 0 for what is not a sum
    sealed : checks sealed contributions; None where the step's schema does
    rejected : by party, why something it sent was left out
    """

    messenger: Messenger
    request: Request
    terms: StepTerms
    facts: Facts
    peers: Peers
    shapes: Mapping[str, tuple[int, ...]]
    dropout: float = 0.0
    sealed: CheckSealed | None = None
    rejected: dict[str, str] = field(default_factory=dict)

    @property
    def roster(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.facts.roster)

    @property
    def size(self) -> int:
        """The number of cells of all blocks together."""
        return cells_of(self.shapes)

    def attendance(self, exchanges: int) -> list[Attendance]:
        """Who takes part in each of several exchanges about this sum."""
        return Attendance.over(self.facts, self.dropout, self.request.round, self.messenger.calls, exchanges)

    def source(self, *purpose: str | int) -> Source:
        """Randomness of a simulation; a deployed coordinator draws none."""
        place = (*purpose, self.request.step, self.request.round, self.request.hash)
        return Seeded(stream_key(self.facts.seed, *place))

    def contributions(
        self,
        reduce: Callable[[Answers, Attendance], Mapping[str, Value]],
        verb: str = "sum",
        *,
        view: View = View.OPEN,
        names: Sequence[str] | None = None,
        there: Attendance | None = None,
    ) -> dict[str, Any]:
        """Request the step of everyone, or of `names`; `reduce` makes of all answers the result that is logged.

        With `names`, a bad answer is left out under its sender's name; otherwise it ends the run.
        """

        def compute() -> Mapping[str, Value]:
            here = there or Attendance.draw(self.facts, self.dropout, self.request.round, self.messenger.calls)
            requests = dict.fromkeys(self.roster if names is None else names, self.request)
            rejected = None if names is None else self.rejected
            return reduce(self.messenger.send(requests, here, view, self.sealed, rejected), here)

        key = f"{self.request.round}/{self.request.step}/{verb}/{self.request.attempt}"
        return self.messenger.call(key, self.request.hash, compute)

    def exchange(
        self,
        name: str,
        payloads: Mapping[str, Mapping[str, Value]],
        there: Attendance | None = None,
        again: int = 0,
    ) -> dict[str, dict[str, Any]]:
        """One exchange about this sum: send each its payload; the answers, by name. `again` counts repetitions."""
        about = replace(self.request, attempt=self.request.attempt + again)
        requests = {
            receiver: replace(about, step=f"{name}:{about.step}", body=encode(payload))
            for receiver, payload in payloads.items()
        }
        everyone = (*self.roster, *(role.name for role in self.facts.roles))

        def compute() -> dict[str, Value]:
            answers = self.messenger.send(requests, there or Attendance.full(), rejected=self.rejected)
            return _joined({answer.party: answer.body for answer, _body in answers}, everyone)

        together = hashlib.sha256("|".join(sorted(request.hash for request in requests.values())).encode()).hexdigest()
        result = self.messenger.call(f"{about.round}/{about.step}/{name}/{about.attempt}", together, compute)
        return {party: decode(body) for party, body in _parted(result, everyone).items()}


def _joined(bodies: Mapping[str, bytes], roster: Sequence[str]) -> dict[str, Value]:
    """Many answers as one result: who answered, the lengths, and all bytes; names would fill a header."""
    here = [name for name in roster if name in bodies]
    lengths = np.array([len(bodies[name]) for name in here], dtype=np.int64)
    joined = np.frombuffer(b"".join(bodies[name] for name in here), dtype=np.uint8)
    return {"who": pack_parties(here, roster), "lengths": lengths, "bodies": joined}


def _parted(result: Mapping[str, Any], roster: Sequence[str]) -> dict[str, bytes]:
    here = named_parties(result["who"], roster)
    ends = np.cumsum(result["lengths"])
    raw = result["bodies"].tobytes()
    return {name: raw[end - size : end] for name, size, end in zip(here, result["lengths"], ends, strict=True)}
