"""What protects a party's releases: the run's terms, and the party's own ledger and budget."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tacit.boundary.events import Event, Merged, Public
from tacit.boundary.filters import Filter
from tacit.boundary.ledger import Ledger, Row
from tacit.boundary.spec import Terms, times
from tacit.boundary.tally import Tally, together
from tacit.errors import PrivacyRefused
from tacit.guarantee import Guarantee, Relation

#: The relation that a ledger is read under.
ACCOUNTED = Relation.ZERO_OUT


class BudgetSpent(PrivacyRefused):
    """A party's budget does not cover another release."""


@dataclass(frozen=True)
class Budget:
    """The (ε, δ) that a party allows over its ledger's lifetime, or over the last `days`."""

    epsilon: float
    delta: float
    days: float | None = None


@dataclass
class Protection:
    """One party's protection in one run.

    Guarantee
    ---------
    Every noisy answer is the answer of the step's query plus N(0, (z·Δ)²) on every cell, Δ being the sensitivity that
    this query enforces for the run's unit and relation; or, in sums of integers, Skellam noise as the step's `Grid`
    says, of which this party adds all or its share. Releases beyond those that the noise was calibrated for are
    refused, so the guarantee of the terms covers everything in this run; what left in earlier runs is composed by a
    privacy filter, and a release that would exceed the party's own budget is refused whatever the coordinator says. A
    release is charged what it costs one unit over all parties that the unit is in, so that the ledger of each of these
    parties alone shows what its users have spent in the run.
    """

    terms: Terms
    ledger: Ledger
    budget: Budget
    run: str
    people: Sequence[str] = ()
    _tally: Tally = field(init=False)
    _held: bool = False

    def __post_init__(self) -> None:
        self.ledger.verify()
        self.ledger.note("unit", f"{self.terms.unit}, {self.terms.relation}", "is for another unit or relation")
        if self.people:
            self.ledger.bind_people(self.people)
        self.ledger.first_schedule(self.terms.events)
        self._tally = Tally(self.ledger, self.run)

    @property
    def simulated(self) -> bool:
        """Whether the guarantee says SIMULATED: only then may anything private come from a seed."""
        return isinstance(self.terms.guarantee, Guarantee) and self.terms.guarantee.simulated

    # -- the veto ---------------------------------------------------------------------------------------------

    def admit(self, step: str) -> None:
        """Refuse a release that was not planned, or that the party's budget does not cover.

        Sealed sums that failed may be requested again: as often as the run's retries allow, all together.
        """
        terms, made = self.terms.steps.get(step), self._tally.made()  # by any process
        covered = 0 if terms is None else terms.spec.releases
        if terms is not None and terms.retried:
            others = [t for t in self.terms.steps.values() if t.retried and t.spec.step != step]
            spare = self.terms.retries - sum(max(0, made[t.spec.step] - t.spec.releases) for t in others)
            covered += max(0, spare)
        if made[step] >= covered:
            raise PrivacyRefused(
                f'{self.ledger.party} was requested to make release {made[step] + 1} of step "{step}", and the '
                f"run's guarantee covers {covered}; nothing was released."
            )
        planned = () if terms is None else (terms.event,)
        now, most = _counts(together(self._tally.spent().mine, planned)), self._most()
        if now is None or any(count > most[kind] for kind, count in now.items()):
            raise PrivacyRefused(
                f'{self.ledger.party} was requested to release more in step "{step}" than the run\'s guarantee covers; '
                "nothing was released."
            )
        self.check_budget()
        if not self._held:  # a run that is refused leaves no budget in the ledger
            self.ledger.add_budget(self.budget.epsilon, self.budget.delta, self.budget.days)
            self._held = True

    def _most(self) -> Counter[Event]:
        """How many answers of each kind the run's terms include: rows beyond that were spent under other terms."""
        most: Counter[Event] = Counter()
        for name, releases in self.terms.releases.items():
            most.update(_counts(together((times(self.terms.steps[name].event, releases),))) or {})
        return most

    def check_budget(self) -> None:
        """Refuse a run that the party's budget does not cover, before anything of it is released or recorded."""
        reached = self.would_reach()
        if reached > self.budget.epsilon * (1 + 1e-9):
            span = "" if self.budget.days is None else f" in {self.budget.days:g} days"
            needed = self._needed()
            raise BudgetSpent(
                f"{self.ledger.party} refuses: this run would take it to ε = {needed:.3f}{span}, and its budget is "
                f"{self.budget.epsilon:g}; raise it ([privacy] budget, or --max-epsilon), or ask for a smaller epsilon."
            )

    def _needed(self) -> float:
        """About the smallest budget that would cover this run too; a filter is tight near its own budget only."""
        spent = self._tally.spent(self.budget.days)
        planned = together(spent.earlier, self.terms.events)
        if planned is None:
            return math.inf
        low, high = self.budget.epsilon, 2 * self.budget.epsilon

        def covers(epsilon: float) -> bool:
            return _reached(replace(self.budget, epsilon=epsilon), self.terms.relation, spent.first, planned) <= epsilon

        while not covers(high) and high < 1e6:
            low, high = high, 2 * high
        for _ in range(12):
            middle = (low + high) / 2
            low, high = (low, middle) if covers(middle) else (middle, high)
        return high

    def reading(self) -> float:
        """ε over everything in the ledger so far; at most the budget, where that is for the ledger's lifetime."""
        spent = self._tally.spent()
        all_of_it, budget = together(spent.earlier, spent.mine), self.budget
        if all_of_it is None:
            return math.inf
        return _reading(budget.epsilon, budget.delta, self.terms.relation, spent.first, all_of_it)

    def would_reach(self) -> float:
        """ε over everything that counts towards the budget, at its δ, as if this run were done.

        The ledger's first schedule was fixed before its first release, and the tightest composition holds for it. What
        comes after was chosen in the light of answers and composes by a privacy filter, which shares δ with the first.
        """
        spent = self._tally.spent(self.budget.days)
        all_of_it = together(spent.earlier, self.terms.events)
        return math.inf if all_of_it is None else _reached(self.budget, self.terms.relation, spent.first, all_of_it)


@lru_cache(maxsize=1024)
def _reached(budget: Budget, relation: Relation, first: tuple[Event, ...], spent: tuple[Event, ...]) -> float:
    """ε by a filter that shares the budget's δ with a first schedule: a function of these four, computed once."""
    return Filter(budget.epsilon, budget.delta, relation, first).spent(spent)


def total_epsilon(
    rows: Sequence[Row], delta: float, relation: Relation = ACCOUNTED, budget: float | None = None
) -> float:
    """ε of a ledger's rows, for a reader: tight for the first run, whose schedule was fixed, by a filter beyond it.

    With the `budget` that was enforced it is the better of two readings, as `Protection.reading` is.
    """
    costly = [row for row in rows if not isinstance(row.spent, Public)]
    first = together(tuple(row.spent for row in costly if row.run == costly[0].run))
    spent = together(tuple(row.spent for row in rows))
    return math.inf if first is None or spent is None else _reading(budget, delta, relation, first, spent)


def _reading(
    budget: float | None, delta: float, relation: Relation, first: tuple[Event, ...], spent: tuple[Event, ...]
) -> float:
    """The better of what two filters read: one that no budget shapes, and that of the budget, which is tight near it.

    For a fixed list of events each is a bound; what was released in the light of answers is within the budget.
    """
    shapes = {math.inf, math.inf if budget is None else budget}
    return min(_reached(Budget(epsilon, delta), relation, first, spent) for epsilon in shapes)


def _counts(events: Merged) -> dict[Event, int] | None:
    """How often each kind of answer is among merged events; None if one of them protects nothing."""
    return None if events is None else {replace(event, count=1): event.count for event in events}
