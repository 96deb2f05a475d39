"""Checkpoints of a run without privacy: its calls and the parties' homes, saved together every few seconds.

There are no ledgers, so parties cannot repeat their answers. Instead the log of calls and the homes are written in one
transaction: after a kill the file has both as they were after one call, and a resumed run replays up to there. Without
the file, or where it cannot be read or written, the run starts over, to the same result.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tacit.boundary.wire import Value, decode, encode
from tacit.errors import TamperingFound
from tacit.federation.calls import Logged
from tacit.federation.transcript import Entry
from tacit.partition import Parties

#: Seconds between two saves, at least.
EVERY = 20.0
#: The largest fraction of a run's time for saving.
SHARE = 0.05
#: Bytes at which the file stops growing; such a run resumes from what was saved by then.
MOST = 4 << 30

_SCHEMA = """
create table if not exists about (made text primary key, rounds text not null) strict;
create table if not exists calls (
    key text primary key, request text not null, result blob not null, entries text not null
) strict;
create table if not exists homes (party text primary key, blocks blob not null) strict;
"""

Homes = Mapping[str, dict[str, Any]]


class SavedRun:
    """One unfinished run in one SQLite file, a log for `Federation`; what another run (`made`) saved is dropped."""

    def __init__(self, path: Path, made: str) -> None:
        self._path, self._made = path, made
        self._homes: Homes = {}
        self._rounds: Callable[[], list[Any]] = list
        self._database: sqlite3.Connection | None = None
        self._began = monotonic()
        self._due = self._began + EVERY
        try:
            self._database = self._opened()
        except sqlite3.Error:
            self.discard()
            with suppress(sqlite3.Error):
                self._database = self._opened()

    def restore(self, homes: Homes, rounds: Callable[[], list[Any]]) -> list[Any]:
        """Restore the parties' homes; the saved rounds, as lists of values.

        From now on `homes` and `rounds` are saved.
        """
        self._homes, self._rounds = homes, rounds
        if self._database is None:
            return []
        for party, blocks in self._database.execute("select party, blocks from homes"):
            homes[party].update({name: np.array(block) for name, block in decode(blocks).items()})
        found = self._database.execute("select rounds from about").fetchone()
        return [] if found is None else list(json.loads(found[0]))

    def recall(self, key: str, request: str) -> Logged | None:
        """The logged result of a call, if there is one."""
        if self._database is None:
            return None
        query = "select request, result, entries from calls where key = ?"
        found = self._database.execute(query, (key,)).fetchone()
        if found is None:
            return None
        logged, result, entries = found
        if logged != request:
            raise TamperingFound(f'Call "{key}" of the resumed run is not the logged one; start a new run.')
        return Logged(bytes(result), tuple(Entry(*entry) for entry in json.loads(entries)), {})

    def keep(self, key: str, request: str, logged: Logged) -> None:
        """Log a call's result; every few seconds all of them become durable, with the homes."""
        if self._database is None:
            return
        if self._path.stat().st_size > MOST:
            self.close()
            return
        entries = json.dumps([entry.values for entry in logged.entries])
        try:
            self._database.execute("insert into calls values (?, ?, ?, ?)", (key, request, logged.result, entries))
            if monotonic() >= self._due:
                self._save(self._database)
        except sqlite3.Error:  # such as a full disk: the run goes on without checkpoints
            self.discard()

    def trained(self) -> None:
        """Training is done. A long run is saved whole, so that it need only be evaluated again."""
        if self._database is not None and monotonic() >= self._began + EVERY:
            try:
                self._save(self._database)
            except sqlite3.Error:
                self.discard()

    def discard(self) -> None:
        """Remove the file: the run is finished, or cannot be saved."""
        self.close()
        for name in (self._path, self._path.with_name(f"{self._path.name}-journal")):
            name.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file as it was saved last: this rolls back the open transaction."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _opened(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))  # SQLite's other files get the same mode
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            database.executescript(_SCHEMA)
            if database.execute("select made from about").fetchall() != [(self._made,)]:
                for table in ("about", "calls", "homes"):
                    database.execute(f"delete from {table}")
                database.execute("insert into about values (?, '[]')", (self._made,))
            database.execute("begin")
        except sqlite3.Error:
            database.close()
            raise
        return database

    def _save(self, database: sqlite3.Connection) -> None:
        began = monotonic()
        for party, home in self._homes.items():
            blocks: dict[str, Value] = {name: np.asarray(block) for name, block in home.items()}
            database.execute("insert or replace into homes values (?, ?)", (party, encode(blocks)))
        database.execute("update about set rounds = ?", (json.dumps(self._rounds()),))
        database.execute("commit")
        database.execute("begin")
        self._due = monotonic() + max(EVERY, (monotonic() - began) / SHARE)


def made_of(file: str, parties: Parties) -> str:
    """SHA-256 over everything that a run depends on: its file, the items, the parties' data, and the version."""
    found = sha256(f"{_version()}\n{parties.catalogue.digest}\n{file}".encode())
    for share in parties:
        ratings = share.ratings
        for array in (share.users, share.items, ratings.indptr, ratings.items, ratings.values):
            found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _version() -> str:
    try:
        return version("tacit")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return ""
