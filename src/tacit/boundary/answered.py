"""What a ledger has answered, by request and by place in a run: whether one is new is known without reading every row.

Rows that another process or another connection wrote are noticed by SQLite's own count of such commits; then everything
is read anew.
"""

from __future__ import annotations

import sqlite3

#: Run, round, step and attempt.
Place = tuple[str, int, str, int]


class Answered:
    """The requests and the places of all rows, as the database holds them at the moment of asking."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database
        self._version = -1
        self._requests: set[str] = set()
        self._places: set[Place] = set()

    def request(self, request: str) -> bool:
        """Whether some row answers this very request."""
        self._look()
        return request in self._requests

    def place(self, *place: *Place) -> bool:
        """Whether some row answers this step of this round."""
        self._look()
        return place in self._places

    def add(self, request: str, *place: *Place) -> None:
        """One more row was written by this very connection."""
        self._requests.add(request)
        self._places.add(place)

    def _look(self) -> None:
        """Read all rows if somebody else wrote. The version is read first: what comes after it is new."""
        version = int(self._database.execute("pragma data_version").fetchone()[0])
        if version != self._version:
            rows = self._database.execute("select request, run, round, step, attempt from releases").fetchall()
            self._version = version
            self._requests, self._places = {row[0] for row in rows}, {row[1:] for row in rows}
