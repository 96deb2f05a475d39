"""Tables with types of their own: Parquet files, Arrow tables, pandas and polars frames; and any file by its ending."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.data import delimited
from tacit.data.columns import Origin, Records, resolve
from tacit.data.ratings import Feedback
from tacit.errors import DataError

#: What Arrow raises for a file that is damaged, or not Parquet.
_UNREADABLE = (pa.ArrowException, OSError, ValueError, LookupError, MemoryError)


def read_file(path: Path, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of a Parquet or text file; only the columns that matter are read."""
    if not _is_parquet(path):
        return delimited.read(path, columns, feedback)
    with _opened(path) as file:
        schema = file.schema_arrow
    chosen = resolve(schema.names, columns, feedback, f'"{path}"')
    texts = (pa.string(), pa.large_string())
    table = _OneByOne(path, [n for n in (chosen.user, chosen.item) if schema.field(n).type in texts])
    return Records(table, Origin(f'"{path}"'), chosen, name=path.name)


def read_whole(path: Path, names: Sequence[str] | None = None) -> tuple[pa.Table, Origin]:
    """All (or the named) columns of a small Parquet or text file."""
    if not _is_parquet(path):
        return delimited.read_whole(path, names=names)
    table = _read(path, None if names is None else list(names))
    if not table.num_rows:
        raise DataError(f'There are no rows in "{path}"; give a table with at least one.')
    return table, Origin(f'"{path}"')


def column_names(path: Path) -> Sequence[str]:
    """The names of a Parquet or text file's columns."""
    if not _is_parquet(path):
        return delimited.sniff(path).names
    with _opened(path) as file:
        return file.schema_arrow.names


def is_file(path: Path) -> bool:
    """Whether there is such a file; not where the name is too long to be one's, either."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_frame(source: object) -> bool:
    """Whether this is a table in memory: anything with an Arrow stream of columns, or a pandas frame."""
    return hasattr(source, "__arrow_c_stream__") or type(source).__module__.split(".")[0] == "pandas"


def read_frame(source: Any, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of a table in memory; rows are counted from 1, and a pandas index is ignored."""
    kind = type(source).__name__
    try:
        table = pa.table(source)
        table = pa.table({name: _without_views(table[name]) for name in table.column_names})
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"The {kind} cannot be read as a table: {str(error).splitlines()[0]}; give it columns of one kind each, "
            "named user, item and rating."
        ) from None
    chosen = resolve([name for name in table.column_names if isinstance(name, str)], columns, feedback, f"the {kind}")
    return Records(table, Origin(f"the {kind}"), chosen, name=kind)


class _OneByOne:
    """A file's columns, each read when it is used and not cached, so that no two are in memory at once."""

    def __init__(self, path: Path, dictionaries: Sequence[str]) -> None:
        self._path, self._dictionaries = path, dictionaries

    @property
    def num_rows(self) -> int:
        with _opened(self._path) as file:
            return int(file.metadata.num_rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        column = _read(self._path, [name], [n for n in self._dictionaries if n == name])[name]
        if len(column) != self.num_rows:
            raise DataError(f'"{self._path}" is damaged: its columns differ in length; get the file again.')
        return column


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in (".parquet", ".pq")


def _opened(path: Path, dictionaries: Sequence[str] = ()) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path, read_dictionary=list(dictionaries))
    except _UNREADABLE as error:
        reason = "it is not a Parquet file" if isinstance(error, pa.ArrowInvalid) else _first_line(error)
        raise DataError(f'"{path}" cannot be read: {reason}; write it again, or correct its ending.') from None


def _read(path: Path, names: list[str] | None, dictionaries: Sequence[str] = ()) -> pa.Table:
    with _opened(path, dictionaries) as file:
        try:
            table = file.read(columns=names).replace_schema_metadata()
            table.validate(full=True)  # finds text that is not UTF-8, too
            return table
        except _UNREADABLE as error:
            raise DataError(f'"{path}" is damaged: {_first_line(error)}; get the file again.') from None


def _first_line(error: BaseException) -> str:
    """The first line of an error, as far as it can be shown: it may hold bytes of a damaged file."""
    line = next(iter(str(error).splitlines()), "") or type(error).__name__
    return "".join(letter for letter in line if letter.isprintable())[:200]


def _without_views(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with views of text, as polars has them, made text."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        chunks = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string())) for c in column.chunks]
        return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.string()))
    return column
