"""Events: what one release spent, as values whose meaning never changes.

An event says what was done, not what it costs: the accountant turns events into ε. The ledger keeps them as JSON.
Multipliers are noise over sensitivity, for the unit that the release was made for and under zero-out; the accountant
brings in what another relation costs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from tacit.errors import PrivacyRefused


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
    """Test metrics that a site chose to tell: they depend on data and no ε covers them, so all of it is stamped."""


KINDS: Mapping[str, type[Event]] = {
    kind.__name__: kind
    for kind in (
        Gaussian,
        SampledGaussian,
        Skellam,
        SampledSkellam,
        DiscreteGaussian,
        Laplace,
        Pure,
        PerturbedObjective,
        Shuffled,
        NonPrivate,
        Public,
        Roster,
        Metrics,
    )
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
