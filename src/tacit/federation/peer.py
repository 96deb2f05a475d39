"""Who can be asked: what a party and another role have in common, steps that are ordinary methods and end in a gate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from tacit.boundary import Gate, Release, RoleGate
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, reading
from tacit.errors import BadMessage, UngatedRelease
from tacit.federation.facts import Facts
from tacit.federation.messages import Request, Step, exchange_step


class Peer:
    """Somebody whom a coordinator asks for steps. Subclasses add steps, marked with `@step`.

    Attributes
    ----------
    name : by which it is asked
    home : arrays that it keeps between steps and that never leave unless a step lets them out
    """

    steps: ClassVar[Mapping[str, Step]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found = {name: getattr(getattr(cls, name), "tacit_step", None) for name in dir(cls)}
        cls.steps = {name: step for name, step in found.items() if step is not None}

    def __init__(self, name: str, parameters: Any, facts: Facts, gate: Gate | RoleGate) -> None:
        self.name, self.member = name, facts.member(name)
        self.parameters, self.facts, self.gate = parameters, facts, gate
        self.home = gate.home

    @property
    def dimensions(self) -> dict[str, int]:
        """What the names in a schema's shapes stand for here."""
        return {**self.facts.dimensions_of(self.name), **self.parameters.dimensions}

    @property
    def sums(self) -> Mapping[str, Step]:
        """The steps that an exchange of the run's aggregation can be about."""
        return self.steps

    def step(self, name: str) -> Step | None:
        """A step of the method, or an exchange of the run's aggregation; None where there is none of that name."""
        return self.steps.get(name) or exchange_step(name, self.sums, self.gate.aggregation.exchanges)

    def answer(self, request: Request, present: Array | None = None) -> Release:
        """Serve one request: check it, do the step, and let out only what the gate made for it.

        Of a cohort, `present` says which devices take part, (n,) bool; None means all.
        """
        request.check()
        step = self.step(request.step)
        if step is None:
            raise BadMessage(f'{self.name} was asked for "{request.step[:40]}", which is not a step of its method.')
        with reading("the coordinator"):
            payload = decode(request.body)
        step.takes.check(payload, self.dimensions, "the coordinator", step.name)
        terms = (step.name, request.round, request.attempt, request.hash)
        if (recorded := self.gate.repeated(*terms)) is not None:
            return recorded
        agreed = partial(self._agreed, step)
        with self.gate.serving(*terms, check=agreed, received=payload, present=present):
            if step.name in self.steps:
                result = getattr(self, step.name)(**payload)
            else:
                result = self.gate.exchange(step.name.partition(":")[0], payload)
        if not self.gate.made(result):
            raise UngatedRelease(
                f'Step "{step.name}" of {self.name} returned a {type(result).__name__} that its gate did not make; '
                f"nothing was sent. End the step in {self.gate.ways}."
            )
        release: Release = result
        return release

    def _agreed(self, step: Step, kind: Kind, payload: Mapping[str, Value]) -> None:
        """Hold what a step is about to let out to its declaration, before it is recorded."""
        if kind is not step.kind:
            raise UngatedRelease(
                f'Step "{step.name}" of {self.name} is declared a {step.kind} and ended in a {kind}; nothing was sent.'
            )
        terms = self.gate.terms.steps.get(step.name)
        if terms is not None and (terms.integers or self.gate.aggregation.seals(terms)):
            self.gate.aggregation.check_sealed(payload, terms, step.gives.cells(self.dimensions), self.name)
        else:
            step.gives.check(payload, self.dimensions, self.name, step.name)
