"""The coordinator's side: straight-line code over a `Federation`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, encode
from tacit.errors import BadMessage, PeerFailed
from tacit.federation.cohort import Attendance
from tacit.federation.facts import Facts
from tacit.federation.messages import Answer, Request, Step
from tacit.federation.transcript import Transcript
from tacit.rng import derive
from tacit.secure import Aggregation, Plain


class Engine(Protocol):
    """What carries messages: deliver one to all parties, gather the answers in roster order, time out."""

    def deliver(self, request: Request, attendance: Attendance) -> Sequence[Answer]: ...


class Observer(Protocol):
    """An experimenter who looks on; a deployment has none."""

    def __call__(self, round: int, shared: Mapping[str, Array]) -> None: ...


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over those that answered: its blocks by name, and how many contributed."""

    blocks: Mapping[str, Array]
    contributors: int

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
        observer: Observer | None = None,
    ) -> None:
        self.facts, self.transcript = facts, transcript or Transcript()
        self._engine, self._steps, self._method, self._parameters = engine, steps, method, parameters
        self._dimensions, self._dropout, self._observer = dict(dimensions or {}), dropout, observer
        self._aggregation = aggregation or Plain()
        self._round, self._calls = 0, 0

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
        answers = self._exchange(step, payload, Attendance.full())
        return {answer.party: body for answer, body in answers}

    def mean(self, step: str, **payload: Value) -> Array:
        """The weighted mean of chains, by the roster's weights over those that answered; a step with one block."""
        answers = self._exchange(step, payload, Attendance.full())
        (name,) = self._step(step, Kind.CHAIN).gives.fields
        weights = np.array([self.facts.weight(answer.party) for answer, _body in answers])
        weights /= weights.sum()
        total = np.zeros(answers[0][1][name].shape, dtype=np.float64)
        for weight, (_answer, body) in zip(weights, answers, strict=True):
            total += weight * body[name]
        return total.astype(np.float32)

    def sum(self, step: str, **payload: Value) -> Total:
        """Only the sum, under the run's aggregation; drop-outs are injected here."""
        self._step(step, Kind.SUM)
        attendance = Attendance.draw(self.facts, self._dropout, self._round, self._calls)
        answers = self._exchange(step, payload, attendance)
        blocks = self._aggregation.combine([body for _answer, body in answers])
        return Total(blocks, sum(answer.contributors for answer, _body in answers))

    def reports(self, step: str, **payload: Value) -> dict[str, Array]:
        """Everybody's single reports, parted from their senders and shuffled together."""
        self._step(step, Kind.REPORT)
        answers = self._exchange(step, payload, Attendance.draw(self.facts, self._dropout, self._round, self._calls))
        together = {name: np.concatenate([body[name] for _answer, body in answers]) for name in answers[0][1]}
        sizes = {len(array) for array in together.values()}
        if len(sizes) > 1:
            raise BadMessage(
                f'The reports of step "{step}" are of unequal number; every array needs one entry a report.'
            )
        order = derive(self.facts.seed, self._round, "shuffle", self._calls).permutation(sizes.pop() if sizes else 0)
        return {name: array[order] for name, array in together.items()}

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

    def _exchange(
        self, name: str, payload: Mapping[str, Value], attendance: Attendance
    ) -> list[tuple[Answer, dict[str, Any]]]:
        """One request to all parties: send, gather, check against the schema, write down."""
        step, call = self._steps[name], self._calls
        self._calls += 1
        request = Request(self._method, self._parameters, name, self._round, 0, encode(payload))
        for member in self.facts.roster:
            copies = attendance.listeners(member.name, member.devices)
            if copies:
                self.transcript.down(
                    call, self._round, name, member.name, step.kind, request.body, request.digest, copies
                )
        arrived = []
        for answer in self._engine.deliver(request, attendance):
            copies = 1 if step.kind is Kind.DISCLOSE else answer.contributors
            self.transcript.up(call, self._round, name, answer.party, step.kind, answer.body, copies, answer.status)
            if answer.status == "ok":
                arrived.append((answer, self._opened(step, answer)))
        if not arrived:
            raise PeerFailed(
                f'Nobody answered step "{name}" of round {self._round}; allow more time with [engine] timeout, '
                "or fewer drop-outs with [aggregation] dropout."
            )
        return arrived

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
