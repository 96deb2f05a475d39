"""The coordinator's side: straight-line code over a `Federation`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from tacit.boundary.endpoint import Peers
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms, Terms
from tacit.boundary.wire import Array, Value, digest, encode
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, UsageError
from tacit.federation.calls import Call, Engine, Log, Messenger, Total, require
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Facts
from tacit.federation.messages import Exchange, Request, Step
from tacit.federation.transcript import Entry, Transcript

#: An experimenter who looks on; a deployment has none. Gets the round, how many are announced, and what is shared.
Observer = Callable[[int, int, Mapping[str, Array]], None]


class CoordinatorSide(Protocol):
    """The coordinator's side of an aggregation; `tacit.aggregation.Aggregation` documents each part."""

    @property
    def exchanges(self) -> Mapping[str, Exchange]: ...

    @property
    def fewest(self) -> int: ...

    def seals(self, terms: StepTerms) -> bool: ...

    def check_sealed(self, payload: Mapping[str, Value], terms: StepTerms, cells: int, who: str) -> None: ...

    def noise(self, sigma: float, contributors: int) -> float: ...

    def add(self, call: Call) -> Total | None: ...

    def mean(self, call: Call) -> Array: ...

    def gather(self, call: Call) -> dict[str, Any]: ...


class Federation:
    """The parties and other roles, as a coordinator sees them.

    Parameters
    ----------
    engine : carries the messages
    facts : public facts of the run
    steps : the steps that the method's parties know, and those of its other roles
    terms : what the run promises about each step that looks at data
    how : the coordinator's side of the run's aggregation
    peers : the keys by which parties know each other
    method, parameters : the method's name, and its parameters, which every request is bound to
    dimensions : the values of further names in schemas' shapes, such as "factors"
    dropout : probability that a party misses a sum, in a simulation
    log : where results of calls are stored, or None for a run that is not resumed
    stop_on_refusal : whether one party's refusal ends the run, or the others continue without it

    Attributes
    ----------
    rounds_done : the round that requests belong to now
    void : how many sums were void so far, because too few parties stayed
    rejected : by party, why its latest bad message was left out of a hidden sum
    """

    def __init__(
        self,
        engine: Engine,
        facts: Facts,
        steps: Mapping[str, Step],
        *,
        terms: Terms,
        how: CoordinatorSide,
        peers: Peers | None = None,
        method: str = "method",
        parameters: str = "",
        dimensions: Mapping[str, int] | None = None,
        dropout: float = 0.0,
        transcript: Transcript | None = None,
        log: Log | None = None,
        stop_on_refusal: bool = False,
        observer: Observer | None = None,
    ) -> None:
        self.facts, self.transcript = facts, transcript or Transcript()
        self._steps, self._method, self._parameters = steps, method, parameters
        self._terms, self._how = terms, how
        self._peers = peers or Peers("", tuple(member.name for member in facts.roster))
        self._dropout, self._observer = dropout, observer
        self.rounds_done, self._announced, self._retries, self.void = 0, 0, terms.retries, 0
        self.rejected: dict[str, str] = {}
        sizes = dict(dimensions or {})
        self._messenger = Messenger(
            engine, facts, steps, how.exchanges, sizes, self.transcript, log, terms.private, stop_on_refusal
        )

    def rounds(self, count: int) -> Iterator[int]:
        """0 … count−1; what is asked meanwhile belongs to rounds 1 … count."""
        self._announced += count
        for t in range(count):
            self.rounds_done += 1
            yield t

    def noise(self, step: str) -> float:
        """σ of the noise on a cell of one answer of a step, or of a hidden sum; 0 where none is added."""
        return self._terms.steps[step].sigma if step in self._terms.steps else 0.0

    def ask(self, step: str, to: str | None = None, **payload: Value) -> dict[str, dict[str, Any]]:
        """The releases of those that answered, by party; of one party or other role alone where `to` names it.

        A role holds what nobody else has, so the run ends if one does not answer; it can be resumed.
        """
        roles = tuple(role.name for role in self.facts.roles)
        if to is not None and to not in (*roles, *self._names):
            raise UsageError(f'There is no "{to}" to ask in this run; its roles are {", ".join(roles) or "none"}.')
        terms = self._terms.steps.get(step)
        if terms is not None and terms.sealed:
            raise PrivacyRefused(
                f'Single answers to step "{step}" are hidden in this run; ask for their sum or mean instead.'
            )
        self._known(step)
        request = self._request(step, payload)

        def compute() -> dict[str, Value]:
            names = self._names if to is None else (to,)
            answers = self._messenger.send(dict.fromkeys(names, request), Attendance.full())
            if to is None:
                require(answers, request)
            elif to in roles and not answers:
                raise PeerFailed(
                    f'{to} did not answer step "{step}" of round {request.round}; check that its service runs, '
                    "or allow more time with [engine] timeout, and resume the run."
                )
            return {f"{answer.party}/{name}": value for answer, body in answers for name, value in body.items()}

        by_party: dict[str, dict[str, Any]] = {}
        verb = "ask" if to is None else f"ask {to}"
        result = self._messenger.call(f"{self.rounds_done}/{step}/{verb}", request.hash, compute)
        for place, value in result.items():
            party, _, name = place.partition("/")
            by_party.setdefault(party, {})[name] = value
        return by_party

    def mean(self, step: str, **payload: Value) -> Array:
        """The mean of chains, by the roster's weights over those that answered; the step has one block.

        Where the aggregation hides chains, only the mean is seen; each party adds its own noise all the same.
        """
        call = self._call(step, Kind.CHAIN, payload)
        mean = self._how.mean(call)
        self._record_result(call, {"mean": mean})
        return mean

    def sum(self, step: str, **payload: Value) -> Total:
        """Only the sum, under the run's aggregation; drop-outs are injected here. Too few contributors end the run."""
        total = self.sum_unless_void(step, **payload)
        if total is None:
            raise PeerFailed(
                f'Too few parties stayed for the sum of step "{step}" in round {self.rounds_done}, and at least '
                f"{self._how.fewest:,} must; {self.void} of the run's sums were void so far, and what left is "
                "charged. Allow for more drop-outs with [aggregation] tolerate, or for more tries with retries."
            )
        return total

    def sum_unless_void(self, step: str, **payload: Value) -> Total | None:
        """The same, or None where too few stayed: the round is void, its releases are charged, the next is fresh."""
        attempt, total = 0, self._attempt(step, payload, 0)
        self.void += total is None
        while total is None and self._retries > 0:
            self._retries, attempt = self._retries - 1, attempt + 1
            total = self._attempt(step, payload, attempt)
            self.void += total is None
        return total

    def reports(self, step: str, **payload: Value) -> dict[str, Array]:
        """Everyone's single reports, separated from their senders and shuffled together."""
        call = self._call(step, Kind.REPORT, payload)
        reports = self._how.gather(call)
        self._record_result(call, reports)
        return reports

    def show(self, **shared: Array) -> None:
        """What the coordinator shares now. In a simulation the experimenter looks; a deployment sends the last of it to
        every site when the run is over, for what each predicts at home."""
        if self._observer is not None:
            self._observer(self.rounds_done, self._announced, shared)

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.facts.roster)

    def _attempt(self, step: str, payload: Mapping[str, Value], attempt: int) -> Total | None:
        call = self._call(step, Kind.SUM, payload, attempt)
        total = self._how.add(call)
        if total is None:
            return None
        self._record_result(call, total.blocks)
        sigma = call.terms.sigma if self._terms.private else 0.0
        return replace(total, noise=self._how.noise(sigma, total.contributors))

    def _record_result(self, call: Call, blocks: Mapping[str, Array]) -> None:
        """Record what the coordinator sees of contributions that are hidden from it: their sum, mean or mix."""
        if call.terms.sealed:
            body, place = encode(blocks), (self._messenger.calls - 1, self.rounds_done, call.request.step)
            self.transcript.record(Entry(*place, "sum", "up", "sum", 0, 0, digest(body), "ok"), body)

    def _call(self, step: str, kind: Kind, payload: Mapping[str, Value], attempt: int = 0) -> Call:
        known = self._known(step)
        if known.kind is not kind:
            raise BadMessage(f'Step "{step}" of {self._method} is a {known.kind}; it cannot be used as a {kind}.')
        terms = self._terms.step(step, kind)
        sizes = {**self.facts.dimensions_of(self._names[0]), **self._messenger.dimensions}
        hidden = terms.integers or self._how.seals(terms)
        return Call(
            self._messenger,
            self._request(step, payload, attempt),
            terms,
            self.facts,
            self._peers,
            {} if kind is Kind.REPORT else known.gives.shapes(sizes),
            0.0 if kind is Kind.CHAIN else self._dropout,
            (lambda body, cells, who: self._how.check_sealed(body, terms, cells, who)) if hidden else None,
            self.rejected,
        )

    def _known(self, step: str) -> Step:
        if step not in self._steps:
            raise UsageError(
                f'{self._method} asks for a step "{step}" that no party has; known: {", ".join(self._steps)}.'
            )
        return self._steps[step]

    def _request(self, step: str, payload: Mapping[str, Value], attempt: int = 0) -> Request:
        return Request(self._method, self._parameters, step, self.rounds_done, attempt, encode(payload))
