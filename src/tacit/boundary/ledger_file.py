"""The file of a ledger: how it is created and opened, and the facts about the whole ledger that it stores.

Every fact, like everything else in the file that no head binds, is under a keyed hash whose key stays at home.
"""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tacit.boundary import sealed_database as files
from tacit.boundary.sealed_database import DATABASE_ERRORS, Transaction, database_error
from tacit.errors import PrivacyRefused, TamperingFound, UsageError
from tacit.guarantee import Relation

FORMAT = "tacit ledger 1"
#: What the table `about` may hold, besides its own keyed hash.
_FACTS = frozenset({"format", "party", "begun", "first", "unit", "people", "refusals", "budget", "budgets"})
#: How many refusals are stored in full; of older ones only the number, so that nobody can fill a disk.
REFUSALS = 50

_SCHEMA = """
create table about (name text primary key, value text not null) strict;
create table releases (
    number integer primary key, moment text not null, run text not null, round integer not null, step text not null,
    attempt integer not null, kind text not null, request text not null, event text not null, payload text not null,
    size integer not null, contributors integer not null, present blob, state text not null, head text not null,
    seal text not null, body blob
) strict;
create table home (one integer primary key check (one = 1), state blob not null) strict;
"""


class LedgerFile:
    """One party's ledger file, opened or created at `path`."""

    _facts_changed = 0
    #: Entered while a commit waits for the disk, so that other threads may compute meanwhile.
    aside: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)

    def __init__(self, path: Path, party: str) -> None:
        self.path, self.party = path, party
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            files.mark_creation(path)
            self._key = files.key_of(path, create=not path.exists())
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(path, 0o600)
        except OSError as error:
            raise UsageError(
                f'The ledger "{path}" cannot be stored there: {error.strerror}; name another folder.'
            ) from None
        try:
            self._database = files.connect(path)
            if not self._database.execute("select 1 from sqlite_master where name = 'about'").fetchone():
                self._begin(marked=True)
            files.clear_mark(path)
            owner = self._about().get("party")
        except DATABASE_ERRORS as error:
            self.close()
            raise database_error(path, error) from None
        except BaseException:
            self.close()
            raise
        if owner != party:
            self._check_facts()
            raise PrivacyRefused(f'The ledger "{path}" belongs to {owner}, not to {party}; name another folder.')

    @classmethod
    def open(cls, path: Path) -> Self:
        """The ledger at `path` for reading only: the party is the one it names, and nothing on disk is changed."""
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f'The ledger "{path}" cannot be read: {error.strerror}; name one that exists.') from None
        if files.half_created(path):
            raise UsageError(
                f'The ledger "{path}" was begun and holds nothing yet; the next start of its run begins it again.'
            )
        ledger = cls.__new__(cls)
        ledger.path, ledger._database = path, files.open_read_only(path)
        try:
            ledger._database.execute("begin")  # one consistent view, whatever a writer does meanwhile
            ledger.party = ledger._about().get("party", path.stem)
            ledger._key = files.key_of(path, create=False)
        except DATABASE_ERRORS as error:
            ledger.close()
            if path.with_suffix(".key").exists():
                raise database_error(path, error) from None
            raise UsageError(
                f'"{path}" is not a ledger, and has no key beside it; name a run folder, or a ledger (….sqlite).'
            ) from None
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _begin(self, marked: bool = False) -> None:
        """Create the tables; with `marked`, only where the mark of a creation lies beside the file."""
        with self._transaction():
            if files.schema_of(self._database):  # another process was faster
                return
            if marked and not files.mark_path(self.path).exists():
                raise TamperingFound(
                    f'The ledger "{self.path}" is gone or was emptied, and its key is still there; put the ledger back.'
                )
            files.create_tables(self._database, _SCHEMA)
            self._write_facts({"format": FORMAT, "party": self.party, "begun": now()})

    def close(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()

    # -- facts about the whole ledger -----------------------------------------------------------------------

    def pinned(self, name: str, value: str) -> str:
        """A fact as it was stored first; `value` becomes it where nothing was stored."""
        stored = self._about().get(name)
        if stored is None:
            self._set_fact(name, value)
        return value if stored is None else stored

    def add_budget(self, epsilon: float, delta: float, days: float | None) -> None:
        """Store the budget that is enforced from now on, with those that were enforced before."""
        known = json.loads(self._about().get("budgets", "[]"))
        if [epsilon, delta, days] not in known:
            self._set_fact("budgets", json.dumps([*known, [epsilon, delta, days]]))

    def refuse(self, run: str, round: int, step: str, request: str, why: str) -> None:
        """Store, durably, that a request was refused: when, which, and why."""
        known = self.refusals()
        refusal = {"moment": now(), "run": run, "round": round, "step": step, "request": request, "why": why}
        latest = [*known["told"], refusal][-REFUSALS:]
        self._set_fact("refusals", json.dumps({"number": known["number"] + 1, "told": latest}, sort_keys=True))

    def refusals(self) -> dict[str, Any]:
        """How many requests were refused because of their content, and the latest of them."""
        stored: dict[str, Any] = json.loads(self._about().get("refusals", '{"number": 0, "told": []}'))
        return stored

    @property
    def relation(self) -> Relation:
        """The relation under which its events are counted."""
        _unit, _comma, relation = self._about().get("unit", "").partition(", ")
        return Relation(relation) if relation else Relation.ZERO_OUT

    def bind_people(self, people: Iterable[str]) -> None:
        """Store whose releases the ledger records, as keyed hashes; a roster without any of them is refused.

        People may join and leave: one who joins is charged what the ledger holds, which is no less than what was
        released of theirs here. With `known_people` a caller that sees several ledgers checks that nobody moves.
        """
        here = set(self._hashed(people))
        known = set(self._about().get("people", "").split())
        if known and here.isdisjoint(known):
            raise PrivacyRefused(
                f"The ledger of {self.party} is for other people; give these another ledger ([privacy] ledger, or join "
                "--state), or divide the users as before."
            )
        if not here <= known:
            self._set_fact("people", " ".join(sorted(here | known)))

    def known_people(self, people: Iterable[str]) -> set[str]:
        """Those of `people` whose releases the ledger records."""
        known, given = set(self._about().get("people", "").split()), list(people)
        return {person for person, hashed in zip(given, self._hashed(given), strict=True) if hashed in known}

    def _hashed(self, people: Iterable[str]) -> list[str]:
        return [hashed[:16] for hashed in files.keyed_hashes(self._key, FORMAT, people)]

    def _about(self) -> dict[str, str]:
        return {str(k): str(v) for k, v in self._database.execute("select name, value from about order by rowid")}

    def _set_fact(self, name: str, value: str) -> None:
        with self._transaction():
            self._write_facts({k: v for k, v in self._about().items() if k not in ("seal", name)} | {name: value})
        self._facts_changed += 1

    def _write_facts(self, facts: Mapping[str, str]) -> None:
        self._database.execute("delete from about")
        self._database.executemany("insert into about values (?, ?)", {**facts, "seal": self._page_seal(facts)}.items())

    def _check_facts(self) -> None:
        about = self._about()
        genuine = about.pop("seal", None) == self._page_seal(about) and about.get("format") == FORMAT
        if not genuine or not {"format", "party", "begun"} <= about.keys() <= _FACTS:
            raise TamperingFound(
                f'The ledger "{self.path}" was changed: its first page is not what {self.party} wrote.'
            )

    def _has_own_tables(self) -> bool:
        return files.schema_of(self._database) == files.expected_schema(_SCHEMA)

    def _seal(self, *values: object) -> str:
        """A keyed hash of some values; the key never leaves."""
        return files.keyed_hash(self._key, FORMAT, *values)

    def _page_seal(self, about: Mapping[str, str]) -> str:
        return self._seal(*(part for name in sorted(about) for part in (name, about[name])))

    def _transaction(self) -> Transaction:
        return Transaction(self.path, self._database, self.aside)


def now() -> str:
    """The time, for people to read."""
    return datetime.now(UTC).isoformat(timespec="seconds")
