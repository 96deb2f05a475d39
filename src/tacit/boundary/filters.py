"""A privacy filter: the veto over releases that are chosen one after another.

A run that is started because of what the last one showed is an event chosen adaptively. Composition theorems
for a fixed list then do not apply: privacy loss distributions in particular may understate the cost, because an analyst
can go on exactly where the loss so far is large (Rogers et al. 2016; "Privacy Filters are Captured by Residues", 2026,
shows that the tightest (ε, δ) bound makes no valid filter). Two kinds of sums do make a filter, at no extra cost:
Rényi costs of a fixed order (Feldman and Zrnic 2021; Lécuyer 2021) and μ² of Gaussians (Smith and Thakurta 2022;
Koskela, Tobaben and Honkela 2023).

Several such bounds side by side cost δ. Which of them will hold at the end depends on the answers; but the transcripts
on which the i-th holds are those of an (ε, δ_i)-DP mechanism, and adding over i gives (ε, Σ δ_i). So δ is shared out
before the first release, as a function of the budget and of the first schedule alone:

* what the *first* schedule costs at ε, by the tightest composition; it was fixed beforehand, and holds as long as
  nothing beyond it is released. Where ε leaves room for more than that schedule, this is next to nothing;
* of the rest, some to μ², and the most to the Rényi order that is best for such events at this budget, the remainder
  to orders around it.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tacit.boundary import gdp, renyi
from tacit.boundary.account import merged_delta, merged_epsilon, plain_mu
from tacit.boundary.events import Event, Gaussian, Noised, count_by_kind, merge
from tacit.boundary.shuffle_amplification import Floats
from tacit.errors import UsageError
from tacit.guarantee import Relation

#: The part of δ that is reserved for μ²; plain Gaussians alone are then counted exactly, at that δ.
MU_SHARE = 0.3


class Filter:
    """A veto that keeps all releases together within (ε, δ), however each one was chosen.

    Parameters
    ----------
    epsilon, delta : the budget, for the life of the record. An infinite ε vetoes nothing; `spent` is then a reading.
    relation : zero-out, add/remove or replace; multipliers are as in `account`
    first : the schedule that was fixed before the first release, if there was one; the same at every use of a record

    Formal guarantee
    ----------------
    As long as only events that `admits` accepted are released, each before the next is chosen, everything together is
    (ε, δ)-DP, for adaptively chosen events, parameters and stopping times. `spent` is how much of it is used; it is
    at most ε exactly where the veto would not have fallen, and is a guarantee of its own only for a fixed list.

    >>> from tacit.boundary.events import Gaussian
    >>> veto = Filter(1.0, 1e-6, Relation.ZERO_OUT)
    >>> veto.admits([Gaussian(10.0)], Gaussian(10.0)), veto.admits([Gaussian(10.0)] * 5, Gaussian(10.0))
    (True, False)
    """

    def __init__(self, epsilon: float, delta: float, relation: Relation, first: Sequence[Event] = ()) -> None:
        if not epsilon >= 0:
            raise UsageError(f"A budget of ε = {epsilon} is not possible; give a number of at least 0.")
        if not 0 < delta < 1:
            raise UsageError(f"A budget of δ = {delta} is not possible; give a number between 0 and 1.")
        self.epsilon, self.delta, self.relation = float(epsilon), float(delta), Relation(relation)
        planned = merge(first) or ()
        taken = merged_delta(planned, self.epsilon, self.relation) if self.epsilon < math.inf else 0.0
        # A first schedule that exceeds the budget cannot be relied on; it still says which orders to watch. Its δ at ε
        # and its ε at δ may be bounds of their own: either will do.
        fits = taken <= self.delta or merged_epsilon(planned, self.delta, self.relation) <= self.epsilon
        self._first = count_by_kind(planned) if fits else {}
        left = max(0.0, self.delta - taken) if self._first else self.delta
        self._mu_share = left * MU_SHARE
        self._orders, self._shares = _shared_out(self.epsilon, left, planned, self.relation)
        self._overheads = np.array([_overhead(*pair) for pair in zip(self._orders, self._shares, strict=True)])

    def spent(self, events: Iterable[Event]) -> float:
        """The ε reached: the smallest over the bounds that still hold."""
        together = merge(events)
        if together is None:
            return math.inf
        if not together:
            return 0.0
        if all(count <= self._first.get(event, 0) for event, count in count_by_kind(together).items()):
            return merged_epsilon(together, self.delta, self.relation)
        mu = plain_mu(together, self.relation)
        reached = math.inf if mu is None or self._mu_share <= 0 else gdp.epsilon(self._mu_share, mu)
        costs = renyi.curve(together, self.relation, self._orders)
        return min(reached, max(0.0, float(np.min(costs + self._overheads))))

    def admits(self, spent: Sequence[Event], new: Event) -> bool:
        """Whether `new` may be released after the events in `spent`; an event that is not known is an error."""
        return self.spent([*spent, new]) <= self.epsilon


def _shared_out(
    epsilon: float, delta: float, first: tuple[Noised, ...], relation: Relation
) -> tuple[Floats, list[float]]:
    """The orders that a budget is watched at, and each one's share of δ; functions of what is known beforehand."""
    rest = delta * (1 - MU_SHARE)
    if math.isinf(epsilon):
        orders = np.array([1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 128])
        return orders, [rest / len(orders)] * len(orders)
    candidates = renyi.ORDERS[(renyi.ORDERS >= 1.25) & (renyi.ORDERS <= 4096)]
    overheads = np.array([_overhead(order, rest / 2) for order in candidates])
    typical = renyi.curve(first or (Gaussian(1.0),), relation, candidates)
    best = float(candidates[int(np.argmax((epsilon - overheads) / np.maximum(typical, 1e-300)))])
    # Sampling makes small orders cheap, so that without a schedule to go by more of them are watched.
    spread = np.array([0.5, 0.7, 1.4]) if first else np.array([0.2, 0.3, 0.4, 0.5, 0.64, 0.8, 1.3, 1.8])
    around = np.maximum(1.1, best * spread)
    main = rest * (0.8 if first else 0.25)
    return np.append(best, around), [main] + [(rest - main) / len(around)] * len(around)


def _overhead(order: float, share: float) -> float:
    return float(renyi.overhead(np.array([order]), share)[0]) if share > 0 else math.inf
