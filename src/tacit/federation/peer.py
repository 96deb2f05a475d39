"""`Peer`: answers requests by steps, ordinary methods that end in a gate. `Party`: a peer that holds ratings."""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from tacit.boundary import Gate, Release, RoleGate
from tacit.boundary.release import Kind
from tacit.boundary.wire import Array, Value, decode, reading
from tacit.errors import BadMessage, PrivacyRefused, UngatedRelease
from tacit.federation.facts import Facts
from tacit.federation.messages import Request, Step, exchange_step
from tacit.model import Fitted
from tacit.partition import Share


class Peer:
    """A party or other role. Subclasses add steps, marked with `@step`.

    `home` has the arrays that it stores between steps; they never leave unless a step releases them.
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
        """The values of the names in a schema's shapes, here."""
        return {**self.facts.dimensions_of(self.name), **self.parameters.dimensions}

    @property
    def sums(self) -> Mapping[str, Step]:
        """The steps that an exchange of the run's aggregation can be about."""
        return self.steps

    def step(self, name: str) -> Step | None:
        """A step of the method, or an exchange of the run's aggregation; None if there is no such step."""
        return self.steps.get(name) or exchange_step(name, self.sums, self.gate.aggregation.exchanges)

    def answer(self, request: Request, present: Array | None = None) -> Release:
        """Serve one request: check it, run the step, and release only what the gate made for it.

        Of a cohort, `present` marks the devices that take part, (n,) bool; None means all.
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
        """Check a release against the step's declaration, before it is recorded."""
        if kind is not step.kind:
            raise UngatedRelease(
                f'Step "{step.name}" of {self.name} is declared a {step.kind} and ended in a {kind}; nothing was sent.'
            )
        terms = self.gate.terms.steps.get(step.name)
        if terms is not None and (terms.integers or self.gate.aggregation.seals(terms)):
            cells = 0 if kind is Kind.REPORT else step.gives.cells(self.dimensions)
            self.gate.aggregation.check_sealed(payload, terms, cells, self.name)
        else:
            step.gives.check(payload, self.dimensions, self.name, step.name)


class Party(Peer):
    """A peer that holds `ratings`, in its own rows and columns: a silo, a group, or a cohort of devices, one a row."""

    gate: Gate

    def __init__(self, share: Share, parameters: Any, facts: Facts, gate: Gate) -> None:
        if not isinstance(gate, Gate):
            raise PrivacyRefused(f"{share.name} has ratings, and was given a gate that is not a party's.")
        super().__init__(share.name, parameters, facts, gate)
        self.ratings = share.ratings

    def _latest(self, block: str, shared: Mapping[str, Array]) -> Array:
        """A shared block as it is now: the one given, or the one that arrived last."""
        latest: Array = shared[block] if block in shared else self.home[block]
        return latest

    def at_home(self, **shared: Array) -> Fitted:
        """The party's own predictions for its rows and columns, given what is shared. It is not a step: the party's
        service uses it and, in a simulation, the experimenter."""
        raise NotImplementedError(f"{type(self).__name__} must say what it predicts at home.")

    def before_fine_tuning(self, **shared: Array) -> Fitted | None:
        """The same before the party fine-tuned the shared part; None where a method does not do that."""
        return None
