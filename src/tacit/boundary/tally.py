"""What a ledger's rows spent, added up row by row: admitting a release costs the same after ten rows or ten thousand.

Costs do not depend on the order of events, and `merge` adds up counts, so merging a total with one more event gives
what reading every row again would give. Rows that another process or connection wrote show in SQLite's own count of
such commits; then everything is read again.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

from tacit.boundary.events import Event, Merged, merge
from tacit.boundary.ledger import Ledger, Row
from tacit.errors import PrivacyRefused

#: By how much a clock may be set back, as time synchronisation does.
SLACK = timedelta(minutes=5)


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
