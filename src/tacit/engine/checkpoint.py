"""What a run without privacy goes on from: its calls and what parties keep at home, saved together every few seconds.

There are no ledgers, so parties cannot answer again what they have answered. Instead the log of calls and the parties'
homes are written in one transaction: whenever a process is killed, the file holds both as they were after one call, and
a resumed run replays up to there. A run is a function of its file, so nothing is lost but time where there is no such
file, or it cannot be read or written: the run then starts over, to the same result.
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

#: Seconds between two times that a run is saved, at the least.
EVERY = 20.0
#: The longest part of a run's time that saving may take.
SHARE = 0.05
#: Bytes from which on a file grows no more; such a run goes on from what was saved by then.
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
    """One unfinished run in one SQLite file; a log for `Federation`.

    Parameters
    ----------
    path : the file
    made : what the run is made of, by `made_of`; what was saved of anything else is dropped
    """

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
        """Put back what parties had at home; returns what the experimenter saw of rounds, as lists of values.

        From now on `homes` and `rounds` are what is saved.
        """
        self._homes, self._rounds = homes, rounds
        if self._database is None:
            return []
        for party, blocks in self._database.execute("select party, blocks from homes"):
            homes[party].update({name: np.array(block) for name, block in decode(blocks).items()})
        found = self._database.execute("select rounds from about").fetchone()
        return [] if found is None else list(json.loads(found[0]))

    def recall(self, key: str, request: str) -> Logged | None:
        """What a call returned before, if it was made before."""
        if self._database is None:
            return None
        query = "select request, result, entries from calls where key = ?"
        found = self._database.execute(query, (key,)).fetchone()
        if found is None:
            return None
        asked, result, entries = found
        if asked != request:
            raise TamperingFound(
                f'Call "{key}" of the resumed run asks for something else than before; start a new run.'
            )
        return Logged(bytes(result), tuple(Entry(*entry) for entry in json.loads(entries)), {})

    def keep(self, key: str, request: str, logged: Logged) -> None:
        """Write a call's result down; every few seconds all since the last time becomes durable, with the homes."""
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
        except sqlite3.Error:  # such as a full disk: the run itself needs none of this
            self.discard()

    def trained(self) -> None:
        """Nothing more is asked of parties. What took long is saved whole, so that it need only be evaluated again."""
        if self._database is not None and monotonic() >= self._began + EVERY:
            try:
                self._save(self._database)
            except sqlite3.Error:
                self.discard()

    def discard(self) -> None:
        """The run is finished, or cannot be saved: nothing of this is needed any more."""
        self.close()
        for name in (self._path, self._path.with_name(f"{self._path.name}-journal")):
            name.unlink(missing_ok=True)

    def close(self) -> None:
        """Let go of the file, as it was when it was saved last: closing rolls the open transaction back."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _opened(self) -> sqlite3.Connection:
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))  # what SQLite puts beside it gets the same mode
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
    """SHA-256 over all that decides what a run does: its file, the items, what each party holds, and the version."""
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
