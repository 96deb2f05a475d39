"""Rényi differential privacy: what each event costs at each order, and what that means in (ε, δ).

Costs add up order by order, also when events are chosen adaptively (Mironov 2017,
Proposition 1), which is why filters use them. They are the only published costs of discrete noise:

* Skellam of variance μ, integer orders α > 1 (Agarwal, Kairouz and Liu 2021, Theorem 3.5 and Corollary 4.1):
  α·Δ₂²/(2μ) + min{ ((2α − 1)·Δ₂² + 6·Δ₁)/(4μ²), 3·Δ₁/(2μ) }
* the sum of n discrete Gaussians of variance σ² each, in d coordinates (Kairouz, Liu and Steinke 2021, Proposition 14):
  min{ α·Δ₂²/(2nσ²) + τ·d, α/2·(Δ₂/(√n·σ) + τ·√d)² } with τ = 10·Σ_{k<n} exp(−2π²σ²·k/(k + 1)); τ = 0 for n = 1
* Gaussian α/(2z²) and Laplace (Mironov 2017, Propositions 7 and 6). With several coordinates Laplace is worst
  when one of them moves by Δ₁ on its own: the logarithm of its moment is convex in the shift, and 0 at 0.
* ε-DP by its own proof: as randomised response, the worst of all ε-DP mechanisms (Kairouz, Oh and Viswanath 2015)
* a Poisson-sampled Gaussian: its pair of neighbours, integrated; a shuffle: the pair of `shuffle_amplification`
* Poisson-sampled Skellam noise: the binomial sum for symmetric noise (Mironov, Talwar and Zhang 2019, §3.3), with a
  proof for integers in `poisson_sampled`; never more than without sampling. Under replace by way of the emptied
  record, as below, or without sampling and with twice the sensitivity, whichever is less.
* a perturbed objective of curvature β: α/(2z²) + β, of the pair in `tacit.boundary.objective_perturbation`. Under
  replace by way of the emptied record, (α − ½)/(α − 1)·D_2α + D_(2α−1) (Mironov 2017, Proposition 11).

Formal guarantee
----------------
`curve` is an upper bound on the Rényi divergence, in either direction, between what leaves under any two neighbours.
The conversion to (ε, δ) is that of Canonne, Kamath and Steinke (2020, Proposition 12).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from tacit.boundary import shuffle_amplification
from tacit.boundary.events import (
    DiscreteGaussian,
    Gaussian,
    Laplace,
    Noised,
    PerturbedObjective,
    Pure,
    SampledGaussian,
    SampledSkellam,
    Shuffled,
    Skellam,
    under,
)
from tacit.boundary.shuffle_amplification import Floats
from tacit.guarantee import Relation

#: The orders that costs are computed at: dense near 1, then every integer, then further and further apart.
ORDERS: Floats = np.unique(
    np.concatenate(
        [
            1 + np.geomspace(0.02, 1, 24),
            np.arange(2.1, 12, 0.1),
            np.arange(12.0, 65.0),
            np.rint(np.geomspace(66, 16384, 60)),
        ]
    )
)


def curve(events: Iterable[Noised], relation: Relation, orders: Floats = ORDERS) -> Floats:
    """What the events cost together, at each order. Shape (orders,), float64; infinite where there is no bound."""
    total = np.zeros(len(orders))
    for event in events:
        total += event.count * np.array(_single(replace(event, count=1), relation, tuple(orders.tolist())))
    return total


def epsilon(costs: Floats, delta: float, orders: Floats = ORDERS) -> float:
    """The smallest ε at δ over the orders: ρ + ln(1 − 1/α) − ln(δ·α)/(α − 1)."""
    return max(0.0, float(np.min(costs + overhead(orders, delta))))


def delta(costs: Floats, epsilon: float, orders: Floats = ORDERS) -> float:
    """The smallest δ at ε over the orders."""
    exponents = (orders - 1) * (costs - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return min(1.0, math.exp(min(0.0, float(np.min(exponents)))))


def overhead(orders: Floats, delta: float) -> Floats:
    """What the conversion to (ε, δ) adds to a cost, at each order."""
    return np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)


@lru_cache(maxsize=1024)
def _single(event: Noised, relation: Relation, orders: tuple[float, ...]) -> tuple[float, ...]:
    alpha = np.array(orders)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        match under(event, relation):
            case Gaussian(multiplier=z):
                costs = alpha / 2 / z / z
            case SampledGaussian() as sampled:
                costs = _sampled(sampled.multiplier, sampled.rate, alpha, relation)
            case Skellam() as noise:
                costs = _between_whole_orders(partial(skellam, noise), alpha)
            case SampledSkellam() as sampled_noise:
                costs = sampled_skellam(sampled_noise, alpha, relation)
            case DiscreteGaussian() as shares:
                costs = discrete_gaussian(shares, alpha)
            case Laplace(multiplier=b):
                costs = laplace(1 / b, alpha)
            case Pure(epsilon=e):
                costs = randomised_response(e, alpha)
            case PerturbedObjective() as objective:
                costs = perturbed_objective(objective, alpha, relation)
            case Shuffled(local_epsilon=e, crowd=n):
                costs = shuffle_amplification.renyi(e, n, alpha)
    return tuple(np.maximum(costs, 0.0).tolist())


def skellam(event: Skellam, orders: Floats) -> Floats:
    """Theorem 3.5 of Agarwal, Kairouz and Liu, at whole orders above 1."""
    variance, l1, squared = event.variance, event.l1, event.l2 * event.l2
    fine = ((2 * orders - 1) * squared + 6 * l1) / 4 / variance / variance
    return orders * squared / 2 / variance + np.minimum(fine, 3 * l1 / 2 / variance)


def sampled_skellam(event: SampledSkellam, orders: Floats, relation: Relation) -> Floats:
    """`poisson_sampled`, at any order; no more than the same noise costs where nobody is left out.

    Sampling never adds to a cost: the answers under two neighbours are the same mixture, over who else was sampled and
    over whether the unit was, of pairs that are equal or as far apart as without sampling; divergence is quasi-convex.
    """
    noise = Skellam(event.variance, event.l1, event.l2)

    def whole(alpha: Floats) -> Floats:
        return np.minimum(poisson_sampled(partial(skellam, noise), event.rate, alpha), skellam(noise, alpha))

    once = partial(_between_whole_orders, whole)
    if relation is not Relation.REPLACE:
        return once(orders)
    apart = Skellam(event.variance, 2 * event.l1, 2 * event.l2)
    return np.minimum(_by_the_emptied_record(once, orders), _between_whole_orders(partial(skellam, apart), orders))


def poisson_sampled(bound: Callable[[Floats], Floats], rate: float, orders: Floats) -> Floats:
    """Of symmetric noise over a secret Poisson sample of rate q < 1, from a bound ε(l) on what it costs itself.

    For whole orders α ≥ 2, both directions of zero-out and add/remove, with B binomial of α tries at rate q:

        e^((α−1)·ε′(α)) ≤ Σ_l P(B = l)·e^((l−1)·ε(l)) = 1 + Σ_{l≥2} P(B = l)·(e^((l−1)·ε(l)) − 1)

    All terms are at least 0, and no digits are lost however small they are; it is rounded up by more than logarithms
    can be off. Without symmetry the terms from l = 3 on would count threefold (Zhu and Wang 2019, Theorem 5).

    Proof. Given who else was sampled, and what the unit would add, c, the answers are P₀, the noise moved somewhere,
    and (1 − q)·P₀ + q·P₁ with P₁(x) = P₀(x − c); mixing over both only brings them closer (joint convexity). Let r =
    P₁/P₀. *With against without*: E_P₀ (1 − q + q·r)^α is the sum above, term by term, since E_P₀ r^l is
    e^((l−1)·D_l(P₁‖P₀)). *Without against with*: E_P₀ (1 − q + q·r)^(1−α), which is no larger (Mironov, Talwar and
    Zhang 2019, Theorem 5, for densities). Noise is symmetric, so a reflection ν swaps P₀ and P₁: P₀(νx) = r·P₀(x),
    and r becomes 1/r there. For a pair x, νx with r > 1 put a = 1 − q + q·r = e^s and b = 1 − q + q/r = e^−t; to be
    shown is a^α + r·b^α ≥ a^(1−α) + r·b^(1−α), that is √a·sinh(κs) ≥ r·√b·sinh(κt) with κ = α − ½. ab ≥ 1, so s ≥ t,
    and sinh(κs)/sinh(κt) grows with κ; at κ = ½ both sides are q·(r − 1)/2.
    """
    from scipy.special import gammaln

    hits = np.arange(2.0, int(orders.max()) + 1)
    power = (hits - 1) * bound(hits)
    excess = power + np.log(-np.expm1(-power))
    logs = gammaln(np.arange(1.0, len(hits) + 3))  # ln k! for k = 0, 1, …
    weights = excess + hits * (math.log(rate) - math.log1p(-rate)) - logs[2:]
    room = 1e-9 + 1e-15 * np.maximum.accumulate(np.abs(weights))
    costs = np.empty(len(orders))
    for i, alpha in enumerate(orders.astype(int)):
        terms = weights[: alpha - 1] - logs[alpha - 2 :: -1]
        top = max(float(terms.max()), -1e300)
        total = top + np.log(np.exp(terms - top).sum()) + logs[alpha] + alpha * math.log1p(-rate) + room[alpha - 2]
        costs[i] = np.logaddexp(0.0, total) / (alpha - 1)
    return costs


def discrete_gaussian(event: DiscreteGaussian, orders: Floats) -> Floats:
    """Proposition 14 of Kairouz, Liu and Steinke."""
    k = np.arange(1, min(event.shares, 10_000))
    terms = np.exp(-2 * math.pi**2 * event.variance * k / (k + 1))
    # Past the first few thousand shares every term is at most e^(−2π²σ²·(1 − 10⁻⁴)); the rest is counted as that.
    rest = max(0, event.shares - 10_000) * math.exp(-2 * math.pi**2 * event.variance * 0.9999)
    tau = 10 * (float(terms.sum()) + rest)
    scaled = event.l2 / math.sqrt(event.shares * event.variance)
    both = scaled + tau * math.sqrt(event.dimensions)
    return np.minimum(orders * scaled * scaled / 2 + tau * event.dimensions, orders / 2 * both * both)


def laplace(epsilon: float, orders: Floats) -> Floats:
    """Mironov's Proposition 6, for a shift of ε scales."""
    grows = np.log(orders / (2 * orders - 1)) + (orders - 1) * epsilon
    falls = np.log((orders - 1) / (2 * orders - 1)) - orders * epsilon
    return np.minimum(np.logaddexp(grows, falls) / (orders - 1), epsilon)


def randomised_response(epsilon: float, orders: Floats) -> Floats:
    """ε − ln((1 + e^−ε) / (1 + e^−(2α−1)ε)) / (α − 1)."""
    gain: Floats = np.log1p(np.exp(-epsilon)) - np.log1p(np.exp(-(2 * orders - 1) * epsilon))
    return epsilon - gain / (orders - 1)


def perturbed_objective(event: PerturbedObjective, orders: Floats, relation: Relation) -> Floats:
    """Of N(0, 1) against e^−β·N(1/z, 1) and an outcome of its own; under replace by the weak triangle inequality."""

    def once(alpha: Floats) -> Floats:
        return event.curvature + alpha / 2 / event.multiplier / event.multiplier

    if relation is not Relation.REPLACE:
        return once(orders)
    return _by_the_emptied_record(once, orders)


def _by_the_emptied_record(once: Callable[[Floats], Floats], orders: Floats) -> Floats:
    """Replacing as emptying and filling again, by the weak triangle inequality (Mironov 2017, Proposition 11)."""
    return (orders - 0.5) / (orders - 1) * once(2 * orders) + once(2 * orders - 1)


def _between_whole_orders(bound: Callable[[Floats], Floats], orders: Floats) -> Floats:
    """A bound that holds at whole orders, carried to all: (α − 1)·D_α is convex in α, and 0 at α = 1."""
    low = np.floor(orders)
    share = orders - low
    whole = np.unique(np.concatenate([np.maximum(low, 2.0), low[share > 0] + 1]))
    moments = np.append(0.0, (whole - 1) * bound(whole))
    at_low, above = (moments[np.searchsorted(whole, at, "right")] for at in (low, np.ceil(orders)))
    return np.where(share > 0, (1 - share) * at_low + share * above, at_low) / (orders - 1)


def _sampled(multiplier: float, rate: float, orders: Floats, relation: Relation) -> Floats:
    """Rényi divergences of the sampled Gaussian's neighbours, by the trapezoid rule, in units of the sensitivity.

    Zero-out: (1 − q)·N(0, z²) + q·N(1, z²) against N(0, z²); this direction is the larger (Mironov, Talwar and Zhang
    2019). Replace: q·N(1, z²) against q·N(−1, z²), each with (1 − q)·N(0, z²). It is the worst pair: for
    neighbours with contributions c and c′ of norm ≤ 1 and any set S, the half-space S′ with N(0)(S′) = N(0)(S) has
    N(1)(S′) ≥ N(c)(S) and N(−1)(S′) ≤ N(c′)(S), by Neyman and Pearson; so every divergence is largest there.
    """
    replaced = relation is Relation.REPLACE
    plain: Floats = orders * (2 if replaced else 1) ** 2 / 2 / multiplier**2
    if multiplier < 0.1:
        return plain  # mixing only brings the two closer, and a finer grid would buy nothing worth having
    costs = np.array([_integrated(multiplier, rate, float(alpha), replaced) for alpha in orders])
    smaller: Floats = np.minimum(costs, plain)
    return smaller


def _integrated(z: float, rate: float, alpha: float, replaced: bool) -> float:
    """One order's divergence: ln(1 + ∫ Q·(r^α − 1 − α·(r − 1))) / (α − 1) with r = P/Q, where ∫ Q·(r − 1) = 0."""
    step = min(z / 16, z * z / 2)
    far = (2 * alpha - 1 if replaced else alpha) + 12 * z
    if far / step > 3e5:
        return math.inf
    x = np.arange(-12 * z - 1, far + step, step)
    log_p = _log_mixture(rate, (x - 0.5) / z**2)
    log_q = _log_mixture(rate, (-x - 0.5) / z**2) if replaced else np.zeros_like(x)
    base = -0.5 * (x / z) ** 2 - math.log(z * math.sqrt(2 * math.pi)) + math.log(step) + log_q
    log_r = log_p - log_q
    peak = float(np.max(base + alpha * log_r))
    if peak > 0:
        return (peak + math.log(float(np.exp(base + alpha * log_r - peak).sum())) + 1e-9) / (alpha - 1)
    near = np.minimum(log_r, 600 / alpha)
    excess = np.exp(base) * (np.expm1(alpha * near) - alpha * np.expm1(near))
    excess = np.where(log_r > near, np.exp(base + alpha * log_r), excess)
    return math.log1p(float(excess.sum()) * (1 + 1e-9) + 1e-16) / (alpha - 1)


def _log_mixture(rate: float, ratio: Floats) -> Floats:
    """ln(1 − q + q·e^t): how the mixture stands to N(0) where N(±1) stands to it as e^t."""
    near = np.log1p(rate * np.expm1(np.minimum(ratio, 1.0)))
    return np.where(ratio > 1, np.logaddexp(math.log1p(-rate), math.log(rate) + ratio), near)
