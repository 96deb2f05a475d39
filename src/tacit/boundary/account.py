"""The accountant: what everything that left costs together, as an ε at a δ.

Public facts cost nothing; data that left without a mechanism cost everything; an event that is not known is an error.
In between, `compose` takes the tightest route that the events allow.

Formal guarantee
----------------
If `epsilon(events, delta, relation)` is ε, the events together are (ε, δ)-DP for the unit that their sensitivities are
about, under `relation`, against whoever sees everything that left and chose each question in the light of earlier
answers, provided that the *list of events* was fixed beforehand. A list that itself depends on answers, such as runs
started one after another, is covered by a `Filter` only. An event's multiplier is noise over what one unit's record can
add (zero-out); `relation = replace` brings in the factor 2 of replacing, here and nowhere else. A *plain* release whose
multiplier was made with a replace sensitivity, twice that, may be accounted for under zero-out instead; a *sampled* one
may not, since then the δ of zero-out can lie below that of replacing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from tacit.boundary import compose, spending
from tacit.boundary.events import Event
from tacit.boundary.filters import Filter
from tacit.errors import UsageError
from tacit.guarantee import Relation

__all__ = [
    "Filter",
    "delta",
    "epsilon",
    "group",
    "joint",
    "parallel",
    "schedule_epsilon",
    "to_replace",
]


def epsilon(events: Iterable[Event], delta: float, relation: Relation) -> float:
    """The ε that holds at `delta` for all events together; infinite if anything left without a mechanism.

    >>> from tacit.boundary.events import Gaussian, Public
    >>> round(epsilon([Gaussian(2.0, count=4), Public()], 1e-5, Relation.ZERO_OUT), 4)
    4.3772
    >>> round(epsilon([Gaussian(2.0, count=4)], 1e-5, Relation.REPLACE), 4)
    9.9973
    """
    if not 0 <= delta < 1:
        raise UsageError(f"delta = {delta} is not possible; give a number from 0 up to, but not including, 1.")
    together = spending.merge(events)
    return math.inf if together is None else compose.epsilon(together, float(delta), Relation(relation))


def delta(events: Iterable[Event], epsilon: float, relation: Relation) -> float:
    """The δ that holds at `epsilon` for all events together; 1 if anything left without a mechanism."""
    if not epsilon >= 0:
        raise UsageError(f"epsilon = {epsilon} is not possible; give a number of at least 0.")
    together = spending.merge(events)
    return 1.0 if together is None else compose.delta(together, float(epsilon), Relation(relation))


def schedule_epsilon(schedule: Sequence[Event], delta: float, relation: Relation) -> float:
    """ε of a whole schedule, fixed before its first release: what a run promises. See `Filter` for any other case."""
    return epsilon(schedule, delta, relation)


def parallel(silos: Iterable[Iterable[Event]], delta: float, relation: Relation) -> float:
    """ε where every user is in *one* silo: that of the silo that spent most.

    Nobody can check that nobody is in two silos; whoever prints this prints `joint` for two and three beside it.
    """
    return max((epsilon(events, delta, relation) for events in silos), default=0.0)


def joint(silos: Iterable[Iterable[Event]], delta: float, relation: Relation) -> float:
    """ε where one user may be in *all* of the silos: everything that they let out composes.

    Vertical parties hold the same users: s parties with T rounds of T′ steps and κ final ones are s·(T·T′ + κ) events.
    """
    return epsilon([event for events in silos for event in events], delta, relation)


def group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """What (ε, δ) per unit says about `size` units at once: (kε, δ·Σ_{i<k} e^(iε)), δ at most 1.

    For instance a person with two accounts, or a household. It is never applied silently.
    """
    if size < 1:
        raise UsageError(f"A group of {size} is not possible; it has at least 1 unit.")
    if delta == 0 or epsilon == 0:
        return size * epsilon, min(1.0, delta * size)
    spread = math.expm1(size * epsilon) / math.expm1(epsilon) if size * epsilon < 700 else math.inf
    return size * epsilon, min(1.0, delta * spread)


def to_replace(epsilon: float, delta: float) -> tuple[float, float]:
    """(ε, δ) under zero-out or add/remove, as it reads under replace: (2ε, (1 + e^ε)·δ).

    It holds for any mechanism. `epsilon(events, …, Relation.REPLACE)` is smaller, for it knows the mechanism.
    """
    return group(epsilon, delta, 2)
