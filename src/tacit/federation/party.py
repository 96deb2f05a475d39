"""The party's side: steps that are ordinary methods and end in the gate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from tacit.boundary import Gate, Release
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, reading
from tacit.errors import BadMessage, UngatedRelease
from tacit.federation.facts import Facts
from tacit.federation.messages import Request, Step, exchange_step
from tacit.model.fitted import Fitted
from tacit.partition import Share


class Party:
    """Who holds data: a silo, a group, or a cohort of devices (one row each).

    Subclasses add steps, marked with `@step`, and `at_home`.

    Attributes
    ----------
    ratings : what it holds, in its own rows and columns
    home : arrays that it keeps between steps and that never leave unless a step lets them out
    """

    steps: ClassVar[Mapping[str, Step]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        found = {name: getattr(getattr(cls, name), "tacit_step", None) for name in dir(cls)}
        cls.steps = {name: step for name, step in found.items() if step is not None}

    def __init__(self, share: Share, parameters: Any, facts: Facts, gate: Gate) -> None:
        self.name, self.ratings = share.name, share.ratings
        self.parameters, self.facts, self.gate = parameters, facts, gate
        self.member = facts.member(share.name)
        self.home = gate.home

    @property
    def dimensions(self) -> dict[str, int]:
        """What the names in a schema's shapes stand for at this party."""
        return {**self.member.dimensions, **self.parameters.dimensions, "roster": len(self.facts.roster)}

    def step(self, name: str) -> Step | None:
        """A step of the method, or an exchange of the run's aggregation; None where there is none of that name."""
        return self.steps.get(name) or exchange_step(name, self.steps, self.gate.how.exchanges)

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
        with self.gate.serving(*terms, agreed=agreed, received=payload, present=present):
            if step.name in self.steps:
                result = getattr(self, step.name)(**payload)
            else:
                result = self.gate.exchange(step.name.partition(":")[0], payload)
        if not self.gate.made(result):
            raise UngatedRelease(
                f'Step "{step.name}" of {self.name} returned a {type(result).__name__} that its gate did not make; '
                "nothing was sent. End the step in gate.chain, gate.sum or gate.public."
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
        if terms is not None and (terms.whole or self.gate.how.seals(terms)):
            self.gate.how.check_sealed(payload, terms, step.gives.cells(self.dimensions), self.name)
        else:
            step.gives.check(payload, self.dimensions, self.name, step.name)

    def _latest(self, block: str, shared: Mapping[str, Array]) -> Array:
        """A shared block as it is now: the one given, or the one that arrived last."""
        latest: Array = shared[block] if block in shared else self.home[block]
        return latest

    def at_home(self, **shared: Array) -> Fitted:
        """What the party itself would predict for its own rows and columns, given what is shared.

        Used by the party's own service and, in a simulation, by the experimenter. It is not a step.
        """
        raise NotImplementedError(f"{type(self).__name__} must say what it predicts at home.")

    def before_fine_tuning(self, **shared: Array) -> Fitted | None:
        """The same before the party improved the shared part for itself; None where a method does not do that."""
        return None
