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

Array = np.ndarray[Any, Any]

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
    from dp_accounting.pld import privacy_loss_distribution as library

    match under(event, relation):
        case SampledGaussian(multiplier=z, rate=q):
            return _sampled(z, q, interval, replaced=relation is Relation.REPLACE)
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


def _sampled(z: float, q: float, interval: float, replaced: bool) -> Any:
    """What the library's `from_gaussian_mechanism` gives, whose loop over dots in Python is most of an account's time.

    δ(ε) = P(x) − e^ε·Q(x) at the x where the loss ln(dP/dQ) is ε. That x, with z² the variance and a shift of 1:
    removing −1/2 − z²·ln(1 + (e^ε − 1)/q); adding 1/2 + z²·ln(1 + (e^−ε − 1)/q); replacing
    z²·(asinh(−sinh(ε/2)·e^(1/2z²)·(1 − q)/q) − ε/2).
    """
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as library
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    if q == 1.0:  # a loss that has no logarithm of 1 − q, and is rare
        relation = NeighboringRelation.REPLACE_ONE if replaced else NeighboringRelation.REPLACE_SPECIAL
        return library.from_gaussian_mechanism(z, value_discretization_interval=interval, neighboring_relation=relation)

    def pmf(adjacency: AdjacencyType) -> Any:
        pair = GaussianPrivacyLoss(z, sampling_prob=q, adjacency_type=adjacency)
        bounds = pair.connect_dots_bounds()
        first, last = math.floor(bounds.epsilon_lower / interval), math.ceil(bounds.epsilon_upper / interval)
        at = np.arange(first, last + 1) * interval
        with np.errstate(all="ignore"):  # infinite x, where δ is what its limit is
            if adjacency is AdjacencyType.REPLACE:
                x = z**2 * (_asinh_of_sinh(-at / 2, 0.5 * (1 / z) ** 2 + math.log1p(-q) - math.log(q)) - at / 2)
            elif adjacency is AdjacencyType.ADD:
                x = -0.5 + _log_of_part(-at, q) * z**2 + 1
            else:
                x = -0.5 - _log_of_part(at, q) * z**2
            deltas = pair.mu_upper_cdf(x) - np.exp(at + pair.mu_lower_log_cdf(x))
        if adjacency is AdjacencyType.REMOVE:
            deltas = np.where(x == math.inf, -np.expm1(at), deltas)
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, np.clip(deltas, 0, 1))

    if replaced:
        return library.PrivacyLossDistribution(pmf(AdjacencyType.REPLACE))
    return library.PrivacyLossDistribution(pmf(AdjacencyType.REMOVE), pmf(AdjacencyType.ADD))


def _log_of_part(loss: Array, q: float) -> Array:
    """ln(1 + (e^loss − 1)/q); −∞ where that is no logarithm."""
    larger = loss + np.log(1 / q)
    smaller = np.log(-(1 - 1 / q)) - larger
    found = np.where(smaller < -1e-9, larger + np.log1p(-np.exp(np.minimum(smaller, 0.0))), -math.inf)
    found[loss == 0] = np.log(1 / q + (1 - 1 / q))
    return found


def _asinh_of_sinh(half: Array, log_factor: float) -> Array:
    """asinh(sinh(half)·e^log_factor), by logarithms; of the C library where the library's are, to the last bit."""
    size = np.abs(half)
    small = np.array([math.exp(-2 * each) for each in size.tolist()])
    logs = np.array([math.log1p(-each) if each < 1 else -math.inf for each in small.tolist()])
    log = log_factor + (size + logs - math.log(2))
    found: Array = np.sign(half) * np.logaddexp(0.5 * np.logaddexp(0, 2 * log), log)
    return found


def _dots(interval: float, index: Array, deltas: Array) -> Any:
    """The symmetric distribution that connects the dots (ε_i, δ_i)."""
    from dp_accounting.pld import pld_pmf
    from dp_accounting.pld import privacy_loss_distribution as library

    return library.PrivacyLossDistribution(pld_pmf.create_pmf_pessimistic_connect_dots(interval, index, deltas))
