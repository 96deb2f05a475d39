"""Amplification by shuffling: what one report reveals once it is mixed with those of a crowd.

Each of n distinct, honest devices sends one ε₀-LDP report through a shuffler. Feldman, McMillan and Talwar ("Hiding
Among the Clones", FOCS 2021, Theorem 3.1 and its proof) show that whatever the randomiser, an observer learns no more
about one device than from a pair (P, Q) of distributions of two counts:

    C ~ Bin(n − 1, e^−ε₀)        how many others happen to look like a clone of this device
    A ~ Bin(C, ½)                how many of those look like its first value, rather than its second
    P: (A + Δ, C − A + 1 − Δ),   Q: (A + 1 − Δ, C − A + Δ),   Δ ~ Bernoulli(e^ε₀ / (e^ε₀ + 1))

Formal guarantee
----------------
Relation: replace, the device's record by any other; an emptied record is one of those, so the numbers cover zero-out
too, as long as a device with an empty record reports like the others. Add/remove is not covered: the number of reports
is seen. Because (P, Q) dominates every ε₀-LDP report, k shuffles are dominated by k independent copies of it, also when
each round's randomiser depends on what came before (Zhu, Dong and Wang 2022, on dominating pairs). The numerical bound
needs no precondition and never exceeds ε₀; it is tighter than the theorem's closed form.

The sharper bounds of "Stronger Privacy Amplification by Shuffling" (SODA 2023) are not used: by the authors' errata
(arXiv 2208.04591) its general theorems, 3.1 and 3.2, hold for a restricted class of randomisers only, and an event does
not name its own.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from tacit.errors import UsageError

Floats = np.ndarray[Any, np.dtype[np.float64]]
Integers = np.ndarray[Any, np.dtype[np.int64]]

#: Above this ε₀ a report hides nothing, and e^ε₀ overflows.
LARGEST_EPSILON = 500.0
#: How many groups of C, and how many points of ε, a numerical bound looks at.
GROUPS, POINTS = 256, 400


def delta(local_epsilon: float, crowd: int, epsilons: Floats) -> Floats:
    """δ(ε) of one shuffle at each ε ≥ 0: the hockey-stick divergence of (P, Q), rounded up. Shape as `epsilons`.

    Given C = c the likelihood ratio at a of c + 1 grows with a, so that the best set is a tail:
    δ_c(ε) = P_c(a > k) − e^ε·Q_c(a > k) with k = ⌊β·(c + 1)⌋ and β where the ratio meets e^ε. δ_c falls in c, since
    one more clone is a coin thrown on top; so a group of values of C counts as its smallest.
    """
    from scipy.stats import binom

    _check(local_epsilon, crowd)
    if local_epsilon > LARGEST_EPSILON:
        return np.where(epsilons >= local_epsilon, 0.0, 1.0)
    ends, weights = _clones(local_epsilon, crowd)
    truth = 1 / (1 + math.exp(-local_epsilon))  # the probability that Δ = 1
    lie = math.exp(-local_epsilon) * truth  # 1 − truth would lose its digits where ε₀ is large
    inside = np.clip(epsilons, 0, local_epsilon)[:, None]
    ratio = np.exp(inside)
    meets = (truth * ratio - lie) / ((truth - lie) * (1 + ratio)) if truth > lie else np.ones_like(ratio)
    k = np.minimum(np.floor(meets * (ends + 1) * (1 + 1e-14)), ends)  # a tail past c + 1 would be empty
    above, at = binom.sf(k, ends, 0.5), binom.pmf(k, ends, 0.5)
    tail = (truth - ratio * lie) * at - (ratio - 1) * above
    total: Floats = (np.clip(tail, 0, 1) @ weights) * (1 + 1e-9)
    return np.where(epsilons >= local_epsilon, 0.0, np.minimum(total, 1.0))


@lru_cache(maxsize=64)
def profile(local_epsilon: float, crowd: int, interval: float) -> tuple[Integers, Floats]:
    """Points ε_i = i·interval across [−ε₀, ε₀] and δ(ε_i), for a privacy loss distribution by connecting dots.

    Below 0 the pair's symmetry gives δ(−ε) = 1 − e^−ε·(1 − δ(ε)). The loss never exceeds ε₀: δ is 0 there.
    """
    _check(local_epsilon, crowd)
    top = math.ceil(local_epsilon / interval)
    typical = 16 * math.tanh(local_epsilon / 2) / math.sqrt(1 + crowd * math.exp(-local_epsilon))
    near = np.linspace(0, min(local_epsilon, typical), POINTS) / interval
    far = np.linspace(0, top, POINTS // 4)
    index = np.unique(np.rint(np.concatenate([near, far])).astype(np.int64))
    upper = np.minimum.accumulate(delta(local_epsilon, crowd, index * interval))
    lower = -np.expm1(-index[1:] * interval) + np.exp(-index[1:] * interval) * upper[1:]
    return np.concatenate([-index[:0:-1], index]), np.concatenate([lower[::-1], upper])


def renyi(local_epsilon: float, crowd: int, orders: Floats) -> Floats:
    """Rényi divergences of one shuffle, of the distribution that connects the dots, which dominates (P, Q)."""
    from scipy.special import logsumexp

    index, deltas = profile(local_epsilon, crowd, interval := 1e-4)
    at, steps, falls = index * interval, np.diff(index * interval), np.diff(deltas)
    # Doroshenko et al. 2022, Algorithm 1: the mass at ε_i from the slopes of δ on either side of it.
    mass = np.append(1 - deltas[0], falls / np.expm1(-steps)) + np.append(falls / np.expm1(steps), 0.0)
    at, mass = at[mass > 0], mass[mass > 0]
    moments: Floats = logsumexp((orders[:, None] - 1) * at + np.log(mass), axis=1)
    return np.clip(moments / (orders - 1), 0.0, local_epsilon)


def _clones(local_epsilon: float, crowd: int) -> tuple[Floats, Floats]:
    """Groups of values of C: the smallest value of each, and its probability."""
    from scipy.stats import binom

    others, chance = crowd - 1, math.exp(-local_epsilon)
    mean = others * chance
    low = max(0, math.floor(mean - math.sqrt(90 * mean)))  # Chernoff: less than e^−45 lies below
    high = min(others, math.ceil(mean + 6 * math.sqrt(mean) + 6))
    ends = np.unique(np.concatenate([[0], np.rint(np.linspace(low, high, GROUPS))]))
    reached = np.append(binom.sf(ends - 1, others, chance), 0.0)
    return ends, -np.diff(reached)


def _check(local_epsilon: float, crowd: int) -> None:
    if not (0 <= local_epsilon < math.inf):
        raise UsageError(f"A report's ε₀ = {local_epsilon} is not possible; it must be a number of at least 0.")
    if crowd < 1:
        raise UsageError(f"A crowd of {crowd} is not possible; it counts the distinct honest devices, at least 1.")
