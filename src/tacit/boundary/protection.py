"""What protects a party's releases: the run's terms, and the party's own ledger and budget.

What the ledger's rows spent is added up row by row (`Tally`): admitting a release costs the same after ten rows or ten
thousand. Costs do not depend on the order of events, and `merge` adds up counts, so merging a total with one more event
gives what reading every row again would give. Rows that another process or connection wrote show in SQLite's own count
of such commits; then everything is read again.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from tacit.boundary.events import Event, Merged, Public, count_by_kind, merge
from tacit.boundary.filters import Filter
from tacit.boundary.ledger import Ledger, Row
from tacit.boundary.spec import Terms, times
from tacit.errors import PrivacyRefused
from tacit.guarantee import Guarantee, Relation

#: The relation that a ledger is read under.
ACCOUNTED = Relation.ZERO_OUT
#: By how much a clock may be set back, as time synchronisation does.
SLACK = timedelta(minutes=5)


class BudgetSpent(PrivacyRefused):
    """A party's budget does not cover another release."""


@dataclass(frozen=True)
class Budget:
    """The (ε, δ) that a party allows over its ledger's lifetime, or over the last `days`."""

    epsilon: float
    delta: float
    days: float | None = None


class Spent(NamedTuple):
    """What this run spent, what others did, and what was planned before the ledger's very first release."""

    mine: Merged
    earlier: Merged
    first: tuple[Event, ...]


def clock() -> datetime:
    """This machine's time. A budget for a period trusts it: a clock that is set forward makes releases old."""
    return datetime.now(UTC)


class Tally:
    """What was spent, by this run and by others, as the ledger holds it now.

    Parameters
    ----------
    ledger : whose rows are counted
    run : which of them are this run's
    """

    def __init__(self, ledger: Ledger, run: str) -> None:
        self._ledger, self._run = ledger, run
        self._version: object = None

    def spent(self, days: float | None = None) -> Spent:
        """What was spent so far; with `days`, in the last so many, by this machine's clock, which must go forward."""
        self._look()
        if days is not None and (now := clock()) < (last := max(self._mine.last, self._others.last)) - SLACK:
            raise PrivacyRefused(
                f"{self._ledger.party} refuses: its clock says {now:%Y-%m-%d %H:%M} UTC and its ledger's last release "
                f"is of {last:%Y-%m-%d %H:%M} UTC, so that a budget for {days:g} days cannot be counted; set the clock "
                "right."
            )
        return Spent(self._mine.within(days), self._others.within(days), self._first)

    def made(self) -> Counter[str]:
        """By step, how many releases this run has made, whichever process recorded them."""
        self._look()
        return self._made

    def _look(self) -> None:
        """Add the rows that are new since the last look. The version is read first: what comes after it is new."""
        version = self._ledger.version
        if version != self._version:
            self._version, self._last, self._written = version, 0, -1
            self._mine, self._others = _Pile(), _Pile()
            self._made: Counter[str] = Counter()
            self._first = tuple(self._ledger.first_schedule())
        if self._ledger.written == self._written:
            return
        self._written = self._ledger.written
        for row in self._ledger.rows(after=self._last):
            mine = row.run == self._run
            (self._mine if mine else self._others).add(row)
            self._made[row.step] += mine
            self._last = row.number


class _Pile:
    """Some rows: what all of them spent, and what the recent ones spent."""

    def __init__(self) -> None:
        self._rows: list[tuple[datetime, Event]] = []
        self._all: Merged = ()
        self.last = datetime.min.replace(tzinfo=UTC) + SLACK
        self._young: tuple[list[int], Merged] = ([], ())

    def add(self, row: Row) -> None:
        moment = datetime.fromisoformat(row.moment)
        self.last = max(self.last, moment)
        self._rows.append((moment, row.spent))
        self._all = together(self._all, (row.spent,))

    def within(self, days: float | None) -> Merged:
        if days is None:
            return self._all
        now, most = clock(), timedelta(days=days)
        young = [place for place, (moment, _event) in enumerate(self._rows) if now - moment <= most]
        if young != self._young[0]:
            self._young = young, merge(self._rows[place][1] for place in young)
        return self._young[1]


def together(*parts: Merged | tuple[Event, ...]) -> Merged:
    """Several parts merged into one; None if one of them is."""
    return None if None in parts else _merged(tuple(event for part in parts for event in part or ()))


@lru_cache(maxsize=1024)
def _merged(events: tuple[Event, ...]) -> Merged:
    """`merge`, cached: the parties of a run add up the same events with each release."""
    return merge(events)


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
        now, most = together(self._tally.spent().mine, planned), self._most()
        if now is None or any(count > most[kind] for kind, count in count_by_kind(now).items()):
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
            most.update(count_by_kind(merge([times(self.terms.steps[name].event, releases)]) or ()))
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
        comes after was chosen adaptively and composes by a privacy filter, which shares δ with the first.
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

    For a fixed list of events each is a bound; what was released adaptively is within the budget.
    """
    shapes = {math.inf, math.inf if budget is None else budget}
    return min(_reached(Budget(epsilon, delta), relation, first, spent) for epsilon in shapes)
