"""What was spent, in a form to reckon with: checked, like with like, and as one relation sees it.

A multiplier is noise over the ℓ2 norm of what one unit's record can add to an answer, the sensitivity under zero-out.
Under *replace* a record is taken away and another put in its place, so the answer moves up to twice as far: `under`
carries that one factor 2, and nothing else in the accountant does. Four kinds are not doubled: a sampled Gaussian,
whose pair of neighbours is a different one (see `losses` and `renyi`); a shuffle, whose bound is for replace as it is;
and sampled Skellam noise and a perturbed objective, which go by way of the emptied record (see `compose` and `renyi`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from numbers import Real

from tacit.boundary.events import (
    KINDS,
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    PerturbedObjective,
    Public,
    Pure,
    SampledGaussian,
    SampledSkellam,
    Shuffled,
    Skellam,
)
from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation

Noised = (
    Gaussian
    | SampledGaussian
    | Skellam
    | SampledSkellam
    | DiscreteGaussian
    | Laplace
    | Pure
    | PerturbedObjective
    | Shuffled
)


def merge(events: Iterable[Event]) -> tuple[Noised, ...] | None:
    """Events with their counts added up where they are alike, in a fixed order; None if anything left unprotected.

    Formal guarantee: composition does not depend on the order of the events, so that the result costs what the input
    costs. Public facts and events that happened zero times cost nothing; sampling everybody is no sampling; noise of
    scale 0 is no protection. An event of an unknown kind, or with impossible numbers, is refused.
    """
    counts: dict[Noised, int] = {}
    private = True
    for event in events:
        check(event)
        if isinstance(event, Public):
            continue
        if not isinstance(event, Noised) or (event.count and _bare(event)):
            private = False
            continue
        single = replace(event, count=1)
        if isinstance(single, SampledGaussian) and single.rate == 1:
            single = Gaussian(single.multiplier)
        if isinstance(single, SampledSkellam) and single.rate == 1:
            single = Skellam(single.variance, single.l1, single.l2)
        counts[single] = counts.get(single, 0) + event.count
    if not private:
        return None
    together = [replace(event, count=count) for event, count in counts.items() if count and not _silent(event)]
    return tuple(sorted(together, key=lambda event: (type(event).__name__, repr(event))))


def under(event: Noised, relation: Relation) -> Noised:
    """The event as `relation` sees it: twice the sensitivity under replace, but for the four kinds above.

    >>> under(Gaussian(3.0, count=2), Relation.REPLACE)
    Gaussian(multiplier=1.5, count=2)

    A pure mechanism that is ε-DP under zero-out is 2ε-DP under replace, by the triangle over the emptied record.
    """
    if relation is not Relation.REPLACE:
        if relation is Relation.ADD_REMOVE and isinstance(event, Shuffled):
            raise PrivacyRefused(
                "Shuffled reports have no guarantee under add/remove, because the number of reports is seen; "
                "ask for zero-out or replace."
            )
        return event
    match event:
        case Gaussian() | Laplace():
            return replace(event, multiplier=event.multiplier / 2)
        case Skellam():
            return replace(event, l1=2 * event.l1, l2=2 * event.l2)
        case DiscreteGaussian():
            return replace(event, l2=2 * event.l2)
        case Pure():
            return replace(event, epsilon=2 * event.epsilon)
        case SampledGaussian() | SampledSkellam() | Shuffled() | PerturbedObjective():
            return event


def without_objectives(events: Iterable[Noised]) -> tuple[tuple[Noised, ...], float] | None:
    """Perturbed objectives as the plain Gaussians in them, and what their curvature adds to ε; None if there are none.

    Formal guarantee: under zero-out and add/remove, δ(ε) of the events is at most that of the ones returned at
    ε − shift, for every ε. `tacit.boundary.objective_perturbation` proves that N(0, 1) against
    e^−β·N(μ, 1) + (1 − e^−β)·⊥, where ⊥ is an outcome of its own, dominates one perturbed objective of curvature β; and
    a shift of every loss by β commutes with composition.
    """
    events = tuple(events)
    objectives = [event for event in events if isinstance(event, PerturbedObjective)]
    if not objectives:
        return None
    others = [event for event in events if not isinstance(event, PerturbedObjective)]
    gaussians = [Gaussian(event.multiplier, event.count) for event in objectives]
    shift = math.fsum(event.count * event.curvature for event in objectives)
    together = merge([*others, *gaussians])
    return ((), math.inf) if together is None else (together, shift)


def pure(events: Iterable[Noised], relation: Relation) -> float:
    """ε at δ = 0: the sum over events, infinite if one of them is not pure."""
    total = 0.0
    for event in (under(event, relation) for event in events):
        match event:
            case Laplace():
                total += event.count / event.multiplier
            case Pure():
                total += event.count * event.epsilon
            case Shuffled():
                total += event.count * event.local_epsilon
            case _:
                return math.inf
    return total


def check(event: Event) -> None:
    """Refuse an event that the accountant does not know, or whose numbers cannot be meant so."""
    if KINDS.get(type(event).__name__) is not type(event):
        raise PrivacyRefused(
            f"{type(event).__name__} is not an event that the accountant knows, so what it costs cannot be said; "
            "release through one of the mechanisms in tacit.boundary.events."
        )
    match event:
        case Gaussian() | Laplace():
            fine = _at_least(event.multiplier, 0)
        case SampledGaussian():
            fine = _at_least(event.multiplier, 0) and _at_least(event.rate, 0) and event.rate <= 1
        case Skellam() | SampledSkellam():
            fine = _at_least(event.variance, 0) and _at_least(event.l2, 0) and _at_least(event.l1, event.l2)
            if isinstance(event, SampledSkellam):
                fine = fine and _at_least(event.rate, 0) and event.rate <= 1
        case DiscreteGaussian():
            fine = _at_least(event.variance, 0) and _at_least(event.l2, 0)
            fine = fine and _whole(event.dimensions, 1) and _whole(event.shares, 1)
        case Pure():
            fine = _at_least(event.epsilon, 0)
        case PerturbedObjective():
            fine = _at_least(event.multiplier, 0) and _at_least(event.curvature, 0)
        case Shuffled():
            fine = _at_least(event.local_epsilon, 0) and _whole(event.crowd, 1)
        case _:
            return
    if not (fine and _whole(event.count, 0)):
        raise PrivacyRefused(f"{event} has numbers that no release can have, so what it costs cannot be said.")
    if isinstance(event, DiscreteGaussian) and event.shares > 1 and event.variance < 2:
        raise PrivacyRefused(
            f"Shares of discrete Gaussian noise need a variance of at least 2 grid² each, and {event.variance:g} is "
            "less: use a finer grid, fewer shares, or Skellam noise."
        )


def _bare(event: Noised) -> bool:
    """Whether the noise has no width at all, or the promise no bound."""
    match event:
        case Gaussian() | Laplace():
            return event.multiplier == 0
        case SampledGaussian():
            return event.multiplier == 0 and event.rate > 0
        case Skellam():
            return (event.variance == 0 and event.l1 > 0) or event.l1 == math.inf
        case SampledSkellam():
            return event.rate > 0 and ((event.variance == 0 and event.l1 > 0) or event.l1 == math.inf)
        case DiscreteGaussian():
            return (event.variance == 0 and event.l2 > 0) or event.l2 == math.inf
        case Pure():
            return event.epsilon == math.inf
        case PerturbedObjective():
            return event.multiplier == 0 or event.curvature == math.inf
        case Shuffled():
            return event.local_epsilon == math.inf


def _silent(event: Noised) -> bool:
    """Whether nothing about any unit can be in the answer."""
    match event:
        case Gaussian() | Laplace():
            return event.multiplier == math.inf
        case SampledGaussian():
            return event.rate == 0 or event.multiplier == math.inf
        case Skellam():
            return event.l1 == 0
        case SampledSkellam():
            return event.rate == 0 or event.l1 == 0
        case DiscreteGaussian():
            return event.l2 == 0
        case Pure():
            return event.epsilon == 0
        case PerturbedObjective():
            return event.multiplier == math.inf and event.curvature == 0
        case Shuffled():
            return event.local_epsilon == 0


def _at_least(value: object, low: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= low


def _whole(value: object, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low
