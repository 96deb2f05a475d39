"""What a kill would leave, at every point where something is written: one run, and a copy of its folder before each.

A copy is truer to a kill than an exception would be: no `finally` tidies up, and no connection is closed.
"""

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

#: Calls of `os` that put something on disk or move it.
CALLS = ("open", "replace", "rename", "fsync", "unlink", "chmod", "mkdir", "rmdir")
#: Statements that do.
STATEMENTS = ("begin", "commit", "create", "insert", "update", "delete", "pragma journal_mode")


class _Watched(sqlite3.Connection):
    """A connection that says when a statement is about to run."""

    look = staticmethod(lambda: None)

    def execute(self, statement, *args):
        if statement.strip().lower().startswith(STATEMENTS):
            self.look()
        return super().execute(statement, *args)


def states_of(place: Path, copies: Path, monkeypatch, work: Callable[[], object], note=None) -> list:
    """`place` as a kill would leave it around every write of `work`, each state once; with `note`, what it says then.

    Files that a library writes by itself are also left torn: half of one, under the name that it is given.
    """
    states: list = []
    seen: list[object] = [None]
    lock, owner = threading.RLock(), threading.local()

    def look(*_args):
        if getattr(owner, "busy", False) or not place.exists():
            return
        with lock:
            owner.busy = True
            try:
                now = _content(place)
                if now != seen[-1]:
                    seen.append(now)
                    copy = Path(shutil.copytree(place, copies / f"{len(seen):03d}" / place.name))
                    states.append(copy if note is None else (copy, note()))
            finally:
                owner.busy = False

    def around(real):
        def call(*args, **kwargs):
            look()
            result = real(*args, **kwargs)
            look()
            return result

        return call

    def torn(real, position):
        def call(*args, **kwargs):
            path = Path(args[position])
            if place in path.parents and not getattr(owner, "busy", False):
                with path.open("wb") as file:
                    file.write(b"half a fi")
                look()
            return real(*args, **kwargs)

        return call

    connect = sqlite3.connect
    with monkeypatch.context() as patched:
        patched.setattr(_Watched, "look", staticmethod(look))
        patched.setattr(sqlite3, "connect", lambda *args, **kwargs: connect(*args, factory=_Watched, **kwargs))
        for name in CALLS:
            patched.setattr(os, name, around(getattr(os, name)))
        for owns, name, position in ((pq, "write_table", 1), (np, "savez", 0), (Path, "write_text", 0)):
            patched.setattr(owns, name, torn(getattr(owns, name), position))
        work()
        look()
    return states


def _content(place: Path) -> dict[str, bytes]:
    """Every file's bytes; SQLite's shared memory is made anew by whoever opens the database."""
    paths = sorted(path for path in place.rglob("*") if not path.name.endswith("-shm"))
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in paths}
