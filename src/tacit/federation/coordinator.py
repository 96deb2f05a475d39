"""The coordinator's side: straight-line code over a `Federation`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tacit.boundary.endpoint import Peers
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms, Terms
from tacit.boundary.wire import Array, Value, encode
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, UsageError
from tacit.federation.calls import Engine, Line, Log
from tacit.federation.conversation import Conversation, Opening
from tacit.federation.dropout import Attendance
from tacit.federation.facts import Facts
from tacit.federation.messages import Request, Step
from tacit.federation.transcript import Transcript


class Observer(Protocol):
    """An experimenter who looks on; a deployment has none. `rounds` is how many were announced so far."""

    def __call__(self, round: int, rounds: int, shared: Mapping[str, Array]) -> None: ...


@dataclass(frozen=True, eq=False)
class Total:
    """A sum over those that answered: its blocks by name, how many contributed, and the noise on each cell."""

    blocks: Mapping[str, Array]
    contributors: int
    noise: float = 0.0

    def __getitem__(self, name: str) -> Array:
        return self.blocks[name]


class Federation:
    """The parties and other roles, as a coordinator sees them.

    Parameters
    ----------
    engine : carries the messages
    facts : public facts of the run
    steps : the steps that the method's parties know, and those of its other roles
    terms : what the run promises about each step that looks at data
    how : the coordinator's side of the run's aggregation
    peers : by which keys parties know each other
    method, parameters : the method's name and what every request binds beside its content
    dimensions : what further names in schemas' shapes stand for, such as "factors"
    dropout : probability that a party misses a sum, in a simulation
    log : where calls are kept, or None for a run that is not resumed
    stop_on_refusal : whether one party's refusal ends the run, or the others go on without it

    Attributes
    ----------
    void : how many sums came to nothing so far, because too few stayed
    rejected : by party, why something of it was left out of a hidden sum, the latest of each
    """

    def __init__(
        self,
        engine: Engine,
        facts: Facts,
        steps: Mapping[str, Step],
        *,
        terms: Terms,
        how: Opening,
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
        self._dimensions = {"features": facts.catalogue.width, **(dimensions or {})}
        self._dropout, self._observer = dropout, observer
        self._round, self._announced, self._retries, self.void = 0, 0, terms.retries, 0
        self.rejected: dict[str, str] = {}
        self._line = Line(
            engine,
            facts,
            steps,
            self._dimensions,
            self.transcript,
            log,
            stop_on_refusal,
            terms.private,
            how.exchanges,
        )

    # -- the coordinator's verbs ------------------------------------------------------------------------------

    def rounds(self, count: int) -> Iterator[int]:
        """0 … count−1; what is asked meanwhile belongs to rounds 1 … count."""
        self._announced += count
        for t in range(count):
            self._round += 1
            yield t

    @property
    def rounds_done(self) -> int:
        return self._round

    def noise(self, step: str) -> float:
        """σ of the noise on a cell of one answer of a step, or of a hidden sum; 0 where none is added."""
        return self._terms.steps[step].sigma if step in self._terms.steps else 0.0

    def ask(self, step: str, to: str | None = None, **payload: Value) -> dict[str, dict[str, Any]]:
        """The releases of those that answered, by party; of one party or other role alone where `to` names it.

        A role is there for what nobody else can say, so one that does not answer ends the run; resumed, it goes on.
        """
        roles = tuple(role.name for role in self.facts.roles)
        if to is not None and to not in (*roles, *(member.name for member in self.facts.roster)):
            raise UsageError(f'There is no "{to}" to ask in this run; its roles are {", ".join(roles) or "none"}.')

        def compute(request: Request) -> dict[str, Value]:
            if to is None:
                answers = self._line.broadcast(request, Attendance.full())
            else:
                answers = self._line.exchange({to: request}, Attendance.full())
                if to in roles and not answers:
                    raise PeerFailed(
                        f'{to} did not answer step "{step}" of round {request.round}; look whether its service runs, '
                        "or allow more time with [engine] timeout, and resume the run."
                    )
            return {f"{answer.party}/{name}": value for answer, body in answers for name, value in body.items()}

        terms = self._terms.steps.get(step)
        if terms is not None and terms.sealed:
            raise PrivacyRefused(
                f'Single answers to step "{step}" are hidden in this run; ask for their sum or mean instead.'
            )
        by_party: dict[str, dict[str, Any]] = {}
        verb = "ask" if to is None else f"ask {to}"
        for place, value in self._call(verb, self._known(step), payload, compute).items():
            party, _, name = place.partition("/")
            by_party.setdefault(party, {})[name] = value
        return by_party

    def mean(self, step: str, **payload: Value) -> Array:
        """The weighted mean of chains, by the roster's weights over those that answered; a step with one block.

        Where the aggregation hides chains, only the mean is seen; each party's noise is its own all the same.
        """
        conversation = self._conversation(step, Kind.CHAIN, payload)
        mean = self._how.mean(conversation)
        if conversation.terms.sealed:
            self._shown(step, {"mean": mean})
        return mean

    def sum(self, step: str, **payload: Value) -> Total:
        """Only the sum, under the run's aggregation; drop-outs are injected here. Too few contributors end the run."""
        total = self.sum_unless_void(step, **payload)
        if total is None:
            raise PeerFailed(
                f'Too few parties stayed for the sum of step "{step}" in round {self._round}, and at least '
                f"{self._how.fewest:,} must; {self.void} of the run's sums were void so far, and what left is "
                "charged. Allow for more drop-outs with [aggregation] tolerate, or for more tries with retries."
            )
        return total

    def sum_unless_void(self, step: str, **payload: Value) -> Total | None:
        """The same, or None where too few stayed: the round is void, what left is charged, the next one is fresh."""
        attempt, total = 0, self._attempted(step, payload, 0)
        self.void += total is None
        while total is None and self._retries > 0:
            self._retries, attempt = self._retries - 1, attempt + 1
            total = self._attempted(step, payload, attempt)
            self.void += total is None
        return total

    def reports(self, step: str, **payload: Value) -> dict[str, Array]:
        """Everybody's single reports, parted from their senders and shuffled together."""
        conversation = self._conversation(step, Kind.REPORT, payload)
        reports = self._how.gather(conversation)
        if conversation.terms.sealed:
            self._shown(step, reports)
        return reports

    def show(self, **shared: Array) -> None:
        """What the coordinator shares now. In a simulation the experimenter looks; a deployment sends the last of it to
        every site when the run is over, for what each predicts at home."""
        if self._observer is not None:
            self._observer(self._round, max(self._announced, self._round), shared)

    # -- inside -----------------------------------------------------------------------------------------------

    def _attempted(self, step: str, payload: Mapping[str, Value], attempt: int) -> Total | None:
        """One attempt at a sum; None if it is void."""
        conversation = self._conversation(step, Kind.SUM, payload, attempt)
        opened = self._how.add(conversation)
        if opened is None:
            return None
        if conversation.terms.sealed:
            self._shown(step, opened.blocks)
        sigma = conversation.terms.sigma if self._terms.private else 0.0
        return Total(opened.blocks, opened.contributors, self._how.noise(sigma, opened.contributors))

    def _shown(self, step: str, blocks: Mapping[str, Array]) -> None:
        """What the coordinator saw of parts that are hidden from it."""
        self.transcript.sum(self._line.calls - 1, self._round, step, encode(blocks))

    def _conversation(self, step: str, kind: Kind, payload: Mapping[str, Value], attempt: int = 0) -> Conversation:
        known = self._known(step)
        if known.kind is not kind:
            raise BadMessage(f'Step "{step}" of {self._method} is a {known.kind}; it cannot be used as a {kind}.')
        terms = self._terms.step(step, kind)
        return Conversation(
            self._line,
            self._request(step, payload, attempt),
            terms,
            self.facts,
            self._peers,
            {} if kind is Kind.REPORT else known.gives.shapes({**self.facts.roster[0].dimensions, **self._dimensions}),
            0.0 if kind is Kind.CHAIN else self._dropout,
            partial(self._check_sealed, terms) if terms.integers or self._how.seals(terms) else None,
            self.rejected,
        )

    def _known(self, step: str) -> Step:
        if step not in self._steps:
            raise UsageError(
                f'{self._method} asks for a step "{step}" that nobody has; known: {", ".join(self._steps)}.'
            )
        return self._steps[step]

    def _check_sealed(self, terms: StepTerms, body: Mapping[str, Value], cells: int, who: str) -> None:
        self._how.check_sealed(body, terms, cells, who)

    def _request(self, step: str, payload: Mapping[str, Value], attempt: int = 0) -> Request:
        return Request(self._method, self._parameters, step, self._round, attempt, encode(payload))

    def _call(
        self, verb: str, step: Step, payload: Mapping[str, Value], compute: Callable[[Request], dict[str, Value]]
    ) -> dict[str, Any]:
        request = self._request(step.name, payload)
        return self._line.call(f"{self._round}/{step.name}/{verb}", request.hash, lambda: compute(request))
