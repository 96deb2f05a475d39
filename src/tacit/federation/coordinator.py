"""The coordinator's side: straight-line code over a `Federation`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tacit.boundary.release import Kind
from tacit.boundary.sealed import SEALED, Fixed, Grid, in_blocks
from tacit.boundary.seals import Circle
from tacit.boundary.wire import Array, Value, encode
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused
from tacit.federation.cohort import Attendance
from tacit.federation.facts import Facts
from tacit.federation.line import Engine, Line, Log, View
from tacit.federation.messages import Request, Step
from tacit.federation.sums import MaskedSums, simulated_total
from tacit.federation.transcript import Transcript
from tacit.rng import derive
from tacit.secure import Aggregation, Plain
from tacit.secure.masks import unpack
from tacit.secure.plain import exact_sum
from tacit.secure.secagg import VoidRound
from tacit.secure.traffic import Traffic


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
    grids : by step, the whole numbers of a sealed sum
    circle : who takes part in secure sums, where masks are made by the parties
    retries : how many void rounds may be tried again, over the whole run
    traffic : what a secure sum costs a simulated device, beside its contribution
    crowd : how many devices' reports a shuffler waits for; 0 where there is no shuffler

    Attributes
    ----------
    void : how many sums came to nothing so far, because too few stayed
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
        grids: Mapping[str, Grid] | None = None,
        circle: Circle | None = None,
        retries: int = 0,
        traffic: Traffic | None = None,
        crowd: int = 0,
        observer: Observer | None = None,
    ) -> None:
        self.facts, self.transcript = facts, transcript or Transcript()
        self._steps, self._method, self._parameters = steps, method, parameters
        self._dimensions, self._dropout, self._observer = dict(dimensions or {}), dropout, observer
        self._aggregation = aggregation or Plain()
        self._sigma, self._grids, self._retries = dict(sigma or {}), dict(grids or {}), retries
        self._traffic, self._crowd = traffic, crowd
        self._round, self.void = 0, 0
        private = bool(self._sigma)
        self._line = Line(engine, facts, steps, self._dimensions, self.transcript, log, stop_on_refusal, private)
        self._masks = None if circle is None else MaskedSums(self._line, circle, facts)

    # -- the coordinator's verbs ------------------------------------------------------------------------------

    def rounds(self, count: int) -> Iterator[int]:
        """0 … count−1; what is asked meanwhile belongs to rounds 1 … count."""
        for t in range(count):
            self._round += 1
            yield t

    @property
    def rejected(self) -> Mapping[str, str]:
        """By party, why something of it was left out of a secure sum, the latest of each."""
        return {} if self._masks is None else self._masks.rejected

    @property
    def rounds_done(self) -> int:
        return self._round

    def ask(self, step: str, to: str | None = None, **payload: Value) -> dict[str, dict[str, Any]]:
        """The releases of those that answered, by party; of one party or other role alone where `to` names it."""

        def compute(request: Request) -> dict[str, Value]:
            if to is None:
                answers = self._line.broadcast(request, Attendance.full())
            else:
                answers = self._line.exchange({to: request}, Attendance.full())
            return {f"{answer.party}/{name}": value for answer, body in answers for name, value in body.items()}

        if step in self._grids and not self._grids[step].own:
            raise PrivacyRefused(
                f'Step "{step}" is summed under a seal; ask for its sum, not for single contributions.'
            )
        by_party: dict[str, dict[str, Any]] = {}
        verb = "ask" if to is None else f"ask {to}"
        for place, value in self._call(verb, self._steps[step], payload, compute).items():
            party, _, name = place.partition("/")
            by_party.setdefault(party, {})[name] = value
        return by_party

    def mean(self, step: str, **payload: Value) -> Array:
        """The weighted mean of chains, by the roster's weights over those that answered; a step with one block.

        Where parties make masks, only the mean is seen; each party's noise is its own all the same.
        """
        (name,) = self._step(step, Kind.CHAIN).gives.fields

        def compute(request: Request) -> dict[str, Value]:
            answers = self._line.broadcast(request, Attendance.full())
            weights = np.array([self.facts.weight(answer.party) for answer, _body in answers])
            weights /= weights.sum()
            total = np.zeros(answers[0][1][name].shape, dtype=np.float64)
            weighted = np.empty_like(total)
            for weight, (_answer, body) in zip(weights, answers, strict=True):
                total += np.multiply(body[name], weight, out=weighted)
            return {"mean": total.astype(np.float32)}

        if self._masks is not None:
            return self._masked_mean(name, self._request(step, payload))
        mean: Array = self._call("mean", self._steps[step], payload, compute)["mean"]
        return mean

    def sum(self, step: str, **payload: Value) -> Total:
        """Only the sum, under the run's aggregation; drop-outs are injected here. Too few contributors end the run."""
        total = self.sum_unless_void(step, **payload)
        if total is None:
            raise PeerFailed(
                f'Too few parties stayed for the sum of step "{step}" in round {self._round}, and at least '
                f"{self._aggregation.fewest:,} must; {self.void} of the run's sums were void so far, and what left is "
                "charged. Allow for more drop-outs with [aggregation] tolerate, or for more tries with retries."
            )
        return total

    def sum_unless_void(self, step: str, **payload: Value) -> Total | None:
        """The same, or None where too few stayed: the round is void, what left is charged, the next one is fresh."""
        self._step(step, Kind.SUM)
        attempt, total = 0, self._attempted(step, payload, 0)
        self.void += total is None
        while total is None and self._retries > 0:
            self._retries, attempt = self._retries - 1, attempt + 1
            total = self._attempted(step, payload, attempt)
            self.void += total is None
        return total

    def reports(self, step: str, **payload: Value) -> dict[str, Array]:
        """Everybody's single reports, parted from their senders and shuffled together."""

        def compute(request: Request) -> dict[str, Value]:
            attendance = Attendance.draw(self.facts, self._dropout, self._round, self._line.calls)
            answers = self._line.broadcast(request, attendance, View.HIDDEN if self._crowd else View.OPEN)
            self._enough(step, sum(answer.contributors for answer, _body in answers))
            together = {name: np.concatenate([body[name] for _answer, body in answers]) for name in answers[0][1]}
            sizes = {len(array) for array in together.values()}
            if len(sizes) > 1:
                raise BadMessage(
                    f'The reports of step "{step}" are of unequal number; every array needs one entry a report.'
                )
            order = derive(self.facts.seed, self._round, "shuffle", self._line.calls).permutation(
                sizes.pop() if sizes else 0
            )
            return {name: array[order] for name, array in together.items()}

        shuffled = self._call("reports", self._step(step, Kind.REPORT), payload, compute)
        if self._crowd:
            self.transcript.sum(self._line.calls - 1, self._round, step, encode(shuffled))
        return shuffled

    def show(self, **shared: Array) -> None:
        """What the coordinator holds now. In a simulation the experimenter looks; otherwise nothing happens."""
        if self._observer is not None:
            self._observer(self._round, shared)

    # -- inside -----------------------------------------------------------------------------------------------

    def _enough(self, step: str, reported: int) -> None:
        """A shuffler passes nothing on that fewer devices sent than the guarantee was reckoned for."""
        if reported < self._crowd:
            raise PeerFailed(
                f'{reported:,} devices reported for step "{step}" in round {self._round}, and the shuffler passes '
                f"nothing on below {self._crowd:,}; what left is charged. Allow for more drop-outs with [aggregation] "
                "tolerate."
            )

    def _step(self, name: str, kind: Kind) -> Step:
        step = self._steps[name]
        if step.kind is not kind:
            raise BadMessage(f'Step "{name}" of {self._method} is a {step.kind}; it cannot be used as a {kind}.')
        return step

    def _request(self, step: str, payload: Mapping[str, Value], attempt: int = 0) -> Request:
        return Request(self._method, self._parameters, step, self._round, attempt, encode(payload))

    def _call(
        self, verb: str, step: Step, payload: Mapping[str, Value], compute: Callable[[Request], dict[str, Value]]
    ) -> dict[str, Any]:
        request = self._request(step.name, payload)
        return self._line.call(f"{self._round}/{step.name}/{verb}", request.hash, lambda: compute(request))

    def _shapes(self, step: str) -> dict[str, tuple[int, ...]]:
        """The shapes of a summed step's blocks; they are the same for all parties."""
        return self._steps[step].gives.shapes({**self.facts.roster[0].dimensions, **self._dimensions})

    def _cells(self, step: str) -> int:
        """How many numbers a summed step's blocks have together."""
        return sum(math.prod(shape) for shape in self._shapes(step).values())

    def _attempted(self, step: str, payload: Mapping[str, Value], attempt: int) -> Total | None:
        """One attempt at a sum; None if it is void."""
        request = self._request(step, payload, attempt)
        grid = self._grids.get(step)
        if grid is None or grid.own:
            return self._plain_sum(request, grid)
        size = self._cells(step)
        if self._masks is not None:
            found = self._masks.noised_total(request, grid, size, self._dropout)
        else:
            found = simulated_total(
                self._line, request, grid, self._aggregation, self.facts, self._dropout, size, self._traffic
            )
        if found is None:
            return None
        contributors, whole = found
        blocks = in_blocks(grid.numbers(whole).astype(np.float32), self._shapes(step))
        self.transcript.sum(self._line.calls - 1, self._round, step, encode(blocks))
        return Total(blocks, contributors, self._aggregation.noise(self._sigma[step], contributors))

    def _plain_sum(self, request: Request, grid: Grid | None) -> Total:
        """The sum of contributions that the coordinator sees; of whole numbers where there is a grid."""

        def compute() -> dict[str, Value]:
            attendance = Attendance.draw(self.facts, self._dropout, self._round, self._line.calls)
            answers = self._line.broadcast(request, attendance, bits=0 if grid is None else grid.bits)
            contributors = sum(answer.contributors for answer, _body in answers)
            bodies = [body if grid is None else self._numbers(request.step, body, grid) for _answer, body in answers]
            blocks = exact_sum(bodies)
            return {"contributors": contributors, **{f"sum/{name}": block for name, block in blocks.items()}}

        result = self._line.call(f"{self._round}/{request.step}/sum", request.hash, compute)
        contributors = result.pop("contributors")
        noise = self._aggregation.noise(self._sigma[request.step], contributors) if request.step in self._sigma else 0.0
        return Total({name.removeprefix("sum/"): block for name, block in result.items()}, contributors, noise)

    def _numbers(self, step: str, body: Mapping[str, Any], grid: Grid) -> dict[str, Array]:
        """What one party's whole numbers stand for, in blocks."""
        return in_blocks(grid.numbers(unpack(body[SEALED], self._cells(step), grid.bits)), self._shapes(step))

    def _masked_mean(self, block: str, request: Request) -> Array:
        """Σ weight·block over those that stayed, by their masks, over the sum of their weights."""
        assert self._masks is not None
        shape = self._shapes(request.step)[block]
        try:
            survivors, total = self._masks.total(request, Fixed.BITS, self._cells(request.step))
        except VoidRound as void:
            raise PeerFailed(
                f'The masked mean of step "{request.step}" in round {self._round} is void, and what left is charged: '
                f"{void} Allow for more drop-outs with [aggregation] tolerate."
            ) from void
        weight = sum(self.facts.weight(name) for name in survivors)
        mean: Array = (Fixed.decoded(total) / weight).reshape(shape).astype(np.float32)
        self.transcript.sum(self._line.calls - 1, self._round, request.step, encode({"mean": mean}))
        return mean
