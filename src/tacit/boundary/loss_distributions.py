"""Privacy loss distributions: the tightest cost of a schedule that was fixed before its first release.

Google's `dp_accounting` composes the distribution of the privacy loss of each event by fast Fourier transform. It is
imported on first use, which takes a second.

Formal guarantee
----------------
Each event is represented by a pair of distributions that dominates every pair of neighbours, for every divergence, and
compositions are dominated by the compositions of those pairs, also when each answer depends on earlier ones (Zhu, Dong
and Wang 2022). Continuous losses are laid on a grid by connecting dots, which never lowers δ(ε) (Doroshenko
et al. 2022). The transform's rounding *can* lower δ, by some 2·10⁻¹⁷ per composition as measured, which shows at δ near
10⁻¹⁰; so `SLACK` per composition, a hundred times that, is subtracted from the δ requested.

The pairs: plain Gaussians together, N(0, 1) against N(μ, 1), with 2μ under replace. Sampled ones under zero-out and
add/remove, the mixture (1 − q)·N(0, z²) + q·N(1, z²) against N(0, z²), in both directions; under replace the pair that
`renyi._sampled` proves to be worst, which is the library's REPLACE_ONE. Laplace in several coordinates: one coordinate
that moves by Δ₁ dominates (the difference of the loss distributions of one move and of two halves changes sign twice).
ε-DP mechanisms: randomised response (Kairouz, Oh and Viswanath 2015, proof of Theorem 3.3). Shuffles: see
`shuffle_amplification`.
"""

import math
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import numpy as np

from tacit.boundary import gdp, shuffle_amplification
from tacit.boundary.events import Gaussian, Laplace, Noised, Pure, SampledGaussian, Shuffled, under
from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation

#: Grid of the privacy loss; and what rounding may hide of δ, for each composition.
INTERVAL, SLACK = 1e-4, 2e-15
#: Past this ε there is nothing to be exact about.
HOPELESS = 1000.0


def epsilon(events: tuple[Noised, ...], delta: float, relation: Relation, bound: float, coarse: float = 1.0) -> float:
    """ε at δ; infinite where rounding could hide δ, or `bound`, an ε that holds, is hopeless.

    `coarse` widens the grid: faster, and larger by a little.
    """
    if delta <= 2 * slack(events) or bound > HOPELESS:
        return math.inf
    distribution = _composed(events, relation, interval(events, relation, bound) * coarse)
    return float(distribution.get_epsilon_for_delta(delta - slack(events)))


def delta(events: tuple[Noised, ...], epsilon: float, relation: Relation, bound: float) -> float:
    """δ at ε."""
    if bound > HOPELESS:
        return 1.0
    distribution = _composed(events, relation, interval(events, relation, bound))
    return min(1.0, float(distribution.get_delta_for_epsilon(epsilon)) + slack(events))


def slack(events: tuple[Noised, ...]) -> float:
    """What rounding may hide of δ."""
    return SLACK * (10 + sum(event.count for event in events if not isinstance(event, Gaussian)))


def interval(events: tuple[Noised, ...], relation: Relation, bound: float) -> float:
    """A grid that keeps every event, and all of them together, to a few hundred thousand points."""
    widest = 0.0
    for event in events:
        match under(event, relation):
            case Gaussian(multiplier=z, count=n):
                widest = max(widest, n / z**2 / 2 + 10 * math.sqrt(n) / z)
            case SampledGaussian(multiplier=z):
                shift = 2 if relation is Relation.REPLACE else 1
                widest = max(widest, shift**2 / z**2 / 2 + 10 * shift / z)
            case Laplace(multiplier=b):
                widest = max(widest, 1 / b)
            case Pure(epsilon=e) | Shuffled(local_epsilon=e):
                widest = max(widest, e)
    return INTERVAL * max(1.0, widest / 20, bound / 50, len(events) / 8)


@lru_cache(maxsize=16)
def _composed(events: tuple[Noised, ...], relation: Relation, interval: float) -> Any:
    from dp_accounting.pld import privacy_loss_distribution as library

    gaussians = [seen for event in events if isinstance(seen := under(event, relation), Gaussian)]
    with np.errstate(all="ignore"):  # the library looks past overflow on purpose, when it bounds its tails
        parts = []
        if gaussians:
            spread = 1 / gdp.mu_of(gaussians)
            parts.append(library.from_gaussian_mechanism(spread, value_discretization_interval=interval))
        for event in events:
            if not isinstance(event, Gaussian):
                parts.append(_single(replace(event, count=1), relation, interval).self_compose(event.count))
        return reduce(lambda whole, part: whole.compose(part), parts)


@lru_cache(maxsize=64)
def _single(event: Noised, relation: Relation, interval: float) -> Any:
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import privacy_loss_distribution as library

    match under(event, relation):
        case SampledGaussian(multiplier=z, rate=q):
            replaced = relation is Relation.REPLACE
            return library.from_gaussian_mechanism(
                z,
                sampling_prob=q,
                value_discretization_interval=interval,
                neighboring_relation=NeighboringRelation.REPLACE_ONE
                if replaced
                else NeighboringRelation.REPLACE_SPECIAL,
            )
        case Laplace(multiplier=b):
            return library.from_laplace_mechanism(b, value_discretization_interval=interval)
        case Pure(epsilon=e):
            edges = {math.floor(e / interval), math.ceil(e / interval)}
            index = np.array(sorted({-edge for edge in edges} | edges))
            at = np.minimum(index * interval, e)
            # δ of randomised response: (e^ε − e^x)/(e^ε + 1) inside ±ε, 1 − e^x below.
            inside = -np.expm1(at - e) / (1 + math.exp(-e))
            return _dots(interval, index, np.maximum(np.where(at <= -e, -np.expm1(at), inside), 0.0))
        case Shuffled(local_epsilon=e, crowd=n):
            return _dots(interval, *shuffle_amplification.profile(e, n, interval))
        case other:
            raise PrivacyRefused(f"{other} has no privacy loss distribution in print; it is accounted for by Rényi.")


def _dots(interval: float, index: np.ndarray[Any, Any], deltas: np.ndarray[Any, Any]) -> Any:
    """The symmetric distribution that connects the dots (ε_i, δ_i)."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as library

    return library.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, index, deltas))
