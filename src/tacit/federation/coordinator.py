"""The coordinator's side: straight-line code over a `Federation`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.boundary.ledger import next_head
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TamperingFound
from tacit.federation.cohort import Attendance
from tacit.federation.facts import Facts
from tacit.federation.messages import Answer, Request, Step
from tacit.federation.transcript import Entry, Transcript
from tacit.rng import derive
from tacit.secure import Aggregation, Plain


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
    """What carries messages: deliver one to all parties, gather the answers in roster order, time out."""

    def deliver(self, request: Request, attendance: Attendance) -> Sequence[Answer]: ...


class Observer(Protocol):
    """An experimenter who looks on; a deployment has none."""

    def __call__(self, round: int, shared: Mapping[str, Array]) -> None: ...


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over those that answered: its blocks by name, how many contributed, and the noise on each cell."""

    blocks: Mapping[str, Array]
    contributors: int
    noise: float = 0.0

    def __getitem__(self, name: str) -> Array:
        return self.blocks[name]


class Federation:
    """The parties, as a coordinator sees them.

    Parameters
    ----------
    engine : carries the messages
    facts : public facts of the run
    steps : the steps that the method's parties know
    method, parameters : the method's name and the hash of its parameters, bound into every request
    dimensions : what further names in schemas' shapes stand for, such as "factors"
    aggregation : how contributions become a sum
    dropout : probability that a party misses a sum, in a simulation
    log : where calls are kept, or None for a run that is not resumed
    stop_on_refusal : whether one party's refusal ends the run, or the others go on without it
    sigma : by step, the standard deviation that the run's guarantee needs on a sum
    """

    def __init__(
        self,
        engine: Engine,
        facts: Facts,
        steps: Mapping[str, Step],
        *,
        method: str = "method",
        parameters: str = "",
        dimensions: Mapping[str, int] | None = None,
        aggregation: Aggregation | None = None,
        dropout: float = 0.0,
        transcript: Transcript | None = None,
        log: Log | None = None,
        stop_on_refusal: bool = False,
        sigma: Mapping[str, float] | None = None,
        observer: Observer | None = None,
    ) -> None:
        self.facts, self.transcript = facts, transcript or Transcript()
        self._engine, self._steps, self._method, self._parameters = engine, steps, method, parameters
        self._dimensions, self._dropout, self._observer = dict(dimensions or {}), dropout, observer
        self._aggregation = aggregation or Plain()
        self._log, self._stop_on_refusal = log, stop_on_refusal
        self._round, self._calls = 0, 0
        self._heads: dict[str, str] = {}
        self._sigma = dict(sigma or {})

    # -- the coordinator's verbs ------------------------------------------------------------------------------

    def rounds(self, count: int) -> Iterator[int]:
        """0 … count−1; what is asked meanwhile belongs to rounds 1 … count."""
        for t in range(count):
            self._round += 1
            yield t

    @property
    def rounds_done(self) -> int:
        return self._round

    def ask(self, step: str, **payload: Value) -> dict[str, dict[str, Any]]:
        """The releases of those that answered, by party."""

        def compute(request: Request) -> dict[str, Value]:
            answers = self._exchange(request, Attendance.full())
            return {f"{answer.party}/{name}": value for answer, body in answers for name, value in body.items()}

        if self._steps[step].kind is Kind.SUM and self._aggregation.sealed:
            raise PrivacyRefused(
                f'Step "{step}" is summed under a seal; ask for its sum, not for single contributions.'
            )
        by_party: dict[str, dict[str, Any]] = {}
        for place, value in self._call("ask", self._steps[step], payload, compute).items():
            party, _, name = place.partition("/")
            by_party.setdefault(party, {})[name] = value
        return by_party

    def mean(self, step: str, **payload: Value) -> Array:
        """The weighted mean of chains, by the roster's weights over those that answered; a step with one block."""
        (name,) = self._step(step, Kind.CHAIN).gives.fields

        def compute(request: Request) -> dict[str, Value]:
            answers = self._exchange(request, Attendance.full())
            weights = np.array([self.facts.weight(answer.party) for answer, _body in answers])
            weights /= weights.sum()
            total = np.zeros(answers[0][1][name].shape, dtype=np.float64)
            weighted = np.empty_like(total)
            for weight, (_answer, body) in zip(weights, answers, strict=True):
                total += np.multiply(body[name], weight, out=weighted)
            return {"mean": total.astype(np.float32)}

        mean: Array = self._call("mean", self._steps[step], payload, compute)["mean"]
        return mean

    def sum(self, step: str, **payload: Value) -> Total:
        """Only the sum, under the run's aggregation; drop-outs are injected here."""

        def compute(request: Request) -> dict[str, Value]:
            call = self._calls
            answers = self._exchange(request, Attendance.draw(self.facts, self._dropout, self._round, call))
            contributors = sum(answer.contributors for answer, _body in answers)
            noise = self._aggregation.noise(self._sigma[step], contributors) if step in self._sigma else 0.0
            bodies = [body for _answer, body in answers]
            blocks = self._aggregation.combine(bodies, noise, step, self._round, call, request.hash)
            if self._aggregation.sealed:
                self.transcript.sum(call, self._round, step, encode(blocks))
            summed = {f"sum/{name}": block for name, block in blocks.items()}
            return {"contributors": contributors, "noise": noise, **summed}

        result = self._call("sum", self._step(step, Kind.SUM), payload, compute)
        contributors, noise = result.pop("contributors"), result.pop("noise")
        return Total({name.removeprefix("sum/"): block for name, block in result.items()}, contributors, noise)

    def reports(self, step: str, **payload: Value) -> dict[str, Array]:
        """Everybody's single reports, parted from their senders and shuffled together."""

        def compute(request: Request) -> dict[str, Value]:
            answers = self._exchange(request, Attendance.draw(self.facts, self._dropout, self._round, self._calls))
            together = {name: np.concatenate([body[name] for _answer, body in answers]) for name in answers[0][1]}
            sizes = {len(array) for array in together.values()}
            if len(sizes) > 1:
                raise BadMessage(
                    f'The reports of step "{step}" are of unequal number; every array needs one entry a report.'
                )
            order = derive(self.facts.seed, self._round, "shuffle", self._calls).permutation(
                sizes.pop() if sizes else 0
            )
            return {name: array[order] for name, array in together.items()}

        return self._call("reports", self._step(step, Kind.REPORT), payload, compute)

    def show(self, **shared: Array) -> None:
        """What the coordinator holds now. In a simulation the experimenter looks; otherwise nothing happens."""
        if self._observer is not None:
            self._observer(self._round, shared)

    # -- inside -----------------------------------------------------------------------------------------------

    def _step(self, name: str, kind: Kind) -> Step:
        step = self._steps[name]
        if step.kind is not kind:
            raise BadMessage(f'Step "{name}" of {self._method} is a {step.kind}; it cannot be used as a {kind}.')
        return step

    def _call(
        self, verb: str, step: Step, payload: Mapping[str, Value], compute: Callable[[Request], dict[str, Value]]
    ) -> dict[str, Any]:
        """One call: its logged result if the run is being resumed, or else a new one, logged before it is used."""
        key = f"{self._calls}/{self._round}/{step.name}/{verb}"
        request = Request(self._method, self._parameters, step.name, self._round, 0, encode(payload))
        logged = None if self._log is None else self._log.recall(key, request.hash)
        if logged is not None:
            self.transcript.restore(logged.entries)
            self._heads.update(logged.heads)
            result = dict(decode(logged.result))
        else:
            first = len(self.transcript.entries)
            result = compute(request)
            if self._log is not None:
                entries = tuple(self.transcript.entries[first:])
                self._log.keep(key, request.hash, Logged(encode(result), entries, dict(self._heads)))
        self._calls += 1
        return result

    def _exchange(self, request: Request, attendance: Attendance) -> list[tuple[Answer, dict[str, Any]]]:
        """One request to all parties: send, gather, check against schema and chain, write down."""
        step, call, sealed = self._steps[request.step], self._calls, False
        if step.kind is Kind.SUM:
            sealed = self._aggregation.sealed
        for member in self.facts.roster:
            copies = attendance.listeners(member.name, member.devices)
            if copies:
                self.transcript.down(
                    call, self._round, step.name, member.name, step.kind, request.body, request.digest, copies
                )
        arrived, refused, heard = [], [], set()
        devices = {member.name: member.devices for member in self.facts.roster}
        for answer in self._engine.deliver(request, attendance):
            if type(answer) is not Answer:
                raise BadMessage(f'Something that is no answer came back for step "{step.name}".')
            answer.check(devices)
            if answer.party in heard:
                raise BadMessage(f'{answer.party} answered step "{step.name}" twice.')
            heard.add(answer.party)
            copies = 1 if step.kind is Kind.DISCLOSE else answer.contributors
            self.transcript.up(
                call,
                self._round,
                step.name,
                answer.party,
                step.kind,
                answer.body,
                "" if sealed else answer.digest,
                copies,
                answer.status,
                sealed,
                answer.head,
            )
            if answer.status == "ok":
                self._check_head(request, answer)
                arrived.append((answer, self._opened(step, answer)))
            elif answer.status == "refused":
                refused.append(answer)
            else:  # what was lost is in its ledger all the same, so the next head cannot be foretold
                self._heads.pop(answer.party, None)
        if refused and (self._stop_on_refusal or not arrived):
            raise PrivacyRefused(refused[0].why)
        if not arrived:
            raise PeerFailed(
                f'Nobody answered step "{step.name}" of round {self._round}; allow more time with [engine] timeout, '
                "or fewer drop-outs with [aggregation] dropout."
            )
        return arrived

    def _check_head(self, request: Request, answer: Answer) -> None:
        """Every answer's head must go on from the one before it: a shortened or restored ledger does not."""
        if not answer.head and not self._sigma:
            return
        before = self._heads.get(answer.party)
        goes_on = before is None or answer.head == next_head(before, answer.event, request.hash, answer.payload)
        sealed = self._steps[request.step].kind is Kind.SUM and self._aggregation.sealed
        genuine = sealed or answer.payload == answer.digest
        if not goes_on or not genuine:
            raise TamperingFound(
                f"The ledger of {answer.party} does not go on from where it was: rows were cut off or changed, "
                "or an old ledger was put back."
            )
        self._heads[answer.party] = answer.head

    def _opened(self, step: Step, answer: Answer) -> dict[str, Any]:
        if answer.kind is not step.kind:
            raise BadMessage(
                f'{answer.party} answered step "{step.name}" with a {answer.kind} where a {step.kind} is agreed.'
            )
        try:
            body = decode(answer.body)
        except BadMessage as error:
            raise BadMessage(f"{answer.party}: {error}") from None
        dimensions = {**self.facts.member(answer.party).dimensions, **self._dimensions}
        step.gives.check(body, dimensions, answer.party, step.name)
        return body
