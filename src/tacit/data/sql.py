"""Databases: DuckDB and SQLite files, and PostgreSQL, read through Arrow and never written.

DuckDB is opened read-only, without access to other files and without its downloadable extensions; SQLite in
mode ro; PostgreSQL in a read-only transaction. A password in an address never appears in a message or a name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

from tacit.data.arrow_tables import is_file
from tacit.data.columns import Origin, Records, option_hint, resolve
from tacit.data.ratings import Feedback
from tacit.errors import DataError

SUFFIXES = (".duckdb", ".sqlite", ".sqlite3", ".db")
_POSTGRES = ("postgresql://", "postgres://")
_FILES = ("duckdb:", "sqlite:")
_ALL_ROWS = 2**31 - 2  # the SQLite driver takes a column's type from one batch of rows: let that be all of them
_TABLES = (
    "select table_schema::text as folder, table_name::text as name from information_schema.tables "
    "where table_schema not in ('information_schema', 'pg_catalog') order by 1, 2"
)


def is_address(source: str) -> bool:
    """Whether a source is a database's address: postgresql://…, duckdb:PATH or sqlite:PATH."""
    return source.startswith((*_POSTGRES, *_FILES))


def read(source: str, query: str | None, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The rows of a query, or of the only table."""
    shown = displayed(source)
    if source.startswith(_POSTGRES):
        table = _adbc("PostgreSQL", source, shown, query, _TABLES, {}, autocommit=False)
    else:
        kind, _, rest = source.partition(":") if source.startswith(_FILES) else ("", "", source)
        path = Path(rest)
        if not is_file(path):
            raise DataError(f'There is no database file "{str(path)[:200]}"; check the path.')
        table = (_duckdb if (kind or _kind(path)) == "duckdb" else _sqlite)(path, shown, query)
    where = f'the query on "{shown}"' if query else f'"{shown}"'
    if not table.num_columns:
        raise DataError(f'The query on "{shown}" returns no rows; give a select.')
    chosen = resolve(table.column_names, columns, feedback, where)
    name = shown.rpartition("/")[2] or shown
    return Records(table.select(chosen.names), Origin(where), chosen, name=name)


def displayed(source: str) -> str:
    """A source as it may be shown: an address without user, password and options.

    >>> displayed("postgresql://anna:secret@db.example/shop?sslmode=require")
    'postgresql://db.example/shop'
    """
    if "password=" in source.lower().partition("?")[0]:
        return "…"
    if "://" not in source:
        return source.removeprefix("duckdb:").removeprefix("sqlite:")
    scheme, _, rest = source.partition("://")
    # Everything up to the last @ is cut off: a password may contain any character, quoted or not.
    place = rest.rpartition("@")[2].partition("?")[0]
    return f"{scheme}://{place}" if re.fullmatch(r"[^/:]*(:\d+)?(/.*)?", place) else f"{scheme}://…"


def _kind(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(16)
    if start.startswith(b"SQLite format 3"):
        return "sqlite"
    if start[8:12] == b"DUCK":
        return "duckdb"
    if not start and path.suffix.lower() != ".duckdb":
        return "sqlite"  # an empty file is a SQLite database without tables
    raise DataError(f'"{path}" is neither a DuckDB nor a SQLite database; check the path.')


def _rows(run: Callable[[str], pa.Table], tables: str, query: str | None, shown: str) -> pa.Table:
    """The query's rows; without a query, the only table's."""
    if query is None:
        found = run(tables).to_pylist()
        if not found:
            raise DataError(f'The database "{shown}" holds no tables; check the address.')
        if len(found) > 1:
            names = ", ".join(_dotted(row) for row in found[:12]) + (", …" if len(found) > 12 else "")
            hint = option_hint("query", f"select … from {_dotted(found[0])}")
            raise DataError(f'The database "{shown}" holds {len(found)} tables ({names}); add a query, as in {hint}.')
        query = f"select * from {_quoted(found[0])}"
    return run(query)


def _duckdb(path: Path, shown: str, query: str | None) -> pa.Table:
    duckdb = _driver("duckdb", "duckdb")
    settings = {
        "enable_external_access": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    with _explained(duckdb.Error, shown, "open"):
        connection = duckdb.connect(str(path), read_only=True, config=settings)

    def run(text: str) -> pa.Table:
        with _explained(duckdb.Error, shown, "query"):
            relation = connection.sql(text)
            if relation is None:
                raise DataError(f'The query on "{shown}" returns no rows; give a select.')
            return relation.to_arrow_table()

    with connection:
        return _rows(run, _TABLES, query, shown)


def _sqlite(path: Path, shown: str, query: str | None) -> pa.Table:
    tables = (
        "select '' as folder, name from sqlite_master "
        "where type in ('table', 'view') and name not like 'sqlite\\_%' escape '\\' order by name"
    )
    options = {"adbc.sqlite.query.batch_rows": _ALL_ROWS}
    address = f"file:{quote(str(path))}?mode=ro"
    return _adbc("SQLite", address, shown, query, tables, options, autocommit=True)


def _adbc(
    kind: str, address: str, shown: str, query: str | None, tables: str, options: Mapping[str, Any], autocommit: bool
) -> pa.Table:
    """The rows, through Arrow's database driver of that kind; a transaction, where there is one, is read-only."""
    adbc = _driver(f"adbc_driver_{kind.lower()}.dbapi", kind)
    errors = (adbc.Error, OSError)
    with _explained(errors, shown, "open", address):
        connection = adbc.connect(address, autocommit=autocommit)

    def run(text: str) -> pa.Table:
        with _explained(errors, shown, "query", address), connection.cursor() as cursor:
            if options:
                cursor.adbc_statement.set_options(**options)
            cursor.execute(text)
            return cursor.fetch_arrow_table()

    with connection:
        if not autocommit:
            with _explained(errors, shown, "open", address), connection.cursor() as cursor:
                cursor.execute("set transaction read only")
        return _rows(run, tables, query, shown)


@contextmanager
def _explained(errors: Any, shown: str, action: str, address: str = "") -> Iterator[None]:
    """Turn a database's own error into one sentence: its first line, without the password, and a remedy."""
    try:
        yield
    except errors as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        reason = _without_password(first, address).rstrip(".")
    else:
        return
    if action == "open":
        raise DataError(f'The database "{shown}" cannot be opened: {reason}; check its address.')
    raise DataError(f'The query on "{shown}" failed: {reason}; correct the query.')


def _without_password(message: str, address: str) -> str:
    rest = address.partition("://")[2]
    before, at, _ = rest.rpartition("@")
    password = (before if at else re.split("[/?]", rest)[0]).partition(":")[2]
    if not at and password.isdigit():
        password = ""  # it is the port
    if re.search("[@:/?#]", password):
        # The driver has split it at that sign, so any part of it may be in the message.
        return "signs such as @ : / in a password must be quoted, as in %40"
    options = re.findall(r"[?&][a-z]*password=([^&]*)", address, flags=re.IGNORECASE)
    secrets = {secret for raw in (password, *options) for secret in (raw, unquote(raw)) if secret}
    for secret in sorted(secrets, key=len, reverse=True):
        message = message.replace(secret, "***")
    return message


def _driver(module: str, name: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError:
        raise DataError(f'Reading {name} needs its driver, which is not installed: pip install "tacit[sql]"') from None


def _dotted(row: Mapping[str, str]) -> str:
    return f"{row['folder']}.{row['name']}" if row["folder"] not in ("", "main", "public") else row["name"]


def _quoted(row: Mapping[str, str]) -> str:
    parts = [row["folder"], row["name"]] if row["folder"] else [row["name"]]
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
