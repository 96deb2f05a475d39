"""Events: what one release spent, as values whose meaning never changes; and `merge`, which adds them up.

An event states what was done, not what it costs: the accountant turns events into ε, and the ledger stores them as
JSON. A multiplier is noise over sensitivity: the ℓ2 norm of what one unit's record can add to an answer, as zero-out
sees it. Under *replace* a record is removed and another takes its place, so the answer moves up to twice as far:
`under` applies that factor 2, and nothing else in the accountant does. Four kinds are not doubled: a sampled Gaussian,
whose pair of neighbours is a different one (see `loss_distributions` and `renyi`); a shuffle, whose bound is for
replace already; sampled Skellam noise and a perturbed objective, which go by way of the emptied record (see `account`
and `renyi`).
"""

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Any, get_args

from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation


@dataclass(frozen=True)
class Event:
    """The root of all events; an event of a type that is not listed in `KINDS` is an error."""


@dataclass(frozen=True)
class Gaussian(Event):
    """`count` Gaussian answers with standard deviation multiplier·Δ₂ each."""

    multiplier: float
    count: int = 1


@dataclass(frozen=True)
class SampledGaussian(Event):
    """`count` Gaussian answers, each over a fresh, secret Poisson sample of the units, of that rate."""

    multiplier: float
    rate: float
    count: int = 1


@dataclass(frozen=True)
class Skellam(Event):
    """`count` integer answers plus symmetric Skellam noise of that variance; both sensitivities in grid units."""

    variance: float
    l1: float
    l2: float
    count: int = 1


@dataclass(frozen=True)
class SampledSkellam(Event):
    """`count` such integer answers, each over a fresh, secret Poisson sample of the units, of that rate."""

    variance: float
    l1: float
    l2: float
    rate: float
    count: int = 1


@dataclass(frozen=True)
class DiscreteGaussian(Event):
    """`count` integer answers plus a sum of `shares` discrete Gaussians of `variance` each; Δ₂ in grid units."""

    variance: float
    l2: float
    dimensions: int
    shares: int = 1
    count: int = 1


@dataclass(frozen=True)
class Laplace(Event):
    """`count` Laplace answers with scale multiplier·Δ₁ each: (1/multiplier)-DP."""

    multiplier: float
    count: int = 1


@dataclass(frozen=True)
class Pure(Event):
    """`count` answers of a mechanism that is ε-DP by its own proof: exponential, Gumbel top-k, randomised response."""

    epsilon: float
    mechanism: str
    count: int = 1


@dataclass(frozen=True)
class PerturbedObjective(Event):
    """`count` minimisers of convex objectives with a Gaussian linear term, of that standard deviation over the norm of
    one unit's gradient, where one unit changes the determinant of the curvature by a factor of at most e^curvature.
    """

    multiplier: float
    curvature: float
    count: int = 1


@dataclass(frozen=True)
class Shuffled(Event):
    """`count` shuffles of one ε₀-LDP report each from at least `crowd` distinct honest devices; replace relation."""

    local_epsilon: float
    crowd: int
    count: int = 1


@dataclass(frozen=True)
class NonPrivate(Event):
    """Data left without a mechanism; composes to infinity."""


@dataclass(frozen=True)
class Public(Event):
    """A fact that no data went into; costs nothing."""


@dataclass(frozen=True)
class Roster(Public):
    """Who takes part, counted or under pseudonyms; no ε covers that, since the roster is public under zero-out."""


@dataclass(frozen=True)
class Metrics(Public):
    """Test metrics that a site chose to report: they depend on data and no ε covers them, so the run is stamped."""


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

#: Events that have been added up by kind; None where something was released without protection.
Merged = tuple[Noised, ...] | None

KINDS: Mapping[str, type[Event]] = {
    kind.__name__: kind for kind in (*get_args(Noised), NonPrivate, Public, Roster, Metrics)
}


def to_json(event: Event) -> dict[str, Any]:
    """An event as plain values, with its kind."""
    if KINDS.get(type(event).__name__) is not type(event):
        raise PrivacyRefused(f"{type(event).__name__} is not an event that the accountant knows; nothing was released.")
    return {"kind": type(event).__name__, **vars(event)}


def from_json(table: Mapping[str, Any]) -> Event:
    """The event that `to_json` wrote."""
    values = dict(table)
    kind = KINDS.get(str(values.pop("kind", None)))
    if kind is None or values.keys() != {f.name for f in fields(kind)}:
        raise PrivacyRefused(f"A record names the event {dict(table)}, which the accountant does not know.")
    return kind(**values)


def merge(events: Iterable[Event]) -> Merged:
    """Events with the counts of equal ones added up, in a fixed order; None if data was released without a mechanism.

    Formal guarantee: composition does not depend on the order of the events, so the result costs what the input costs.
    Public facts and events that happened zero times cost nothing; sampling everybody is no sampling; noise of scale 0
    is no protection. An event of an unknown kind, or with impossible numbers, is refused.
    """
    counts: dict[Noised, int] = {}
    private = True
    for event in events:
        check(event)
        if isinstance(event, Public):
            continue
        if not isinstance(event, Noised) or (event.count and _unprotected(event)):
            private = False
            continue
        single = _without_full_sampling(replace(event, count=1))
        counts[single] = counts.get(single, 0) + event.count
    if not private:
        return None
    together = [replace(event, count=count) for event, count in counts.items() if count and not _costs_nothing(event)]
    return tuple(sorted(together, key=lambda event: (type(event).__name__, repr(event))))


def count_by_kind(events: Iterable[Noised]) -> dict[Noised, int]:
    """How often each event of a merged list happened."""
    return {replace(event, count=1): event.count for event in events}


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


def check(event: Event) -> None:
    """Refuse an event that the accountant does not know, or whose numbers no release can have."""
    if KINDS.get(type(event).__name__) is not type(event):
        raise PrivacyRefused(
            f"{type(event).__name__} is not an event that the accountant knows, so its cost is unknown; "
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
            fine = fine and _integer(event.dimensions, 1) and _integer(event.shares, 1)
        case Pure():
            fine = _at_least(event.epsilon, 0)
        case PerturbedObjective():
            fine = _at_least(event.multiplier, 0) and _at_least(event.curvature, 0)
        case Shuffled():
            fine = _at_least(event.local_epsilon, 0) and _integer(event.crowd, 1)
        case _:
            return
    if not (fine and _integer(event.count, 0)):
        raise PrivacyRefused(f"{event} has numbers that no release can have, so its cost is unknown.")
    if isinstance(event, DiscreteGaussian) and event.shares > 1 and event.variance < 2:
        raise PrivacyRefused(
            f"Shares of discrete Gaussian noise need a variance of at least 2 grid² each, and {event.variance:g} is "
            "less: use a finer grid, fewer shares, or Skellam noise."
        )


def _without_full_sampling(event: Noised) -> Noised:
    match event:
        case SampledGaussian(rate=1):
            return Gaussian(event.multiplier)
        case SampledSkellam(rate=1):
            return Skellam(event.variance, event.l1, event.l2)
        case _:
            return event


def _unprotected(event: Noised) -> bool:
    """Whether the noise has no width, or the sensitivity no bound."""
    noise, moves, rate = _extent(event)
    return rate > 0 and ((noise == 0 and moves > 0) or moves == math.inf)


def _costs_nothing(event: Noised) -> bool:
    """Whether the answer cannot depend on any unit."""
    noise, moves, rate = _extent(event)
    return noise == math.inf or moves == 0 or rate == 0


def _extent(event: Noised) -> tuple[float, float, float]:
    """How much noise there is, how far one unit moves the answer, and how often it is sampled; 1 where not stated."""
    match event:
        case Gaussian() | Laplace():
            return event.multiplier, 1, 1
        case SampledGaussian():
            return event.multiplier, 1, event.rate
        case Skellam():
            return event.variance, event.l1, 1
        case SampledSkellam():
            return event.variance, event.l1, event.rate
        case DiscreteGaussian():
            return event.variance, event.l2, 1
        case Pure():
            return 1, event.epsilon, 1
        case Shuffled():
            return 1, event.local_epsilon, 1
        case PerturbedObjective(curvature=0):
            return event.multiplier, 1, 1
        case PerturbedObjective():  # curvature costs something however much noise there is
            return min(event.multiplier, sys.float_info.max), max(1, event.curvature), 1


def _at_least(value: object, low: float) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and float(value) >= low


def _integer(value: object, low: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= low
