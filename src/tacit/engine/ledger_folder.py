"""Checks over a folder of ledgers that no single ledger can make.

A person whose releases are charged to one party and who moves to another would be at zero there, so a run with such a
division is refused. A ledger that was restored from an old copy is consistent in itself, so the last head of each is
stored outside the folder, and the next run looks for it in the chain.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

from tacit import files
from tacit.boundary.events import Noised, merge
from tacit.boundary.ledger import START, Ledger
from tacit.engine.call_log import CallLog
from tacit.errors import PrivacyRefused, TamperingFound, UsageError
from tacit.guarantee import Unit
from tacit.partition import Parties, Setting, Share


def people_of(share: Share) -> list[str]:
    """A party's people, to whom its ledger is bound."""
    return [str(user) for user in share.ratings.user_ids.ids]


def charged_items(share: Share, setting: Setting, unit: Unit) -> list[str]:
    """A party's items, to which its ledger is bound where a rating is charged to the holder of its item."""
    bound = setting is Setting.VERTICAL and unit is Unit.RATING
    return [_item(item) for item in share.ratings.item_ids.ids] if bound else []


def _item(item: object) -> str:
    return f"item {item}"


@contextmanager
def open_ledgers(folder: Path) -> Iterator[list[Ledger]]:
    """Every ledger of a folder, which only this process may use."""
    with ExitStack() as stack:
        paths = sorted(folder.glob("*.sqlite"))
        yield [stack.enter_context(closing(Ledger(path, path.stem))) for path in paths]


def check_division(ledgers: Sequence[Ledger], parties: Parties, unit: Unit, run: str = "") -> None:
    """Refuse a division that gives a party people whose releases are charged in another party's ledger.

    People who join or leave are not refused. Where all parties hold the same users, every ledger is charged for the
    releases of all of them: no ledger of the run's parties may hold less than another one about the same users, except
    for `run`, which goes on.
    """
    charged = [ledger for ledger in ledgers if ledger.charged]
    if not charged:
        return
    vertical = parties.setting is Setting.VERTICAL
    if vertical and unit is Unit.USER:
        _same_everywhere(ledgers, charged, parties, run)
        return
    catalogue = [_item(item) for item in parties.item_ids.ids] if vertical else []
    for share in parties:
        for ledger in charged:
            by_item = vertical and bool(ledger.known_people(catalogue))  # else it was charged for people
            units = charged_items(share, parties.setting, unit) if by_item else people_of(share)
            if ledger.party != share.name and (found := ledger.known_people(units)):
                _refuse(share.name, len(found), "item" if by_item else "person", ledger)


def _same_everywhere(ledgers: Sequence[Ledger], charged: Sequence[Ledger], parties: Parties, run: str) -> None:
    by_party = {ledger.party: ledger for ledger in ledgers}
    for share in parties:
        people = people_of(share)
        mine = by_party[share.name].known_people(people) if share.name in by_party else set()
        for ledger in charged:
            if ledger.party == share.name:
                continue
            theirs = ledger.known_people(people)
            if missing := theirs - mine if ledger.party in parties.names else theirs:
                _refuse(share.name, len(missing), "person", ledger)
            if theirs and _costs(ledger, run) - _costs(by_party[share.name], run):
                raise PrivacyRefused(
                    f'The ledger of {ledger.party} ("{ledger.path}") holds releases about the same users that the one '
                    f"of {share.name} does not, as after an unfinished run; go on with that run (--resume), or store "
                    "the ledgers of this one in another folder."
                )


def _costs(ledger: Ledger, run: str) -> Counter[Noised]:
    """How often each costly event is in a ledger, except for those of one run."""
    spent = merge(row.spent for row in ledger.rows() if row.run != run)
    return Counter({replace(event, count=1): event.count for event in spent or ()})


def _refuse(party: str, number: int, what: str, ledger: Ledger) -> None:
    raise PrivacyRefused(
        f"{party} would hold {number:,} {what}{'' if number == 1 else 's'} with releases in the ledger of "
        f'{ledger.party} ("{ledger.path}"), so that two budgets would count for one; divide the data as before, '
        f"or leave {'it' if what == 'item' else 'them'} out."
    )


class Heads:
    """The last head of every known ledger, over runs, in a file outside the ledgers' folder.

    During a run the file names its log, which has the heads of every finished call, so that they are known after a kill
    too. Two things are not found: releases of a call that a kill ended before it was logged, and an old copy of this
    file that was restored together with the ledgers.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def beside(cls, folder: Path) -> Heads:
        """The heads of a folder's ledgers: next to the folder, so that a restored folder does not contain its own."""
        whole = folder.resolve()
        return cls(whole.parent / f"{whole.name}.heads.json")

    def known(self) -> dict[str, str]:
        """The last heads by name; empty before the first run."""
        if not self.path.exists():
            return {}
        try:
            saved = json.loads(self.path.read_text(encoding="utf-8"))
            heads, who = dict(saved["heads"]), dict(saved["who"])
            logged = {} if saved["log"] is None else self._logged(Path(saved["log"]))
        except (OSError, ValueError, TypeError, KeyError):
            raise TamperingFound(f'"{self.path}" was damaged or changed; restore it.') from None
        return {**heads, **{who.get(name, name): head for name, head in logged.items()}}

    def _logged(self, log: Path) -> dict[str, str]:
        if not log.exists():
            raise TamperingFound(
                f'The log "{log}" of the latest run with these ledgers is missing, so an old copy would not be '
                f'noticed; restore it, or, if that run was removed on purpose, remove "{self.path}" too.'
            )
        with closing(CallLog.open(log)) as calls:
            return calls.heads()

    def begin(self, log: Path | None, who: Mapping[str, str] | None = None) -> None:
        """A run begins: its log counts from now on; `who` maps its parties to the names used here."""
        log = None if log is None else log.absolute()
        self._write({"heads": self.known(), "who": dict(who or {}), "log": None if log is None else str(log)})

    def end(self, heads: Mapping[str, str] | None = None) -> None:
        """A run is over, with these heads or else those of its log."""
        self._write({"heads": {**self.known(), **(heads or {})}, "who": {}, "log": None})

    def _write(self, content: Mapping[str, object]) -> None:
        try:
            files.write(self.path, json.dumps(content, indent=1, sort_keys=True) + "\n")
        except OSError as error:
            raise UsageError(f'The heads of the ledgers cannot be stored in "{self.path}": {error.strerror}.') from None


def latest_heads(ledgers: Sequence[Ledger], heads: Heads) -> dict[str, str]:
    """The heads of ledgers that contain their known head; one that was exchanged meanwhile is left out."""
    known = heads.known()
    chains = {ledger.party: [START, *(row.head for row in ledger.rows())] for ledger in ledgers}
    return {party: chain[-1] for party, chain in chains.items() if known.get(party, START) in chain and len(chain) > 1}


def check_not_restored(ledgers: Sequence[Ledger], heads: Heads) -> None:
    """Raise TamperingFound where a ledger is missing, or does not contain its last known head."""
    known = heads.known()
    for ledger in ledgers:
        ledger.verify(known.pop(ledger.party, None))
    if known:
        raise TamperingFound(
            f"The ledger of {next(iter(known))} is missing, and its releases have left; restore it. To start over "
            f'without them, remove "{heads.path}" too.'
        )
