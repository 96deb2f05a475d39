"""A mark beside a database while it is made: a kill in between leaves a beginning, which is not damage.

A database and its key are two files, so no single step makes both. The mark is durable before either of them and is
removed once the tables are: an empty database with the mark beside it is made again, one without it was emptied.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tacit import files


def mark(path: Path) -> Path:
    """Where the mark of a database lies."""
    return path.with_suffix(".begin")


def lay_mark(path: Path) -> None:
    """Say, durably, that the database at `path` is about to be made; nothing where it or its key is there already."""
    if path.exists() or path.with_suffix(".key").exists():
        return
    os.close(os.open(mark(path), os.O_WRONLY | os.O_CREAT, 0o600))
    files.sync(path.parent)


def lift_mark(path: Path) -> None:
    """The database at `path` is made."""
    mark(path).unlink(missing_ok=True)


def only_begun(path: Path, read_only: Callable[[Path], sqlite3.Connection]) -> bool:
    """Whether the making of the database at `path` was cut short, so that it holds nothing yet."""
    if not mark(path).exists():
        return False
    try:
        with closing(read_only(path)) as database:
            return not database.execute("select 1 from sqlite_master").fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return not path.exists() or path.with_name(path.name + "-journal").exists()
