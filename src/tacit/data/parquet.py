"""Parquet files: only the columns that matter are read, and text ids arrive as dictionaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.data.columns import Origin, Records, resolve
from tacit.data.ratings import Feedback
from tacit.errors import DataError

SUFFIXES = (".parquet", ".pq")


def read(path: Path, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of one file; rows are counted from 1."""
    with _opened(path) as file:
        schema = file.schema_arrow
    chosen = resolve(schema.names, columns, feedback, f'"{path}"')
    texts = (pa.string(), pa.large_string())
    table = OneByOne(path, [n for n in (chosen.user, chosen.item) if schema.field(n).type in texts])
    return Records(table, Origin(f'"{path}"'), chosen, name=path.name)


class OneByOne:
    """A file's columns, each read when it is asked for and not kept, so that no two are in memory at once."""

    def __init__(self, path: Path, dictionaries: Sequence[str]) -> None:
        self._path, self._dictionaries = path, dictionaries

    @property
    def num_rows(self) -> int:
        with _opened(self._path) as file:
            return int(file.metadata.num_rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        column = _read(self._path, [name], [n for n in self._dictionaries if n == name])[name]
        if len(column) != self.num_rows:
            raise DataError(f'"{self._path}" is damaged: its columns differ in length; get the file anew.')
        return column


def read_side(path: Path, names: Sequence[str] | None = None) -> tuple[pa.Table, Origin]:
    """All (or the named) columns of a side table."""
    table = _read(path, None if names is None else list(names))
    if not table.num_rows:
        raise DataError(f'There are no rows in "{path}"; give a table with at least one.')
    return table, Origin(f'"{path}"')


def column_names(path: Path) -> list[str]:
    """What the file calls its columns."""
    with _opened(path) as file:
        return file.schema_arrow.names


def _opened(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=list(dictionaries))
    except _UNREADABLE as error:
        reason = "it is not a Parquet file" if isinstance(error, pa.ArrowInvalid) else _said(error)
        raise DataError(
            f'"{path}" cannot be read: {reason}; write it anew, or give its format by its ending.'
        ) from None


def _read(path: Path, names: list[str] | None, dictionaries: Sequence[str] = ()) -> pa.Table:
    with _opened(path, dictionaries) as file:
        try:
            table = file.read(columns=names).replace_schema_metadata()
            table.validate(full=True)  # text that is no UTF-8, too
            return table
        except _UNREADABLE as error:
            raise DataError(f'"{path}" is damaged: {_said(error)}; get the file anew.') from None


#: What Arrow raises over a file that is damaged, or none.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, MemoryError)


def _said(error: BaseException) -> str:
    """The first line of an error, as far as it can be shown: a damaged file's bytes may stand in it."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return "".join(letter for letter in line if letter.isprintable())[:200]
