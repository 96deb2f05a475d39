"""The coordinator's end of the line: sends requests, gathers answers, checks and writes down every one, keeps a log."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tacit.boundary.ledger import next_head
from tacit.boundary.release import Kind
from tacit.boundary.wire import Value, decode, encode
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError, TamperingFound
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Facts
from tacit.federation.messages import Answer, Exchange, Request, Step, exchange_step
from tacit.federation.transcript import Entry, Transcript
from tacit.secure.secagg_protocol import Traffic


@dataclass(frozen=True)
class Logged:
    """What one call left: its result in the wire format, its messages, and the parties' heads after it."""

    result: bytes
    entries: tuple[Entry, ...]
    heads: Mapping[str, str]


class Log(Protocol):
    """Where calls are kept, so that a run can be resumed."""

    def recall(self, key: str, request: str) -> Logged | None: ...

    def keep(self, key: str, request: str, logged: Logged) -> None: ...


class Engine(Protocol):
    """What carries messages: deliver to each party its request, gather the answers in roster order, time out."""

    def deliver(self, requests: Mapping[str, Request], attendance: Attendance) -> Sequence[Answer]: ...


class View(StrEnum):
    """What the coordinator sees of single answers."""

    OPEN = "open"  # everything
    HIDDEN = "hidden"  # nothing: a simulation adds them up for it
    MASKED = "masked"  # bytes that tell nothing by themselves, and are other ones each time


#: Answers with what they hold.
Heard = list[tuple[Answer, dict[str, Any]]]

#: Raises `BadMessage` unless a contribution, of so many cells and of that sender, is sealed as it should be.
Sealed = Callable[[Mapping[str, Value], int, str], None]


class Line:
    """Messages between the coordinator and the parties of one run.

    Parameters
    ----------
    engine, facts, steps, dimensions, transcript, log, stop_on_refusal : as in `Federation`
    private : whether the parties keep ledgers, whose heads must go on from each other
    exchanges : what the run's aggregation says beside contributions
    """

    def __init__(
        self,
        engine: Engine,
        facts: Facts,
        steps: Mapping[str, Step],
        dimensions: Mapping[str, int],
        transcript: Transcript,
        log: Log | None,
        stop_on_refusal: bool,
        private: bool,
        exchanges: Mapping[str, Exchange],
    ) -> None:
        self.transcript, self.calls = transcript, 0
        self._exchanges = exchanges
        self._engine, self._facts, self._steps = engine, facts, steps
        self._dimensions = {"features": facts.catalogue.width, **dimensions, "roster": len(facts.roster)}
        self._log, self._stop_on_refusal, self._private = log, stop_on_refusal, private
        self._devices = {member.name: member.devices for member in (*facts.roster, *facts.roles)}
        self._roles = frozenset(role.name for role in facts.roles)
        self._heads: dict[str, str] = {}

    def call(self, key: str, request: str, compute: Callable[[], Mapping[str, Value]]) -> dict[str, Any]:
        """One call: its logged result if the run is being resumed, or else a new one, logged before it is used."""
        key = f"{self.calls}/{key}"
        logged = None if self._log is None else self._log.recall(key, request)
        if logged is not None:
            self.transcript.restore(logged.entries)
            self._heads = dict(logged.heads)
            result = dict(decode(logged.result))
        else:
            first = len(self.transcript.entries)
            result = dict(compute())
            if self._log is not None:
                entries = tuple(self.transcript.entries[first:])
                self._log.keep(key, request, Logged(encode(result), entries, dict(self._heads)))
        self.calls += 1
        return result

    def broadcast(
        self, request: Request, attendance: Attendance, view: View = View.OPEN, sealed: Sealed | None = None
    ) -> Heard:
        """One request to all parties; somebody must answer."""
        everybody = dict.fromkeys((member.name for member in self._facts.roster), request)
        heard = self.exchange(everybody, attendance, view, sealed)
        if not heard:
            raise PeerFailed(
                f'Nobody answered step "{request.step}" of round {request.round}; allow more time with [engine] '
                "timeout, or fewer drop-outs with [aggregation] dropout."
            )
        return heard

    def exchange(
        self,
        requests: Mapping[str, Request],
        attendance: Attendance,
        view: View = View.OPEN,
        sealed: Sealed | None = None,
        rejected: dict[str, str] | None = None,
    ) -> Heard:
        """To each party its request: send, gather, check against schema and chain, write down.

        `sealed` checks contributions that travel sealed; others are held to their schema. Where `rejected` is given, an
        answer that is not as agreed is left out and noted there under its sender's name; otherwise it ends the run.
        """
        if not requests:
            return []
        first = next(iter(requests.values()))
        step = self._steps.get(first.step) or exchange_step(first.step, self._steps, self._exchanges)
        if step is None:
            raise BadMessage(f'"{first.step}" is no step of this run\'s method.')
        kind = "protocol" if step.name not in self._steps else str(step.kind)
        for name, request in requests.items():
            if copies := attendance.receivers(name, self._devices[name]):
                self.transcript.down(
                    self.calls, request.round, step.name, name, kind, request.body, request.digest, copies
                )
        arrived: Heard = []
        refused, heard = [], set[str]()
        for answer in self._engine.deliver(requests, attendance):
            if type(answer) is not Answer:
                raise BadMessage(f'Something that is no answer came back for step "{step.name}".')
            try:
                answer.check(self._devices)
            except BadMessage as error:
                answer = self._left_out(answer, str(error))
            if answer.party in heard or answer.party not in requests:
                raise BadMessage(f'{answer.party} answered step "{step.name}" twice, or unasked.')
            heard.add(answer.party)
            request = requests[answer.party]
            self._write_down(step, kind, request, answer, view)
            if answer.status in ("ok", "bad"):
                try:
                    if answer.status == "bad":  # its ledger may have gone on all the same
                        self._heads.pop(answer.party, None)
                        raise BadMessage(answer.why if answer.party in answer.why else f"{answer.party}: {answer.why}")
                    self._check_head(request, answer, view)
                    arrived.append((answer, self._opened(step, answer, sealed)))
                except TacitError as error:
                    if rejected is None:
                        raise
                    rejected[answer.party] = str(error)
            elif answer.status == "refused":
                refused.append(answer)
            else:  # what was lost is in its ledger all the same, so the next head cannot be foretold
                self._heads.pop(answer.party, None)
        if refused and (self._stop_on_refusal or not arrived):
            who, why = refused[0].party, refused[0].why or "it does not say why."
            raise PrivacyRefused(why if who in why else f"{who} refuses: {why}")
        return arrived

    def _left_out(self, answer: Answer, why: str) -> Answer:
        """An answer that is not as agreed, by its sender's name; where it has none, it ends the run."""
        if type(answer.party) is not str or answer.party not in self._devices:
            raise BadMessage(why)
        return Answer(answer.party, "bad", Kind.PUBLIC, why=why)

    def count_protocol(self, request: Request, traffic: Traffic, attendance: Attendance) -> None:
        """What devices that are simulated would send and receive in the course of a secure sum."""
        for name, devices in ((member.name, member.devices) for member in self._facts.roster):
            copies = attendance.receivers(name, devices)
            for direction, each in (("down", traffic.down), ("up", traffic.up)):
                place = (self.calls, request.round, f"protocol:{request.step}", name, direction)
                self.transcript.restore([Entry(*place, "protocol", each * copies, copies, "", "ok")])

    def _write_down(self, step: Step, kind: str, request: Request, answer: Answer, view: View) -> None:
        copies = 1 if kind in ("disclose", "report") else answer.contributors  # those hold everybody's already
        shown = answer.digest if view is View.OPEN else ""
        hidden = view is View.HIDDEN
        place = (self.calls, request.round, step.name, answer.party, kind)
        self.transcript.up(*place, answer.body, shown, copies, answer.status, hidden, answer.head)

    def _check_head(self, request: Request, answer: Answer, view: View) -> None:
        """Every answer's head must go on from the one before it: a shortened or restored ledger does not.

        A role holds nobody's ratings, and keeps no ledger.
        """
        if answer.party in self._roles or (not answer.head and not self._private):
            return
        before = self._heads.get(answer.party)
        goes_on = before is None or answer.head == next_head(before, answer.event, request.hash, answer.payload)
        genuine = view is View.HIDDEN or answer.payload == answer.digest
        if goes_on:  # what was garbled on its way is in the sender's ledger all the same
            self._heads[answer.party] = answer.head
        if not goes_on or not genuine:
            raise TamperingFound(
                f"The ledger of {answer.party} does not go on from where it was: rows were cut off or changed, "
                "or an old ledger was put back."
            )

    def _opened(self, step: Step, answer: Answer, sealed: Sealed | None) -> dict[str, Any]:
        if answer.kind is not step.kind:
            raise BadMessage(
                f'{answer.party} answered step "{step.name}" with a {answer.kind} where a {step.kind} is agreed.'
            )
        try:
            body = decode(answer.body)
        except BadMessage as error:
            raise BadMessage(f"{answer.party}: {error}") from None
        dimensions = {**self._facts.member(answer.party).dimensions, **self._dimensions}
        if sealed is not None:
            sealed(body, step.gives.cells(dimensions), answer.party)
        else:
            step.gives.check(body, dimensions, answer.party, step.name)
        return body
