"""The coordinator's log of calls: a resumed run gets the logged results until the log ends, and goes on from there.

The log is sealed as a ledger is. Every row carries a keyed hash of itself and of the row before it, one more is stored
of the latest row, and the key is next to the log. So a row that was changed, removed, moved or added is found when the
log is opened. When the run ends, one sealed record has its results; `tacit ledger verify` compares the folder with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tacit import files
from tacit.boundary import sealed_database as sealed
from tacit.errors import PeerFailed, TamperingFound, UsageError
from tacit.federation.calls import Logged
from tacit.federation.transcript import Entry

FORMAT = "tacit call log 1"
START = hashlib.sha256(FORMAT.encode()).hexdigest()

_SCHEMA = """
create table calls (
    number integer primary key, key text not null, request text not null, result blob not null,
    entries text not null, heads text not null, seal text not null
) strict;
create table latest (one integer primary key check (one = 1), number integer not null, seal text not null) strict;
create table finished (one integer primary key check (one = 1), record text not null, seal text not null) strict
"""


class CallLog:
    """A durable log in one SQLite file; a call is on disk before the next one. Opening verifies every row."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            sealed.mark_creation(path)
            self._key = _key_beside(path, new=not path.exists())
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's other files get the same mode
            os.chmod(path, 0o600)
        except OSError as error:
            raise UsageError(f'The log "{path}" cannot be written: {error.strerror}; name another folder.') from None
        with self._reading():
            self._database = sealed.connect(path)
        try:
            with self._reading():
                if not sealed.schema_of(self._database):
                    self._begin()
                sealed.clear_mark(path)
            self.verify()
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def open(cls, path: Path) -> CallLog:
        """The log at `path`, verified, for reading only."""
        log = cls.__new__(cls)
        log.path, log._key = path, _key_beside(path, new=False)
        try:
            path.open("rb").close()
        except OSError as error:
            raise UsageError(f'The log "{path}" cannot be read: {error.strerror}.') from None
        log._database = sealed.open_read_only(path)
        try:
            with log._reading():
                log._database.execute("begin")  # one consistent view
            log.verify()
        except BaseException:
            log.close()
            raise
        return log

    def recall(self, key: str, request: str) -> Logged | None:
        """The logged result of a call, if there is one; the same call with another request is an error."""
        if key not in self._numbers:
            return None
        with self._reading():
            query = "select request, result, entries, heads from calls where number = ?"
            logged, result, entries, heads = self._database.execute(query, (self._numbers[key],)).fetchone()
        if logged != request:
            raise TamperingFound(
                f'Call "{key}" of the resumed run is not the logged one: run file, data or version changed; start '
                "a new run."
            )
        return Logged(bytes(result), _entries(entries), json.loads(heads))

    def keep(self, key: str, request: str, logged: Logged) -> None:
        """Log a call's result, durably."""
        entries = json.dumps([entry.values for entry in logged.entries])
        values = (key, request, logged.result, entries, json.dumps(dict(logged.heads)))
        with self._transaction():
            number, before = self._latest()
            seal = self._seal(number + 1, before, *values)
            self._database.execute("insert into calls values (?, ?, ?, ?, ?, ?, ?)", (number + 1, *values, seal))
            self._set_latest(number + 1, seal)
            self._database.execute("delete from finished")
        self._numbers[key] = number + 1

    def entries(self) -> list[Entry]:
        """Every message of every call, in order."""
        with self._reading():
            rows = self._database.execute("select entries from calls order by number").fetchall()
        return [entry for (text,) in rows for entry in _entries(text)]

    def heads(self) -> dict[str, str]:
        """The last head that each party's ledger sent."""
        with self._reading():
            rows = self._database.execute("select heads from calls order by number").fetchall()
        return {party: head for (text,) in rows for party, head in json.loads(text).items()}

    def finish(self, record: Mapping[str, Any]) -> None:
        """Seal the record of the run's results, durably."""
        text = json.dumps(record, sort_keys=True, ensure_ascii=False, allow_nan=False)
        with self._transaction():
            seal = self._seal("finished", self._latest()[1], text)
            self._database.execute("insert or replace into finished values (1, ?, ?)", (text, seal))

    def finished(self) -> dict[str, Any] | None:
        """The sealed record of the run's results; None where it has not ended."""
        with self._reading():
            found = self._database.execute("select record from finished").fetchone()
        if found is None:
            return None
        record: dict[str, Any] = json.loads(found[0])
        return record

    def verify(self) -> None:
        """Check every row of every table."""
        with self._reading():
            if sealed.schema_of(self._database) != sealed.expected_schema(_SCHEMA):
                raise TamperingFound(
                    f'The log "{self.path}" was changed, or is of a version without seals; start a new run.'
                )
            before, place = START, 0
            self._numbers: dict[str, int] = {}  # by key; an index on disk could be damaged by itself
            for place, (number, *values, seal) in enumerate(
                self._database.execute("select * from calls order by number"), start=1
            ):
                if number != place or seal != self._seal(number, before, *values):
                    raise TamperingFound(f'In the log "{self.path}", call {place} was changed, removed or added.')
                before, self._numbers[values[0]] = seal, place
            latest = self._database.execute("select number, seal from latest").fetchone()
            if latest != (place, self._seal("latest", place, before)):
                raise TamperingFound(f'In the log "{self.path}", the latest calls were removed.')
            finished = self._database.execute("select record, seal from finished").fetchone()
            if finished is not None and finished[1] != self._seal("finished", before, finished[0]):
                raise TamperingFound(f'In the log "{self.path}", the record of how the run ended was changed.')

    def close(self) -> None:
        self._database.close()

    def _begin(self) -> None:
        with self._transaction():
            if not sealed.mark_path(self.path).exists():
                raise TamperingFound(
                    f'The log "{self.path}" is missing or empty, and its key is still there; restore the log, or '
                    "start a new run."
                )
            sealed.create_tables(self._database, _SCHEMA)
            self._set_latest(0, START)

    def _set_latest(self, number: int, seal: str) -> None:
        self._database.execute(
            "insert or replace into latest values (1, ?, ?)", (number, self._seal("latest", number, seal))
        )

    def _latest(self) -> tuple[int, str]:
        query = "select number, seal from calls order by number desc limit 1"
        found: tuple[int, str] | None = self._database.execute(query).fetchone()
        return (0, START) if found is None else found

    def _seal(self, *values: object) -> str:
        return sealed.keyed_hash(self._key, FORMAT, *values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._reading():
            self._database.execute("begin immediate")
            try:
                yield
                self._database.execute("commit")
            finally:
                if self._database.in_transaction:
                    self._database.execute("rollback")

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Translate SQLite's errors: damage is tampering, and a full disk is not."""
        try:
            yield
        except sealed.DATABASE_ERRORS as error:
            found = sealed.database_error(self.path, error, "log")
            if isinstance(found, TamperingFound):
                raise found from error
            raise PeerFailed(
                f"The coordinator's log cannot be written ({error}), so the run stops here; make room on the disk, and "
                "go on with --resume."
            ) from error


def _key_beside(path: Path, new: bool) -> bytes:
    """The key of a log, in a file for its owner alone."""
    place = path.with_suffix(".key")
    if new and not place.exists():
        files.write(place, secrets.token_hex(32) + "\n")
    try:
        key = bytes.fromhex(place.read_text().strip())
    except FileNotFoundError:
        raise TamperingFound(
            f'The key "{place}" of the log "{path}" is missing, or the log is of a version without seals; restore the '
            "key, or start a new run."
        ) from None
    except ValueError:
        key = b""
    except OSError as error:
        raise UsageError(f'The key "{place}" cannot be read: {error.strerror}; its owner can.') from None
    if len(key) != 32:
        raise TamperingFound(f'The key "{place}" of the log "{path}" is damaged; restore it.')
    return key


def _entries(text: str) -> tuple[Entry, ...]:
    return tuple(Entry(*values) for values in json.loads(text))
