"""Text files: CSV, TSV and the like, with any usual separator, with a header or not, gzipped or not.

Arrow parses. Python reads the first line beforehand and, once something is wrong, the file again to name the line.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from tacit.data.columns import Columns, Origin, Records, resolve
from tacit.data.ratings import Feedback
from tacit.data.values import plain_integers
from tacit.errors import DataError

_SEPARATORS = {"::": "double colons", "\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars"}
_DOUBLE_COLON = "\x1f"  # stands in for "::", since Arrow takes single characters only
_TEXT = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Layout:
    """How a text file is written; `names` of columns are "1", "2", … without a header."""

    names: tuple[str, ...]
    separator: str
    header_lines: int = 0
    quoted: bool = True
    encoding: str = "utf-8"

    @property
    def delimiter(self) -> str:
        return _DOUBLE_COLON if self.separator == "::" else self.separator


def read(path: Path, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of one file; only the columns that matter are read."""
    layout = sniff(path)
    chosen = resolve(layout.names, columns, feedback, f'"{path}"', positional=not layout.header_lines)
    return read_records(path, layout, chosen, name=path.name)


def read_records(path: Path, layout: Layout, chosen: Columns, **others: Any) -> Records:
    """Ids, ratings and timestamps; numbers stay text if one of them is malformed, so that its line can be named."""
    types: dict[str, pa.DataType] = {chosen.user: _TEXT, chosen.item: _TEXT}
    if chosen.rating is not None:
        types[chosen.rating] = pa.float64()
    if chosen.attribute is not None:
        types[chosen.attribute] = _TEXT
    try:
        table = _arrow(path, layout, chosen.names, types)
    except pa.ArrowInvalid as error:
        _explain(path, layout, str(error))
        table = _arrow(path, layout, chosen.names, dict.fromkeys(chosen.names, _TEXT))
    for name in (chosen.user, chosen.item):
        if table.num_rows:
            table = table.set_column(table.column_names.index(name), name, plain_integers(table[name]))
    return Records(table, _origin(path, layout), chosen, **others)


def read_whole(path: Path, layout: Layout | None = None, names: Sequence[str] | None = None) -> tuple[pa.Table, Origin]:
    """All (or the named) columns of a small file: int64 or float64 where every entry is one, else text."""
    layout = layout or sniff(path)
    wanted = list(names or layout.names)
    try:
        table = _arrow(path, layout, wanted, dict.fromkeys(wanted, pa.string()))
    except pa.ArrowInvalid as error:
        _explain(path, layout, str(error))
        raise DataError(f'"{path}" cannot be read: {str(error).splitlines()[0]}; correct the file.') from None
    if not table.num_rows:
        raise DataError(f'There are no rows in "{path}"; give a table with at least one.')
    return pa.table({name: _typed(table[name]) for name in wanted}), _origin(path, layout)


def sniff(path: Path) -> Layout:
    """The layout, from the first line that is not blank.

    The separator is the most frequent of :: tab , ; | (a blank if the line has none of them). The line is a header if
    none of its values is a number.
    """
    try:
        with _open(path) as file:
            start = file.read(1 << 16)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f'"{path}" cannot be read: {reason}; check its name and your permissions.') from None
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in start:
        raise DataError(f'"{path}" is not UTF-8 text; save it as UTF-8 (in a spreadsheet: "CSV UTF-8").')
    lines = [line.decode("utf-8", errors="replace") for line in start.removeprefix(codecs.BOM_UTF8).splitlines()]
    place = next((number for number, line in enumerate(lines) if line.strip()), None)
    if place is None:
        raise DataError(f'"{path}" is empty; give a file with one rating per line.')
    separator = max(_SEPARATORS, key=lines[place].count)
    if separator not in lines[place]:
        separator = "," if ".csv" in path.suffixes else " "
    layout = Layout((), separator, place + 1, separator in ",;\t")
    cells = [cell.strip() for cell in next(_reader([lines[place]], layout))]
    if any(_is_number(cell) for cell in cells):
        return Layout(tuple(str(k + 1) for k in range(len(cells))), separator, 0, layout.quoted)
    return Layout(tuple(cells), separator, place + 1, layout.quoted)


def _arrow(path: Path, layout: Layout, names: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table:
    stream = pa.input_stream(str(path))
    if layout.separator == "::":
        stream = pa.TransformInputStream(stream, _DoubleColons())
    reading = arrow_csv.ReadOptions(
        column_names=list(layout.names), skip_rows=layout.header_lines, encoding=layout.encoding
    )
    parsing = arrow_csv.ParseOptions(
        delimiter=layout.delimiter, quote_char='"' if layout.quoted else False, newlines_in_values=layout.quoted
    )
    converting = arrow_csv.ConvertOptions(
        include_columns=list(names), column_types=dict(types), null_values=[""], strings_can_be_null=True
    )
    try:
        return arrow_csv.read_csv(stream, reading, parsing, converting)
    except pa.ArrowInvalid as error:
        if "Empty CSV file" not in str(error):
            raise
        return pa.table({name: pa.array([], types.get(name, pa.string())) for name in names})
    except OSError as error:
        raise DataError(f'"{path}" cannot be read: {str(error).splitlines()[0]}; get the file again.') from None


class _DoubleColons:
    """Replaces "::" block by block; a colon at the end of a block waits for the next."""

    def __init__(self) -> None:
        self.waiting = b""

    def __call__(self, block: bytes) -> bytes:
        block = self.waiting + bytes(block)
        self.waiting = b":" if block.endswith(b":") and not block.endswith(b"::") else b""
        return block[: len(block) - len(self.waiting)].replace(b"::", _DOUBLE_COLON.encode())


def _typed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of text as numbers where that loses nothing: a zip code with a leading zero stays text."""
    try:
        integers = column.cast(pa.int64())
        if integers.cast(pa.string()).equals(column):
            return integers
    except pa.ArrowInvalid:
        pass
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowInvalid:
        return column
    texts = (text for text in column.to_pylist() if text is not None)
    padded = any(len(t) > 1 and t[0] == "0" and t[1] != "." for t in texts)
    return column if padded or column.null_count == len(column) else numbers


def _explain(path: Path, layout: Layout, problem: str) -> None:
    """Raise the sentence for a line that is not UTF-8 or has too few or too many values, if there is one."""
    for line, cells in _rows(path, layout):
        if cells is None:
            raise DataError(
                f'Line {line} of "{path}" is not UTF-8 text; save the file as UTF-8 '
                f"(for example: iconv -f latin1 -t utf-8 in.csv > out.csv)."
            )
        if len(cells) != len(layout.names):
            raise DataError(
                f'Line {line} of "{path}" has {len(cells)} values where {len(layout.names)} are expected (separated by '
                f"{_SEPARATORS.get(layout.separator, 'blanks')}); correct the line, or quote values that contain a "
                "separator."
            )
    if "conversion error" not in problem:
        raise DataError(f'"{path}" cannot be read: {problem.splitlines()[0]}; correct the file.') from None


def _origin(path: Path, layout: Layout) -> Origin:
    def line(row: int) -> int:
        lines = (line for number, (line, _) in enumerate(_rows(path, layout)) if number == row)
        return next(lines, row + 1 + layout.header_lines)

    return Origin(f'"{path}"', line)


def _rows(path: Path, layout: Layout) -> Iterator[tuple[int, list[str] | None]]:
    """Every row that Arrow reads: its line in the file and its values, or None if it is not UTF-8."""
    with _open(path) as file:
        for _ in range(layout.header_lines):
            file.readline()
        rows = _reader((line.decode(layout.encoding).removeprefix("\ufeff") for line in file), layout)
        while True:
            line = layout.header_lines + rows.line_num + 1
            try:
                cells = next(rows)
            except (StopIteration, csv.Error):  # a value that is too long for Python's reader, and not for Arrow's
                return
            except UnicodeDecodeError:
                yield line, None
                return
            if cells:
                yield line, cells


def _reader(lines: Iterator[str] | list[str], layout: Layout) -> Any:
    replaced = (line.replace("::", _DOUBLE_COLON) if layout.separator == "::" else line for line in lines)
    return csv.reader(
        replaced, delimiter=layout.delimiter, quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE
    )


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
