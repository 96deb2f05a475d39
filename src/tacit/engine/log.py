"""The coordinator's log: each call on the federation has a key and a logged result, so that resuming is replaying.

A resumed run gets logged results until the log ends, and goes on from there; a method needs no checkpoint code.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit.boundary.ledger import PAGE_SIZE
from tacit.errors import PeerFailed, TamperingFound
from tacit.federation.line import Logged
from tacit.federation.transcript import Entry

_SCHEMA = """create table if not exists calls (
    key text primary key, request text not null, result blob not null, entries text not null, heads text not null
) strict"""


@contextmanager
def _on_disk() -> Iterator[None]:
    """A disk that fails, as by being full, is one sentence; what was not written was not used either."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise PeerFailed(
            f"The coordinator's log cannot be written ({getattr(error, 'strerror', None) or error}), so the run stops "
            "here; make room on the disk and go on with --resume."
        ) from None


class CallLog:
    """A durable log in one SQLite file; an entry is synced before the coordinator goes on."""

    def __init__(self, path: Path) -> None:
        with _on_disk():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # what SQLite puts beside it gets the same mode
            os.chmod(path, 0o600)
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._database.execute(f"pragma page_size = {PAGE_SIZE}")  # of a file that is still empty
            self._database.execute("pragma journal_mode = wal")
            self._database.execute("pragma synchronous = full")
            self._database.execute(_SCHEMA)

    def recall(self, key: str, request: str) -> Logged | None:
        """What a call returned before, if it was made before; the same call with another request is an error."""
        found = self._database.execute("select * from calls where key = ?", (key,)).fetchone()
        if found is None:
            return None
        _key, asked, result, entries, heads = found
        if asked != request:
            raise TamperingFound(
                f'Call "{key}" of the resumed run asks for something else than before: the run file, the data or the '
                "version changed; start a new run."
            )
        return Logged(bytes(result), tuple(Entry(*entry) for entry in json.loads(entries)), json.loads(heads))

    def keep(self, key: str, request: str, logged: Logged) -> None:
        """Write a call's result down, durably."""
        entries = json.dumps([entry.values for entry in logged.entries])
        with _on_disk():
            self._database.execute(
                "insert into calls values (?, ?, ?, ?, ?)",
                (key, request, logged.result, entries, json.dumps(dict(logged.heads))),
            )

    def close(self) -> None:
        self._database.close()
