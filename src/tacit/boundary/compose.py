"""Composition by the tightest route that the events allow; `account` is its public face.

*Plain Gaussians* alone: exact, by Gaussian differential privacy (`gdp`). With *sampled* Gaussians, Laplace noise, ε-DP
mechanisms or shuffles: privacy loss distributions (`losses`). With *discrete* noise, Skellam or discrete Gaussian:
Rényi, from the published bounds (`renyi`), since no other are in print. Every route bounds the same thing from above,
so that where two apply the smaller holds.
"""

from __future__ import annotations

from functools import lru_cache

from tacit.boundary import gdp, losses, renyi, spending
from tacit.boundary.events import DiscreteGaussian, Gaussian, Skellam
from tacit.boundary.spending import Noised
from tacit.guarantee import Relation

#: Orders enough for a bound that another route will undercut.
FEW = renyi.ORDERS[::6]


@lru_cache(maxsize=4096)
def epsilon(events: tuple[Noised, ...], delta: float, relation: Relation, coarse: float = 1.0) -> float:
    """ε at δ of merged events, as a fixed list. A `coarse` above 1 is faster, and larger by a little."""
    if not events:
        return 0.0
    pure = spending.pure(events, relation)
    if delta == 0:
        return pure
    if (mu := plain_mu(events, relation)) is not None:
        return gdp.epsilon(delta, mu)
    if discrete(events):
        return min(pure, renyi.epsilon(renyi.curve(events, relation), delta))
    bound = min(pure, renyi.epsilon(renyi.curve(events, relation, FEW), delta, FEW))
    return min(bound, losses.epsilon(events, delta, relation, bound, coarse))


@lru_cache(maxsize=4096)
def delta(events: tuple[Noised, ...], epsilon: float, relation: Relation) -> float:
    """δ at ε of merged events, as a fixed list."""
    if not events or epsilon >= spending.pure(events, relation):
        return 0.0
    if (mu := plain_mu(events, relation)) is not None:
        return gdp.delta(epsilon, mu)
    if discrete(events):
        return renyi.delta(renyi.curve(events, relation), epsilon)
    costs = renyi.curve(events, relation, FEW)
    bound = renyi.delta(costs, epsilon, FEW)
    return min(bound, losses.delta(events, epsilon, relation, renyi.epsilon(costs, 1e-6, FEW)))


def plain_mu(events: tuple[Noised, ...], relation: Relation) -> float | None:
    """μ if all events are plain Gaussians, else None."""
    seen = [event for event in (spending.under(event, relation) for event in events) if isinstance(event, Gaussian)]
    return gdp.mu_of(seen) if len(seen) == len(events) else None


def discrete(events: tuple[Noised, ...]) -> bool:
    """Whether an event has discrete noise, which only Rényi bounds cover."""
    return any(isinstance(event, Skellam | DiscreteGaussian) for event in events)
