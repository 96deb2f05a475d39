"""SQLite files that show tampering: a key file beside each one, keyed hashes, and durable transactions.

A database and its key are two files, so no single step creates both. A mark beside them is durable before either is
created, and removed once the tables exist: an empty database with the mark was interrupted while it was created, and is
created again; one without it was emptied.
"""

import fcntl
import hmac
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing
from functools import cache, partial
from pathlib import Path

from tacit import files
from tacit.errors import TamperingFound, UsageError

#: Bytes. An answer's hundreds of kilobytes fill few such pages, and a small one wastes little.
PAGE_SIZE = 16384
#: What SQLite reports about a disk, or about other processes that use it, and not about damage.
_DISK_ERRORS = frozenset(
    {getattr(sqlite3, f"SQLITE_{what}") for what in ("BUSY", "LOCKED", "READONLY", "IOERR", "FULL", "CANTOPEN")}
)
#: What a damaged database raises; SQLite's own message about it may not be text either.
DATABASE_ERRORS = (sqlite3.DatabaseError, UnicodeDecodeError)

#: Text columns: bytes that are not UTF-8 become another text, which no keyed hash fits.
as_text = partial(str, encoding="utf-8", errors="replace")


def connect(path: Path) -> sqlite3.Connection:
    """A database to write, with a synced write-ahead log; SQLite gives the files beside it the same mode."""
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    database.text_factory = as_text
    try:
        database.execute(f"pragma page_size = {PAGE_SIZE}")  # of a file that is still empty
        database.execute("pragma journal_mode = wal")
        database.execute("pragma synchronous = full")
        database.execute(f"pragma wal_autocheckpoint = {2**22 // PAGE_SIZE}")  # 4 MB, as by default
    except BaseException:
        database.close()
        raise
    return database


def open_read_only(path: Path) -> sqlite3.Connection:
    """A database to read: nothing is written, and no file appears beside it unless a writer has one there already.

    Rows that a writer has not yet moved out of its write-ahead log are read from there.
    """
    in_use = path.with_name(path.name + "-wal").exists()
    database = sqlite3.connect(f"{path.absolute().as_uri()}?{'mode=ro' if in_use else 'mode=ro&immutable=1'}", uri=True)
    database.text_factory = as_text
    return database


def schema_of(database: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Every table, index, trigger and view, as SQLite stores it."""
    return database.execute("select type, name, tbl_name, sql from sqlite_master order by type, name").fetchall()


@cache
def expected_schema(script: str) -> list[tuple[str, ...]]:
    """What `schema_of` returns for a database that `script` made."""
    with closing(sqlite3.connect(":memory:")) as fresh:
        create_tables(fresh, script)
        return schema_of(fresh)


def create_tables(database: sqlite3.Connection, script: str) -> None:
    """Run the statements of `script` one by one: `executescript` would commit what is open."""
    for statement in filter(str.strip, script.split(";")):
        database.execute(statement)


def database_error(path: Path, error: Exception, what: str = "ledger") -> UsageError | TamperingFound:
    """What to raise for an error of SQLite: a disk that is full, closed or failing does not mean damage."""
    if isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_ERRORS:
        return UsageError(f'The {what} "{path}" cannot be stored there: {error}; free the disk, then start again.')
    return TamperingFound(f'The {what} "{path}" is damaged: {error}.')


class Transaction:
    """BEGIN IMMEDIATE … COMMIT, or ROLLBACK if anything went wrong; `waiting` is entered while the disk is synced."""

    def __init__(
        self, path: Path, database: sqlite3.Connection, waiting: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._path, self._database, self._waiting = path, database, waiting

    def __enter__(self) -> None:
        try:
            self._database.execute("begin immediate")
        except DATABASE_ERRORS as error:
            raise database_error(self._path, error) from error

    def __exit__(self, kind: object, error: BaseException | None, _trace: object) -> None:
        with self._waiting():
            try:
                if error is None:
                    self._database.execute("commit")
            except DATABASE_ERRORS as late:
                error = late
            if self._database.in_transaction:  # SQLite itself rolls back on a disk that is full
                self._database.execute("rollback")
        if isinstance(error, DATABASE_ERRORS):
            raise database_error(self._path, error) from error


def keyed_hash(key: bytes, purpose: str, *values: object) -> str:
    """A keyed hash of some values, each with its length."""
    parts = [value if isinstance(value, bytes) else repr(value).encode() for value in values]
    message = b"".join(field for part in parts for field in (len(part).to_bytes(8, "little"), part))
    return hmac.digest(key, purpose.encode() + message, "sha256").hex()


def keyed_hashes(key: bytes, purpose: str, values: Iterable[object]) -> list[str]:
    """The keyed hash of each of many values, such as people: in one call from a ledger."""
    return [keyed_hash(key, purpose, value) for value in values]


def key_of(path: Path, create: bool) -> bytes:
    """The key of a ledger, in a separate file that only its owner can read."""
    place = path.with_suffix(".key")
    if not place.exists():
        if not create:
            raise TamperingFound(
                f'The key "{place}" of the ledger "{path}" is gone; put it back, without it nothing can be verified.'
            )
        _create_key(place)
    try:
        return bytes.fromhex(place.read_text().strip())
    except ValueError:
        raise TamperingFound(f'The key "{place}" of the ledger "{path}" is damaged; put it back.') from None
    except OSError as error:
        raise UsageError(f'The key "{place}" cannot be read: {error.strerror}; its owner can.') from None


def _create_key(place: Path) -> None:
    part = place.with_name(place.name + ".part")
    with os.fdopen(os.open(part, os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # of several processes that create a ledger one draws the key
        if place.exists():
            part.unlink(missing_ok=True)
        else:
            file.truncate()  # what a process that was killed here has written
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
            os.replace(part, place)


def mark_path(path: Path) -> Path:
    """Where the mark of a database that is being created lies."""
    return path.with_suffix(".begin")


def mark_creation(path: Path) -> None:
    """Mark, durably, that the database at `path` is about to be created; not where it or its key exists already."""
    if path.exists() or path.with_suffix(".key").exists():
        return
    os.close(os.open(mark_path(path), os.O_WRONLY | os.O_CREAT, 0o600))
    files.sync(path.parent)


def clear_mark(path: Path) -> None:
    """The database at `path` is complete."""
    mark_path(path).unlink(missing_ok=True)


def half_created(path: Path) -> bool:
    """Whether the creation of the database at `path` was interrupted, so that it holds nothing yet."""
    if not mark_path(path).exists():
        return False
    try:
        with closing(open_read_only(path)) as database:
            return not database.execute("select 1 from sqlite_master").fetchone()
    except (sqlite3.Error, UnicodeDecodeError):
        return not path.exists() or path.with_name(path.name + "-journal").exists()
