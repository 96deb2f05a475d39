"""The accountant: what releases cost together, as an ε at a δ, by the tightest route that their events allow.

*Plain Gaussians* alone: exact, by Gaussian differential privacy (`gdp`). With *sampled* Gaussians, Laplace noise, ε-DP
mechanisms or shuffles: privacy loss distributions (`loss_distributions`). With *discrete* noise, Skellam or discrete
Gaussian: Rényi, from the published bounds (`renyi`); and for Skellam noise of a variance of at least 1,000 one of the
routes above, with what its difference from rounded Gaussian noise costs (`skellam_as_gaussian`). *Perturbed objectives*
are plain Gaussians whose losses are all larger by one number, which is added to the ε of everything; under replace they
and all events composed with them go by way of the emptied record: (ε, δ) becomes (2ε, (1 + e^ε)·δ). Every route bounds
the same quantity from above, so where two apply the smaller holds. Public facts cost nothing; data released without a
mechanism costs everything; an unknown event is an error.

Formal guarantee
----------------
If `epsilon(events, delta, relation)` is ε, the events together are (ε, δ)-DP for the unit that their sensitivities are
about, under `relation`, against anyone who sees every release and chooses queries adaptively,
provided that the *list of events* was fixed beforehand. A list that itself depends on answers, such as runs started one
after another, is covered by a `Filter` only. An event's multiplier is noise over what one unit's record can add
(zero-out); `relation = replace` brings in the factor 2 of replacing, here and nowhere else. A *plain* release whose
multiplier was made with a replace sensitivity, twice that, may be accounted for under zero-out instead; a *sampled* one
may not, since then the δ of zero-out can lie below that of replacing.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from tacit.boundary import gdp, loss_distributions, renyi, skellam_as_gaussian
from tacit.boundary.events import (
    DiscreteGaussian,
    Event,
    Gaussian,
    Laplace,
    Merged,
    Noised,
    PerturbedObjective,
    Pure,
    SampledSkellam,
    Shuffled,
    Skellam,
    count_by_kind,
    merge,
    under,
)
from tacit.errors import UsageError
from tacit.guarantee import Relation

#: Orders enough for a bound that another route will undercut.
FEW = renyi.ORDERS[::6]
#: The largest ε whose exponential is a number.
FAR = 700.0
#: Of the costs of prefixes: binary digits of a rounded count, and how much wider the grid of losses is than a plan's.
DIGITS, COARSE = 5, 4.0

#: What is planned: what one release of a step spends, and how many there will be.
Planned = Sequence[tuple[Event, int]]


def epsilon(events: Iterable[Event], delta: float, relation: Relation) -> float:
    """The ε that holds at `delta` for all events together; infinite if data was released without a mechanism.

    >>> from tacit.boundary.events import Gaussian, Public
    >>> round(epsilon([Gaussian(2.0, count=4), Public()], 1e-5, Relation.ZERO_OUT), 4)
    4.3772
    >>> round(epsilon([Gaussian(2.0, count=4)], 1e-5, Relation.REPLACE), 4)
    9.9973
    """
    if not 0 <= delta < 1:
        raise UsageError(f"delta = {delta} is not possible; give a number from 0 up to, but not including, 1.")
    return merged_epsilon(merge(events), float(delta), Relation(relation))


def delta(events: Iterable[Event], epsilon: float, relation: Relation) -> float:
    """The δ that holds at `epsilon` for all events together; 1 if data was released without a mechanism."""
    if not epsilon >= 0:
        raise UsageError(f"epsilon = {epsilon} is not possible; give a number of at least 0.")
    return merged_delta(merge(events), float(epsilon), Relation(relation))


def group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """What (ε, δ) per unit means for `size` units, such as a household: (kε, δ·Σ_{i<k} e^(iε)), δ at most 1."""
    if size < 1:
        raise UsageError(f"A group of {size} is not possible; it has at least 1 unit.")
    if delta == 0 or epsilon == 0:
        return size * epsilon, min(1.0, delta * size)
    spread = math.expm1(size * epsilon) / math.expm1(epsilon) if size * epsilon < FAR else math.inf
    return size * epsilon, min(1.0, delta * spread)


def to_replace(epsilon: float, delta: float) -> tuple[float, float]:
    """(ε, δ) of any mechanism under zero-out or add/remove, as it reads under replace: (2ε, (1 + e^ε)·δ)."""
    return group(epsilon, delta, 2)


# -- along the way -------------------------------------------------------------------------------------------------


def epsilon_after(planned: Planned, made: Sequence[int], delta: float, relation: Relation, points: int = 12) -> float:
    """ε after `made[i]` releases of the i-th planned step, for the progress line.

    Formal guarantee: the ε holds at that δ for the releases made, as a list fixed beforehand: never below the
    accountant's own, and equal to it once all were made. For a run that is stopped early *because of the answers*, the
    ε of the whole schedule holds, or a `Filter`'s.

    What is exact and cheap is computed directly. Elsewhere it is the smaller of two bounds: Rényi's, which is cheap,
    and the exact one at counts rounded up to one of `points` per step, since more releases never cost less. A straight
    line between such points would be too low: ε is concave in the number of releases.
    """
    valid = len(made) == len(planned) and all(0 <= m <= n for m, (_one, n) in zip(made, planned, strict=True))
    if points < 1 or not valid:
        raise UsageError(f"ε after {list(made)} releases of {[n for _one, n in planned]} is not possible.")
    relation, totals = Relation(relation), [n for _one, n in planned]
    now, whole = _spent(planned, made), _spent(planned, totals)
    if not now or whole is None:
        return merged_epsilon(now, delta, relation)
    most = merged_epsilon(whole, delta, relation)
    if delta == 0 or _cheap(whole, relation):
        return min(merged_epsilon(now, delta, relation), most)
    ahead = _spent(planned, [_next_point(m, n, points) for m, n in zip(made, totals, strict=True)])
    exact = most if ahead == whole else merged_epsilon(ahead, delta, relation, 10.0)
    return min(_quick_epsilon(now, delta, relation), exact, most)


def _quick_epsilon(events: tuple[Noised, ...], delta: float, relation: Relation) -> float:
    """Rényi's ε at few orders, by way of rounded Gaussian noise where that is less."""
    bound = renyi.epsilon(renyi.curve(events, relation, FEW), delta, FEW)
    return min(bound, _compared_epsilon(events, delta, relation, bound, _quick_epsilon))


def _spent(planned: Planned, made: Sequence[int]) -> Merged:
    pairs = [(one, m) for (one, _n), m in zip(planned, made, strict=True) if m]
    return merge([replace(one, count=one.count * m) if isinstance(one, Noised) else one for one, m in pairs])


def _next_point(made: int, total: int, points: int) -> int:
    """`made`, rounded up to one of at most `points` numbers up to `total`, in equal ratios as far as integers go."""
    if made == 0 or total <= points:
        return made
    steps = np.unique(np.ceil(np.geomspace(1, total, points) - 1e-9).astype(np.int64))
    return int(steps[np.searchsorted(steps, made)])


def prefix_costs(events: Sequence[Event], delta: float, relation: Relation, first: Iterable[Event] = ()) -> list[float]:
    """ε at δ after each event, of everything up to it as a fixed list; `first` was planned before all of them.

    Formal guarantee: each is at least the ε of its prefix, none is less than the one before it, and none depends on
    what comes after it.

    Plain Gaussians have a closed form. Elsewhere an ε takes tens of milliseconds, so counts are rounded *up* to five
    binary digits, in units of the smallest release of their kind: of n prefixes only some 16·log₂(n) are computed, and
    beyond 31 releases of a kind ε is up to 3 % larger. A prefix of `first` costs at most what all of `first` costs.
    """
    planned = merge(first) or ()
    limit, cost = count_by_kind(planned), merged_epsilon(planned, delta, relation)
    together: Merged = ()
    units: dict[Noised, int] = {}
    reached, now = [], 0.0
    for event in events:
        part = merge([event])
        together = None if together is None or part is None else merge((*together, *part))
        if together is None:
            now = math.inf
        elif part:
            for kind, count in count_by_kind(part).items():
                units[kind] = min(count, units.get(kind, count))
            within = all(count <= limit.get(kind, 0) for kind, count in count_by_kind(together).items())
            now = max(now, min(_rounded_epsilon(together, units, delta, relation), cost if within else math.inf))
        reached.append(now)
    return reached


def _rounded_epsilon(together: tuple[Noised, ...], units: dict[Noised, int], delta: float, relation: Relation) -> float:
    if plain_mu(together, relation) is not None:
        return merged_epsilon(together, delta, relation)
    rounded = (replace(event, count=_rounded_up(event.count, units[replace(event, count=1)])) for event in together)
    return merged_epsilon(tuple(rounded), delta, relation, COARSE)


def _rounded_up(count: int, unit: int) -> int:
    """The count, in units, with at most `DIGITS` binary digits."""
    whole = -(-count // unit)
    step = 1 << max(0, whole.bit_length() - DIGITS)
    return count if step == 1 else -(-whole // step) * step * unit


# -- composition of merged events ----------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def merged_epsilon(events: Merged, delta: float, relation: Relation, coarse: float = 1.0) -> float:
    """ε at δ of merged events, as a fixed list. A `coarse` above 1 is faster, and larger by a little."""
    if not events:
        return math.inf if events is None else 0.0
    if (parted := _without_objectives(events)) is not None:
        if relation is Relation.REPLACE:
            return _replaced_epsilon(events, delta)
        others, shift = parted
        return merged_epsilon(others, delta, relation, coarse) + shift
    pure = _pure_epsilon(events, relation)
    if delta == 0:
        return pure
    if (mu := plain_mu(events, relation)) is not None:
        return gdp.epsilon(delta, mu)
    if _discrete(events):
        bound = renyi.epsilon(renyi.curve(events, relation), delta)
        return min(bound, _compared_epsilon(events, delta, relation, bound, partial(merged_epsilon, coarse=coarse)))
    bound = min(pure, renyi.epsilon(renyi.curve(events, relation, FEW), delta, FEW))
    return min(bound, loss_distributions.epsilon(events, delta, relation, bound, coarse))


@lru_cache(maxsize=4096)
def merged_delta(events: Merged, epsilon: float, relation: Relation) -> float:
    """δ at ε of merged events, as a fixed list."""
    if not events:
        return 1.0 if events is None else 0.0
    if (parted := _without_objectives(events)) is not None:
        if relation is Relation.REPLACE:
            return min(_replaced_delta(events, epsilon), renyi.delta(renyi.curve(events, relation), epsilon))
        others, shift = parted
        return _delta_at_any(others, epsilon - shift, relation)
    if epsilon >= _pure_epsilon(events, relation):
        return 0.0
    if (mu := plain_mu(events, relation)) is not None:
        return gdp.delta(epsilon, mu)
    if _discrete(events):
        bound = renyi.delta(renyi.curve(events, relation), epsilon)
        return min(bound, _compared_delta(events, epsilon, relation))
    costs = renyi.curve(events, relation, FEW)
    bound = renyi.delta(costs, epsilon, FEW)
    return min(bound, loss_distributions.delta(events, epsilon, relation, renyi.epsilon(costs, 1e-6, FEW)))


def plain_mu(events: tuple[Noised, ...], relation: Relation) -> float | None:
    """μ if all events are plain Gaussians, else None."""
    gaussians = [event for event in (under(event, relation) for event in events) if isinstance(event, Gaussian)]
    return gdp.mu_of(gaussians) if len(gaussians) == len(events) else None


def _discrete(events: tuple[Noised, ...]) -> bool:
    """Whether an event has discrete noise."""
    return any(isinstance(event, Skellam | SampledSkellam | DiscreteGaussian) for event in events)


def _cheap(events: tuple[Noised, ...], relation: Relation) -> bool:
    """Whether no privacy loss distribution is needed."""
    compared = skellam_as_gaussian.with_gaussians(events, relation)
    seen = events if compared is None else merge(compared[0]) or ()
    return _discrete(seen) or plain_mu(seen, relation) is not None


def _compared_epsilon(
    events: tuple[Noised, ...],
    delta: float,
    relation: Relation,
    bound: float,
    cost: Callable[[tuple[Noised, ...], float, Relation], float],
) -> float:
    """ε at δ by way of rounded Gaussian noise, ε(δ′) + 2η; infinite where that does not apply. `bound` is an ε that
    holds: of an ε below it, (1 + e^ε)·τ is less than `SHARE` of δ, which δ′ = (1 − SHARE)·δ·e^−η leaves room for."""
    compared = skellam_as_gaussian.with_gaussians(events, relation)
    if compared is None or not bound < FAR:
        return math.inf
    log_tau = math.log(skellam_as_gaussian.SHARE * delta) - float(np.logaddexp(0.0, bound))
    eta = skellam_as_gaussian.slack(compared[1], log_tau)
    if 2 * eta >= bound:
        return math.inf
    left = delta * (1 - skellam_as_gaussian.SHARE) * math.exp(-eta)
    return cost(merge(compared[0]) or (), left, relation) + 2 * eta


def _compared_delta(events: tuple[Noised, ...], epsilon: float, relation: Relation) -> float:
    """δ at ε by way of rounded Gaussian noise, e^η·δ(ε − 2η) + (1 + e^ε)·τ; 1 where that does not apply."""
    compared = skellam_as_gaussian.with_gaussians(events, relation)
    if compared is None or epsilon > FAR:
        return 1.0
    gaussians = merge(compared[0])
    least, found = merged_delta(gaussians, epsilon, relation), 1.0
    for _ in range(3):  # τ in proportion to what was found; any τ holds
        spent = skellam_as_gaussian.SHARE * least
        if spent == 0:
            break
        eta = skellam_as_gaussian.slack(compared[1], math.log(spent) - float(np.logaddexp(0.0, epsilon)))
        if 2 * eta > epsilon:
            break
        least = math.exp(eta) * merged_delta(gaussians, epsilon - 2 * eta, relation) + spent
        found = min(found, least)
    return found


def _pure_epsilon(events: tuple[Noised, ...], relation: Relation) -> float:
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


def _without_objectives(events: tuple[Noised, ...]) -> tuple[Merged, float] | None:
    """Perturbed objectives as the plain Gaussians in them, and what their curvature adds to ε; None if there are none.

    Formal guarantee: under zero-out and add/remove, δ(ε) of the events is at most that of the ones returned at
    ε − shift, for every ε. `tacit.boundary.objective_perturbation` proves that N(0, 1) against
    e^−β·N(μ, 1) + (1 − e^−β)·⊥, where ⊥ is an extra outcome, dominates one perturbed objective of curvature β; and
    a shift of every loss by β commutes with composition.
    """
    objectives = [event for event in events if isinstance(event, PerturbedObjective)]
    if not objectives:
        return None
    others = [event for event in events if not isinstance(event, PerturbedObjective)]
    gaussians = [Gaussian(event.multiplier, event.count) for event in objectives]
    return merge([*others, *gaussians]), math.fsum(event.count * event.curvature for event in objectives)


def _delta_at_any(events: Merged, at: float, relation: Relation) -> float:
    """δ at any real ε: below 0, δ(ε) = 1 − e^ε·(1 − δ(−ε)), the same two neighbours in the other order."""
    if at >= 0:
        return merged_delta(events, at, relation)
    return 1 - math.exp(at) * (1 - merged_delta(events, -at, relation))


def _replaced_delta(events: tuple[Noised, ...], epsilon: float) -> float:
    """δ at ε under replace by way of the emptied record, for any events: (1 + e^(ε/2))·δ(ε/2)."""
    half = merged_delta(events, epsilon / 2, Relation.ZERO_OUT)
    if half == 0 or epsilon / 2 > FAR:
        return math.ceil(half)
    return min(1.0, half * (1 + math.exp(epsilon / 2)))


def _replaced_epsilon(events: tuple[Noised, ...], wanted: float) -> float:
    """ε at δ under replace: where `_replaced_delta` comes down to δ, from above; or Rényi's, if that is less."""
    if wanted == 0:
        return math.inf
    bound = renyi.epsilon(renyi.curve(events, Relation.REPLACE), wanted)
    high = min(bound, 2 * FAR)
    if _replaced_delta(events, high) > wanted:
        return bound
    return gdp.crossing(lambda epsilon: _replaced_delta(events, epsilon) <= wanted, 0.0, high, 1e-9)
