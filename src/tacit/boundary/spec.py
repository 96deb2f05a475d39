"""What a run releases, stated once: a `Spec` for each private access, and the `Terms` that a plan makes of them.

A spec is public: it holds a query without data, how often it is answered, and its part of the budget. Plan, gate,
accountant, ledger, card, forecast and curve read this one value. The gate takes a step's query from here by the step's
name, so that a step brings data and cannot choose the query.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tacit.boundary.code import Code, Floats, Grid
from tacit.boundary.events import (
    Event,
    Gaussian,
    Noised,
    NonPrivate,
    Pure,
    SampledGaussian,
    SampledSkellam,
    Shuffled,
    Skellam,
)
from tacit.boundary.objective_perturbation import Objectives
from tacit.boundary.query import Mechanism, Query
from tacit.boundary.release import Kind
from tacit.errors import PrivacyRefused
from tacit.guarantee import NON_PRIVATE, Guarantee, NoGuarantee, Relation, Unit
from tacit.secure.noise_shares import UP

#: The name in an event of what reports are made by.
REPORTS = "randomised reports"


@dataclass(frozen=True)
class Spec:
    """One private access of a method, before there is data.

    Attributes
    ----------
    step : the step's name
    query : what is computed, without data
    releases : how many releases of the step the whole run makes
    answers : how many noisy answers there are in each
    share : its part of the budget, of all releases together; either every spec of a method has one, or none
    mean : whether what a chain releases is averaged over parties, so that an aggregation may hide single ones
    signal : forecast size of one cell of one answer, all parties' contributions added, from public quantities
    """

    step: str
    query: Query
    releases: int = 1
    answers: int = 1
    share: float | None = None
    mean: bool = False
    signal: float = 0.0


@dataclass(frozen=True)
class StepTerms:
    """What a run promises about one step.

    Attributes
    ----------
    spec : what the method stated
    kind : how the step's releases come about
    multiplier : z, noise over sensitivity of every answer; 0 where nothing is promised
    sensitivity : Δ of one answer for the unit that is counted, under zero-out
    event : what one release costs one unit, over all parties that it is in
    code : how its numbers travel, and the noise on one answer or on a sum
    sealed : whether nobody sees a single party's contribution, so that a sum as a whole carries the noise
    parties : in how many parties' releases one unit can be
    cells : numbers in one release
    """

    spec: Spec
    kind: Kind
    multiplier: float
    sensitivity: float
    event: Event
    code: Code
    sealed: bool = False
    parties: int = 1
    cells: int = 0

    @property
    def query(self) -> Query:
        return self.spec.query

    @property
    def sigma(self) -> float:
        """σ of the noise on a cell of one answer, or of a sum."""
        if isinstance(self.code, Grid):
            return self.code.sigma
        return self.multiplier * self.sensitivity if self.multiplier else 0.0

    @property
    def integers(self) -> bool:
        """Whether contributions travel as integers with and without a seal; chains only do under one."""
        return self.kind is Kind.SUM and self.code.bits > 0

    @property
    def retried(self) -> bool:
        """Whether a release may be requested again because a sum failed."""
        return self.sealed and self.kind is Kind.SUM


@dataclass(frozen=True)
class Terms:
    """What a run promises, fixed before its first release; the same for each of its parties.

    Attributes
    ----------
    guarantee : what will hold after all releases; NON_PRIVATE where nothing is added
    steps : by name, the steps that look at data
    unit, relation : what sensitivities and events are computed for; stronger than the guarantee's own where a query
        requires it
    retries : how many releases beyond the planned ones the sealed sums of the run may make, all together
    """

    guarantee: Guarantee | NoGuarantee
    steps: Mapping[str, StepTerms]
    unit: Unit = Unit.USER
    relation: Relation = Relation.ZERO_OUT
    retries: int = 0

    @property
    def private(self) -> bool:
        return isinstance(self.guarantee, Guarantee)

    @property
    def events(self) -> tuple[Event, ...]:
        """What the whole run costs one unit, retries at their costliest."""
        planned = [times(terms.event, terms.spec.releases) for terms in self.steps.values()]
        return (*planned, *self.repeated)

    @property
    def releases(self) -> dict[str, int]:
        """By step, how many releases a party makes at most."""
        return {
            name: terms.spec.releases + (self.retries if terms.retried else 0) for name, terms in self.steps.items()
        }

    @property
    def parties(self) -> int:
        """In how many parties one unit can be."""
        return max((terms.parties for terms in self.steps.values()), default=1)

    @property
    def repeated(self) -> tuple[Event, ...]:
        """What all retries cost at most, whichever sums they are spent on."""
        if not self.private and all(isinstance(terms.event, NonPrivate) for terms in self.steps.values()):
            return ()
        return costliest([terms.event for terms in self.steps.values() if terms.retried], self.retries)

    def step(self, name: str, kind: Kind) -> StepTerms:
        """The terms of a step; a release that no spec states is refused."""
        terms = self.steps.get(name)
        if terms is None or terms.kind is not kind:
            raise PrivacyRefused(
                f'Step "{name}" was to end in a {kind}, and the method states no such release; nothing was released: '
                "name the step in the method's specs."
            )
        return terms


def unprotected(specs: Mapping[str, tuple[Spec, Kind]]) -> Terms:
    """The terms of a run that promises nothing and hides nothing."""
    steps = {
        name: StepTerms(spec, kind, 0.0, spec.query.sensitivity(Unit.USER, Relation.ZERO_OUT), NonPrivate(), Floats())
        for name, (spec, kind) in specs.items()
    }
    return Terms(NON_PRIVATE, steps)


def event_of(query: Query, multiplier: float, count: int, code: Code, crowd: int = 0) -> Event:
    """What `count` answers of a query cost, by its mechanism; `crowd` honest devices share a shuffle, 0 for none."""
    match query.mechanism:
        case Mechanism.RESPONSE:
            local = 1 / multiplier
            if crowd and not query.mixes:
                raise PrivacyRefused(
                    f"A report by {type(query).__name__} holds many answers of one device, and no bound says what "
                    'mixing such reports hides; use [aggregation] name = "plain".'
                )
            return Shuffled(local, crowd, count) if crowd else Pure(local, REPORTS, count)
        case Mechanism.PERTURBED:
            if not isinstance(query, Objectives):
                raise PrivacyRefused(f"A {type(query).__name__} has no proof for noise inside its objective.")
            return query.event(multiplier, count)
        case Mechanism.NORMAL:
            if isinstance(code, Grid):
                return code.event(query.sampling, count)
            rate = query.sampling
            return SampledGaussian(multiplier, rate, count) if rate < 1 else Gaussian(multiplier, count)


def times(event: Event, count: int) -> Event:
    """An event so many times."""
    return replace(event, count=event.count * count) if isinstance(event, Noised) else event


def costliest(events: list[Event], count: int) -> tuple[Event, ...]:
    """`count` events that cost no less than any `count` of the given ones do, all of Skellam noise on integers.

    Formal guarantee: the bounds on Skellam noise of variance v rise in Δ₂²/v, in Δ₁, in 1/v and in the sampling rate,
    and depend on nothing else; the event that has the largest of each costs at least as much as each. Sensitivities are
    rounded up.
    """
    if not events or not count:
        return ()
    single = [event for event in events if isinstance(event, Skellam | SampledSkellam)]
    if len(single) < len(events):
        raise PrivacyRefused("Only sums in integers can be retried; leave [aggregation] retries out.")
    if len(set(single)) == 1:
        return (times(single[0], count),)
    v, answers = min(event.variance for event in single), max(event.count for event in single)
    l2 = UP * max(event.l2 / event.variance**0.5 for event in single) * v**0.5
    l1 = max(l2, UP * max(event.l1 for event in single))
    rate = max(event.rate if isinstance(event, SampledSkellam) else 1.0 for event in single)
    worst = Skellam(v, l1, l2, answers) if rate == 1 else SampledSkellam(v, l1, l2, rate, answers)
    return (times(worst, count),)
