"""The ledger: a party's durable record of what it released and what that cost. It outlives runs.

One SQLite file a party, with a key file beside it. A release is one row, written together with the answer's bytes and
the party's state in one transaction that is synced *before* the bytes leave; so after a crash the budget is spent,
never forgotten, and the same request is answered with the same bytes.

Rows are chained: head_i = SHA-256(head_{i−1}, event, request hash, payload hash). The head travels with every answer,
so that a shortened or restored ledger is found by whoever kept an earlier head. Everything else in a row, and the
party's state, is bound by a keyed hash that stays at home: a plain hash of private factors would itself be a release.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

from tacit.boundary.answered import Answered
from tacit.boundary.creation_mark import lay_mark, lift_mark, mark, only_begun
from tacit.boundary.events import Event, Public, from_json, to_json
from tacit.boundary.wire import digest
from tacit.errors import PrivacyRefused, TamperingFound, UsageError
from tacit.guarantee import Relation

FORMAT = "tacit ledger 1"
#: Bytes. An answer's hundreds of kilobytes fill few such pages, and a small one wastes little.
PAGE_SIZE = 16384
#: What may stand on the first page, beside its seal.
_PAGE = frozenset({"format", "party", "begun", "first", "unit", "people", "refusals", "budget", "budgets"})
#: How many refusals are told in full; of older ones only the number is kept, so that nobody can fill a disk.
TOLD = 50
START = hashlib.sha256(FORMAT.encode()).hexdigest()
#: What SQLite says of a disk, or of others who use it, and not of what is on it.
_OUTSIDE = frozenset(
    {getattr(sqlite3, f"SQLITE_{what}") for what in ("BUSY", "LOCKED", "READONLY", "IOERR", "FULL", "CANTOPEN")}
)
#: What comes of a database that is damaged; SQLite's own words about it may then not be text either.
UNREADABLE = (sqlite3.DatabaseError, UnicodeDecodeError)

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
_ROW = (
    "number, moment, run, round, step, attempt, kind, request, event, payload, size, contributors, present, state, head"
)


@dataclass(frozen=True)
class Row:
    """One release, as the ledger keeps it; `present` are the devices of a cohort that took part, as packed bits."""

    number: int
    moment: str
    run: str
    round: int
    step: str
    attempt: int
    kind: str
    request: str
    event: str
    payload: str
    size: int
    contributors: int
    present: bytes | None
    state: str
    head: str

    @property
    def spent(self) -> Event:
        return _parsed(self.event)


def next_head(previous: str, event: str, request: str, payload: str) -> str:
    """The head after one more row; whoever knows the parts can check it, and all of them have left anyway."""
    return hashlib.sha256("|".join((FORMAT, previous, event, request, payload)).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _parsed(line: str) -> Event:
    """The event that `canonical` wrote."""
    return from_json(json.loads(line))


def canonical(event: Event) -> str:
    """An event as one line of JSON."""
    return _LINE.encode(to_json(event))


#: `json.dumps` would make it anew for every row.
_LINE = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class Ledger:
    """One party's ledger, opened or begun at `path`."""

    _turned = 0
    #: How many rows were written here; others' are in `version`.
    written = 0
    #: The state that was sealed last, and its seal: one that stays the same is compared sooner than sealed.
    _state: tuple[bytes | None, str] = (None, "")
    #: Entered while a commit waits for the disk: whoever computes may go on meanwhile.
    aside: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)

    def __init__(self, path: Path, party: str) -> None:
        self.path, self.party = path, party
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            lay_mark(path)
            self._key = _key_beside(path, new=not path.exists())
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite gives its -wal and -shm the same mode
            os.chmod(path, 0o600)
        except OSError as error:
            raise UsageError(
                f'The ledger "{path}" cannot be kept there: {error.strerror}; name another folder.'
            ) from None
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.text_factory = readable
        try:
            self._database.execute(f"pragma page_size = {PAGE_SIZE}")  # of a file that is still empty
            self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma synchronous = full")
            self._database.execute(f"pragma wal_autocheckpoint = {2**22 // PAGE_SIZE}")  # 4 MB, as by default
            if not self._database.execute("select 1 from sqlite_master where name = 'about'").fetchone():
                self._begin(marked=True)
            lift_mark(path)
            owner = self._about().get("party")
        except UNREADABLE as error:
            self._database.close()
            raise unreadable(path, error) from None
        except BaseException:
            self._database.close()
            raise
        if owner != party:
            self._check_first_page()
            raise PrivacyRefused(f'The ledger "{path}" belongs to {owner}, not to {party}; name another folder.')

    @classmethod
    def open(cls, path: Path) -> Ledger:
        """The ledger at `path` for reading alone: its party is whom it names, and nothing on disk is changed."""
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f'The ledger "{path}" cannot be read: {error.strerror}; name one that is there.') from None
        if only_begun(path, read_only):
            raise UsageError(
                f'The ledger "{path}" was begun and holds nothing yet; the next start of its run begins it again.'
            )
        ledger = cls.__new__(cls)
        ledger.path, ledger._database = path, read_only(path)
        try:
            ledger._database.execute("begin")  # one moment's view, whatever a writer does meanwhile
            ledger.party = ledger._about().get("party", path.stem)
            ledger._key = _key_beside(path, new=False)
        except UNREADABLE as error:
            ledger.close()
            if path.with_suffix(".key").exists():
                raise unreadable(path, error) from None
            raise UsageError(
                f'"{path}" is not a ledger, and has no key beside it; name a run folder, or a ledger (….sqlite).'
            ) from None
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _begin(self, marked: bool = False) -> None:
        """Make the tables and the first page; `marked` ones only where the mark of a beginning lies beside them."""
        with self._transaction():
            if layout(self._database):  # another process was faster
                return
            if marked and not mark(self.path).exists():
                raise TamperingFound(
                    f'The ledger "{self.path}" is gone or was emptied, and its key is still there; put the ledger back.'
                )
            for statement in filter(str.strip, _SCHEMA.split(";")):
                self._database.execute(statement)
            about = {"format": FORMAT, "party": self.party, "begun": _now()}
            about["seal"] = self._page_seal(about)
            self._database.executemany("insert into about values (?, ?)", about.items())

    def close(self) -> None:
        self._database.close()

    # -- reading ----------------------------------------------------------------------------------------------

    @cached_property
    def _answered(self) -> Answered:
        return Answered(self._database)

    @property
    def version(self) -> tuple[int, int]:
        """Another one than before if another connection wrote meanwhile, or the first page was turned."""
        return int(self._database.execute("pragma data_version").fetchone()[0]), self._turned

    def rows(self, after: int = 0) -> list[Row]:
        """Every release, or those after number `after`, oldest first."""
        query = f"select {_ROW} from releases where number > ? order by number"
        return [Row(*values) for values in self._database.execute(query, (after,))]

    @property
    def head(self) -> str:
        """The chain's head; `START` where nothing was released yet."""
        return self._latest()[1]

    def _latest(self) -> tuple[int, str, str]:
        """Number, head and the state's seal of the latest row; 0, `START` and nothing before the first."""
        found = self._database.execute("select number, head, state from releases order by number desc limit 1")
        number, head, state = found.fetchone() or (0, START, "")
        return int(number), str(head), str(state)

    def events(self) -> list[Event]:
        """What was spent, oldest first."""
        return [row.spent for row in self.rows()]

    def answered(self, request: str) -> tuple[Row, bytes | None] | None:
        """The latest row of a request that was answered before, with the answer's bytes if it is the latest of all."""
        if not self._answered.request(request):
            return None
        query = f"select {_ROW}, body from releases where request = ? order by number desc limit 1"
        found = self._database.execute(query, (request,)).fetchone()
        return None if found is None else (Row(*found[:-1]), found[-1])

    def another(self, run: str, round: int, step: str, attempt: int, request: str) -> bool:
        """Whether the same step of the same round was answered for other terms."""
        if not self._answered.place(run, round, step, attempt):
            return False
        query = "select 1 from releases where run = ? and round = ? and step = ? and attempt = ? and request != ?"
        return self._database.execute(query, (run, round, step, attempt, request)).fetchone() is not None

    def first_schedule(self, planned: Sequence[Event] = ()) -> list[Event]:
        """What was planned before the first release that cost anything; `planned` becomes it where there was none."""
        lines = json.dumps([to_json(event) for event in planned], sort_keys=True)
        if planned and self._about().get("first") != lines and not self.charged:
            self._turn_page("first", lines)
        found = self._about().get("first")
        return [] if found is None else [from_json(table) for table in json.loads(found)]

    def note(self, name: str, value: str, otherwise: str) -> None:
        """Keep a fact about the whole ledger once; another value later is refused with the words of `otherwise`."""
        kept = self._about().get(name)
        if kept is None and not self.charged:
            self._turn_page(name, value)
        elif kept != value:
            raise PrivacyRefused(f'The ledger "{self.path}" {otherwise}; name another folder with [privacy] ledger.')

    def pinned(self, name: str, value: str) -> str:
        """A fact about the whole ledger, as it was kept first; `value` becomes it where nothing was kept."""
        kept = self._about().get(name)
        if kept is None:
            self._turn_page(name, value)
        return value if kept is None else kept

    def held_to(self, epsilon: float, delta: float, days: float | None) -> None:
        """Keep which budget the veto holds the ledger to from now on, beside those that it was held to before."""
        known = json.loads(self._about().get("budgets", "[]"))
        if [epsilon, delta, days] not in known:
            self._turn_page("budgets", json.dumps([*known, [epsilon, delta, days]]))

    @property
    def charged(self) -> bool:
        """Whether anything was released that costs; facts that do not may come before all else is settled."""
        return any(not isinstance(event, Public) for event in self.events())

    def refuse(self, run: str, round: int, step: str, request: str, why: str) -> None:
        """Keep that a request was refused, durably: when, which, and why."""
        known = self.refusals()
        told = [
            *known["told"],
            {"moment": _now(), "run": run, "round": round, "step": step, "request": request, "why": why},
        ]
        self._turn_page("refusals", json.dumps({"number": known["number"] + 1, "told": told[-TOLD:]}, sort_keys=True))

    def refusals(self) -> dict[str, Any]:
        """How many requests were refused for what they asked, and the latest of them."""
        kept: dict[str, Any] = json.loads(self._about().get("refusals", '{"number": 0, "told": []}'))
        return kept

    @property
    def relation(self) -> Relation:
        """The relation that its events are counted under, as its first page says."""
        _unit, _comma, relation = self._about().get("unit", "").partition(", ")
        return Relation(relation) if relation else Relation.ZERO_OUT

    def bind_people(self, people: Iterable[str]) -> None:
        """Keep whom the ledger speaks for, as keyed hashes; a roster without anybody of those is refused.

        People may come and go: whoever joins is charged what the ledger holds, which is no less than what left of
        theirs here. That nobody comes from another ledger is for whoever sees both to check, with `bound`.
        """
        here = set(self._hashed(people))
        kept = set(self._about().get("people", "").split())
        if kept and here.isdisjoint(kept):
            raise PrivacyRefused(
                f"The ledger of {self.party} was kept for other people; give these a ledger of their own ([privacy] "
                "ledger, or join --state), or divide the users as before."
            )
        if not here <= kept:
            self._turn_page("people", " ".join(sorted(here | kept)))

    def bound(self, people: Iterable[str]) -> set[str]:
        """Those of them whom the ledger speaks for."""
        kept, all_of_them = set(self._about().get("people", "").split()), list(people)
        return {one for one, hashed in zip(all_of_them, self._hashed(all_of_them), strict=True) if hashed in kept}

    def _hashed(self, people: Iterable[str]) -> Iterator[str]:
        return (self._seal(person)[:16] for person in people)

    def _turn_page(self, name: str, value: str) -> None:
        """Write one more fact on the first page, and seal it anew."""
        with self._transaction():
            about = {k: v for k, v in self._about().items() if k not in ("seal", name)} | {name: value}
            about["seal"] = self._page_seal(about)
            self._database.execute("delete from about")
            self._database.executemany("insert into about values (?, ?)", about.items())
        self._turned += 1

    def state(self) -> bytes | None:
        """The party's state after its latest release."""
        found = self._database.execute("select state from home").fetchone()
        return None if found is None else bytes(found[0])

    def body(self) -> bytes:
        """The bytes of the latest release."""
        found = self._database.execute("select body from releases order by number desc limit 1").fetchone()
        return b"" if found is None else bytes(found[0])

    # -- writing ----------------------------------------------------------------------------------------------

    def record(
        self,
        *,
        run: str,
        round: int,
        step: str,
        attempt: int,
        kind: str,
        request: str,
        event: Event,
        body: bytes,
        sealed: bool,
        contributors: int,
        present: bytes | None,
        state: bytes,
        admit: Callable[[], None] | None = None,
    ) -> Row:
        """Write one release down, durably, and return its row. Only then may the bytes leave.

        A `sealed` body is one that nobody but an aggregation opens; the chain then binds its keyed hash. `admit` has
        the last word: it is asked when no other process can write any more, and what it raises undoes everything.
        """
        with self._transaction():
            if admit is not None:
                admit()
            number, head, was = self._latest()
            line, payload = canonical(event), self._seal(body) if sealed else digest(body)
            if state != self._state[0]:
                self._state = state, self._seal(state)
            values = (
                *(number + 1, _now(), run, round, step, attempt, kind, request, line, payload),
                *(len(body), contributors, present, self._state[1], next_head(head, line, request, payload)),
            )
            self._database.execute("update releases set body = null where number = ?", (number,))
            marks = ", ".join("?" * (len(values) + 2))
            self._database.execute(
                f"insert into releases ({_ROW}, seal, body) values ({marks})", (*values, self._seal(*values), body)
            )
            if self._state[1] != was:
                self._database.execute("insert or replace into home values (1, ?)", (state,))
        self.written += 1
        self._answered.add(request, run, round, step, attempt)
        return Row(*values)

    # -- checking ---------------------------------------------------------------------------------------------

    def verify(self, head: str | None = None) -> int:
        """Check every row of every table; returns how many releases there are.

        `head` is one that travelled: it must be in the chain, or rows were cut off or an old ledger was put back.
        """
        try:
            return self._verified(head)
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    def _check_first_page(self) -> None:
        about = self._about()
        genuine = about.pop("seal", None) == self._page_seal(about) and about.get("format") == FORMAT
        if not genuine or not {"format", "party", "begun"} <= about.keys() <= _PAGE:
            raise TamperingFound(
                f'The ledger "{self.path}" was changed: its first page is not what {self.party} wrote.'
            )

    def _verified(self, head: str | None) -> int:
        self._check_first_page()
        if layout(self._database) != _own_layout():
            raise TamperingFound(f'The ledger "{self.path}" was changed: its tables are not those of {FORMAT}.')
        before, rows, heads = START, self.rows(), {START}
        for place, row in enumerate(rows, start=1):
            if row.number != place:
                raise TamperingFound(f'In the ledger "{self.path}", release {place} is missing.')
            seal, body = self._database.execute("select seal, body from releases where number = ?", (place,)).fetchone()
            if row.head != next_head(before, row.event, row.request, row.payload):
                raise TamperingFound(
                    f'In the ledger "{self.path}", release {place} was changed, or one before it was removed.'
                )
            if seal != self._seal(*(getattr(row, name) for name in _ROW.split(", "))):
                raise TamperingFound(f'In the ledger "{self.path}", release {place} was changed.')
            if (body is not None) != (place == len(rows)):
                raise TamperingFound(
                    f'In the ledger "{self.path}", the bytes kept of release {place} are not as they should be.'
                )
            if body is not None and row.payload not in (digest(body), self._seal(body)):
                raise TamperingFound(f'In the ledger "{self.path}", the bytes of release {place} were changed.')
            before = row.head
            heads.add(before)
        state = self.state()
        if (state is None) != (not rows) or (state is not None and rows[-1].state != self._seal(state)):
            raise TamperingFound(f'In the ledger "{self.path}", the state of {self.party} was changed.')
        if head is not None and head not in heads:
            raise TamperingFound(
                f'The ledger "{self.path}" does not hold a release that left {self.party}: '
                "rows were cut off, or an old ledger was put back."
            )
        return len(rows)

    # -- inside -----------------------------------------------------------------------------------------------

    def _about(self) -> dict[str, str]:
        return {str(k): str(v) for k, v in self._database.execute("select name, value from about order by rowid")}

    def _seal(self, *values: object) -> str:
        """A keyed hash of some values; the key never leaves."""
        parts = [value if isinstance(value, bytes) else repr(value).encode() for value in values]
        message = b"".join(piece for part in parts for piece in (len(part).to_bytes(8, "little"), part))
        return hmac.digest(self._key, FORMAT.encode() + message, "sha256").hex()

    def _page_seal(self, about: Mapping[str, str]) -> str:
        """The first page's seal, over names and values."""
        return self._seal(*(part for name in sorted(about) for part in (name, about[name])))

    def _transaction(self) -> _Transaction:
        return _Transaction(self.path, self._database, self.aside)


def unreadable(path: Path, error: Exception, what: str = "ledger") -> UsageError | TamperingFound:
    """What it means that a ledger cannot be read or written: a disk that is full, closed or failing damages nothing."""
    if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _OUTSIDE:
        return UsageError(f'The {what} "{path}" cannot be kept there: {error}; make room, or free it, and start anew.')
    return TamperingFound(f'The {what} "{path}" is damaged: {error}.')


class _Transaction:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK if anything went wrong; SQLite itself rolls back on a disk that is full."""

    def __init__(self, path: Path, database: sqlite3.Connection, aside: Callable[[], AbstractContextManager[None]]):
        self._path, self._database, self._aside = path, database, aside

    def __enter__(self) -> None:
        try:
            self._database.execute("begin immediate")
        except UNREADABLE as error:
            raise unreadable(self._path, error) from error

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> None:
        with self._aside():
            try:
                if error is None:
                    self._database.execute("commit")
            except UNREADABLE as late:
                error = late
            if self._database.in_transaction:
                self._database.execute("rollback")
        if isinstance(error, UNREADABLE):
            raise unreadable(self._path, error) from error


def _key_beside(path: Path, new: bool) -> bytes:
    """The key of a ledger, in a file of its own that only the owner reads."""
    place = path.with_suffix(".key")
    if place.exists():
        try:
            return bytes.fromhex(place.read_text().strip())
        except ValueError:
            raise TamperingFound(f'The key "{place}" of the ledger "{path}" is damaged; put it back.') from None
        except OSError as error:
            raise UsageError(f'The key "{place}" cannot be read: {error.strerror}; its owner can.') from None
    if not new:
        raise TamperingFound(
            f'The key "{place}" of the ledger "{path}" is gone; put it back, without it nothing can be verified.'
        )
    part = place.with_name(place.name + ".part")
    with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # of several that begin a ledger one draws the key, the others read it
        if place.exists():
            part.unlink(missing_ok=True)
        else:
            file.truncate()  # what one that was killed here has left
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, place)
    return bytes.fromhex(place.read_text().strip())


def read_only(path: Path) -> sqlite3.Connection:
    """A database to read: nothing is written, and no file appears beside it unless a writer has one there already.

    Rows that a writer has not yet moved out of its write-ahead log are read from there.
    """
    at_work = path.with_name(path.name + "-wal").exists()
    database = sqlite3.connect(
        f"{path.absolute().as_uri()}?{'mode=ro' if at_work else 'mode=ro&immutable=1'}", uri=True
    )
    database.text_factory = readable
    return database


def readable(raw: bytes) -> str:
    """A text column: bytes that are not UTF-8 become another text, which no seal fits."""
    return raw.decode("utf-8", "replace")


def layout(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Every table, index, trigger and view, as SQLite keeps it."""
    return database.execute("select type, name, tbl_name, sql from sqlite_master order by type, name").fetchall()


@cache
def _own_layout() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:")) as fresh:
        for statement in filter(str.strip, _SCHEMA.split(";")):
            fresh.execute(statement)
        return layout(fresh)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def ledgers_in(folder: Path) -> Iterator[Path]:
    """The ledgers of a run folder or of a folder of ledgers; one that was only begun holds nothing yet."""
    inside = folder / "ledger" if (folder / "ledger").is_dir() else folder
    for path in sorted(inside.glob("*.sqlite"), key=lambda path: (len(path.name), path.name)):
        if not only_begun(path, read_only):
            yield path
