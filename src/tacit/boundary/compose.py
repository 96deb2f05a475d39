"""Composition by the tightest route that the events allow; `account` is its public face.

*Plain Gaussians* alone: exact, by Gaussian differential privacy (`gdp`). With *sampled* Gaussians, Laplace noise, ε-DP
mechanisms or shuffles: privacy loss distributions (`losses`). With *discrete* noise, Skellam or discrete Gaussian:
Rényi, from the published bounds (`renyi`), since no other are in print. *Perturbed objectives* are plain Gaussians
whose losses are all larger by one number, which is added to the ε of everything. Under replace they, and whatever is
with them, go by way of the emptied record: (ε, δ) becomes (2ε, (1 + e^ε)·δ). Every route bounds the same thing from
above, so that where two apply the smaller holds.
"""

from __future__ import annotations

import math
from functools import lru_cache

from tacit.boundary import gdp, loss_distributions, renyi, spending
from tacit.boundary.events import DiscreteGaussian, Gaussian, SampledSkellam, Skellam
from tacit.boundary.spending import Noised
from tacit.guarantee import Relation

#: Orders enough for a bound that another route will undercut.
FEW = renyi.ORDERS[::6]
#: The largest ε whose exponential is reckoned with.
FAR = 700.0


@lru_cache(maxsize=4096)
def epsilon(events: tuple[Noised, ...], delta: float, relation: Relation, coarse: float = 1.0) -> float:
    """ε at δ of merged events, as a fixed list. A `coarse` above 1 is faster, and larger by a little."""
    if not events:
        return 0.0
    if (parted := spending.without_objectives(events)) is not None:
        if relation is Relation.REPLACE:
            return _replaced_epsilon(events, delta)
        others, shift = parted
        return epsilon(others, delta, relation, coarse) + shift
    pure = spending.pure(events, relation)
    if delta == 0:
        return pure
    if (mu := plain_mu(events, relation)) is not None:
        return gdp.epsilon(delta, mu)
    if discrete(events):
        return min(pure, renyi.epsilon(renyi.curve(events, relation), delta))
    bound = min(pure, renyi.epsilon(renyi.curve(events, relation, FEW), delta, FEW))
    return min(bound, loss_distributions.epsilon(events, delta, relation, bound, coarse))


@lru_cache(maxsize=4096)
def delta(events: tuple[Noised, ...], epsilon: float, relation: Relation) -> float:
    """δ at ε of merged events, as a fixed list."""
    if (parted := spending.without_objectives(events)) is not None:
        if relation is Relation.REPLACE:
            return min(_replaced_delta(events, epsilon), renyi.delta(renyi.curve(events, relation), epsilon))
        others, shift = parted
        return _anywhere(others, epsilon - shift, relation)
    if not events or epsilon >= spending.pure(events, relation):
        return 0.0
    if (mu := plain_mu(events, relation)) is not None:
        return gdp.delta(epsilon, mu)
    if discrete(events):
        return renyi.delta(renyi.curve(events, relation), epsilon)
    costs = renyi.curve(events, relation, FEW)
    bound = renyi.delta(costs, epsilon, FEW)
    return min(bound, loss_distributions.delta(events, epsilon, relation, renyi.epsilon(costs, 1e-6, FEW)))


def plain_mu(events: tuple[Noised, ...], relation: Relation) -> float | None:
    """μ if all events are plain Gaussians, else None."""
    seen = [event for event in (spending.under(event, relation) for event in events) if isinstance(event, Gaussian)]
    return gdp.mu_of(seen) if len(seen) == len(events) else None


def discrete(events: tuple[Noised, ...]) -> bool:
    """Whether an event has discrete noise, which only Rényi bounds cover."""
    return any(isinstance(event, Skellam | SampledSkellam | DiscreteGaussian) for event in events)


def _anywhere(events: tuple[Noised, ...], at: float, relation: Relation) -> float:
    """δ at any real ε: below 0, δ(ε) = 1 − e^ε·(1 − δ(−ε)), the same two neighbours taken the other way round."""
    return delta(events, at, relation) if at >= 0 else 1 - math.exp(at) * (1 - delta(events, -at, relation))


def _replaced_delta(events: tuple[Noised, ...], epsilon: float) -> float:
    """δ at ε under replace by way of the emptied record, for any events: (1 + e^(ε/2))·δ(ε/2)."""
    half = delta(events, epsilon / 2, Relation.ZERO_OUT)
    if half == 0 or epsilon / 2 > FAR:
        return math.ceil(half)
    return min(1.0, half * (1 + math.exp(epsilon / 2)))


def _replaced_epsilon(events: tuple[Noised, ...], wanted: float) -> float:
    """ε at δ under replace: where `_replaced_delta` comes down to δ, found from above; or Rényi's, if that is less."""
    if wanted == 0:
        return math.inf
    bound = renyi.epsilon(renyi.curve(events, Relation.REPLACE), wanted)
    low, high = 0.0, min(bound, 2 * FAR)
    if _replaced_delta(events, high) > wanted:
        return bound
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _replaced_delta(events, middle) <= wanted else (middle, high)
    return high
