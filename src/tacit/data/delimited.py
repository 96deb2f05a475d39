"""Text files: CSV, TSV and their kin, with any of the usual separators, with a header or not, gzipped or not.

Arrow parses; Python only looks at the first line beforehand and, once something is wrong, at the file again
to name the line.
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
from tacit.data.values import plain_numbers
from tacit.errors import DataError

SUFFIXES = (".csv", ".tsv", ".tab", ".dat", ".data", ".txt")
_SEPARATORS = ("::", "\t", ",", ";", "|")
_DOUBLE_COLON = "\x1f"  # what Arrow, which knows single characters only, is given for "::"
_TEXT = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Layout:
    """How a text file is written.

    Attributes
    ----------
    names : of the columns; "1", "2", … without a header
    separator : between them; "::" is allowed
    header_lines : to skip before the first row
    quoted : whether "…" encloses a value
    encoding : of the file
    """

    names: tuple[str, ...]
    separator: str
    header_lines: int = 0
    quoted: bool = True
    encoding: str = "utf-8"

    @property
    def delimiter(self) -> str:
        return _DOUBLE_COLON if self.separator == "::" else self.separator


def read(path: Path, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of one file; only the columns that matter are kept."""
    layout = sniff(path)
    positional = layout.header_lines == 0
    chosen = resolve(layout.names, columns, feedback, f'"{path}"', positional=positional)
    return Records(read_rows(path, layout, chosen), origin_of(path, layout), chosen, name=path.name)


def read_rows(path: Path, layout: Layout, chosen: Columns) -> pa.Table:
    """Ids, ratings and timestamps; numbers stay text where one of them is none, for its line to be named."""
    ids = [chosen.user, chosen.item]
    types: dict[str, pa.DataType] = dict.fromkeys(ids, _TEXT)
    if chosen.rating is not None:
        types[chosen.rating] = pa.float64()
    if chosen.attribute is not None:
        types[chosen.attribute] = _TEXT
    try:
        table = _arrow(path, layout, chosen.names, types)
    except pa.ArrowInvalid as error:
        _explain(path, layout, str(error))
        table = _arrow(path, layout, chosen.names, dict.fromkeys(chosen.names, _TEXT))
    for name in ids:
        if table.num_rows:
            table = table.set_column(table.column_names.index(name), name, plain_numbers(table[name]))
    return table


def read_side(path: Path, layout: Layout | None = None, names: Sequence[str] | None = None) -> tuple[pa.Table, Origin]:
    """All (or the named) columns of a side table: int64 or float64 where every entry is one, else text."""
    layout = layout or sniff(path)
    wanted = list(names or layout.names)
    try:
        table = _arrow(path, layout, wanted, dict.fromkeys(wanted, pa.string()))
    except pa.ArrowInvalid as error:
        _explain(path, layout, str(error))
        raise DataError(f'"{path}" cannot be read: {str(error).splitlines()[0]}; mend the file.') from None
    origin = origin_of(path, layout)
    if not table.num_rows:
        raise DataError(f'There are no rows in "{path}"; give a table with at least one.')
    return pa.table({name: _typed(table[name]) for name in wanted}), origin


def origin_of(path: Path, layout: Layout) -> Origin:
    return Origin(f'"{path}"', lambda row: _line(path, layout, row))


def sniff(path: Path) -> Layout:
    """The layout, from the first line that is not blank.

    The separator is the most frequent of :: tab , ; | (a blank if there is none of them). The line is a
    header if none of its values is a number.
    """
    try:
        with _open(path) as file:
            start = file.read(1 << 16)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f'"{path}" cannot be read: {reason}; check its name and your rights to it.') from None
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in start:
        raise DataError(f'"{path}" is not UTF-8 text; save it as UTF-8 (in a spreadsheet: "CSV UTF-8").')
    lines = [line.decode("utf-8", errors="replace") for line in start.removeprefix(codecs.BOM_UTF8).splitlines()]
    place = next((number for number, line in enumerate(lines) if line.strip()), None)
    if place is None:
        raise DataError(f'"{path}" is empty; give a file with one rating per line.')
    line = lines[place]
    separator = max(_SEPARATORS, key=line.count)
    if not line.count(separator):
        separator = "," if ".csv" in path.suffixes else " "
    quoted = separator in ",;\t"
    delimiter = _DOUBLE_COLON if separator == "::" else separator
    cells = [cell.strip() for cell in next(_reader([line], separator, delimiter, quoted))]
    if any(_is_number(cell) for cell in cells):
        return Layout(tuple(str(k + 1) for k in range(len(cells))), separator, 0, quoted)
    return Layout(tuple(cells), separator, place + 1, quoted)


def is_utf8(path: Path) -> bool:
    """Whether a (small) file is UTF-8; the older MovieLens sets are Latin-1."""
    try:
        path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _arrow(path: Path, layout: Layout, names: Sequence[str], types: Mapping[str, pa.DataType]) -> pa.Table:
    stream = pa.input_stream(str(path))
    if layout.separator == "::":
        stream = pa.TransformInputStream(stream, _DoubleColons())
    try:
        return arrow_csv.read_csv(
            stream,
            read_options=arrow_csv.ReadOptions(
                column_names=list(layout.names), skip_rows=layout.header_lines, encoding=layout.encoding
            ),
            parse_options=arrow_csv.ParseOptions(
                delimiter=layout.delimiter,
                quote_char='"' if layout.quoted else False,
                newlines_in_values=layout.quoted,
            ),
            convert_options=arrow_csv.ConvertOptions(
                include_columns=list(names),
                column_types=dict(types),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV file" not in str(error):
            raise
        return pa.table({name: pa.array([], types.get(name, pa.string())) for name in names})
    except OSError as error:
        raise DataError(f'"{path}" cannot be read: {str(error).splitlines()[0]}; get the file anew.') from None


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
        whole = column.cast(pa.int64())
        if whole.cast(pa.string()).equals(column):
            return whole
    except pa.ArrowInvalid:
        pass
    try:
        numbers = column.cast(pa.float64())
    except pa.ArrowInvalid:
        return column
    texts = (text for text in column.to_pylist() if text is not None)
    padded = any(len(t) > 1 and t[0] == "0" and t[1] != "." for t in texts)
    return column if padded or column.null_count == len(column) else numbers


# -- only once something is wrong ----------------------------------------------------------------------------


def _explain(path: Path, layout: Layout, problem: str) -> None:
    """Raise the sentence for a line that is not UTF-8 or has too few or too many values, if there is one."""
    width = len(layout.names)
    for line, cells in _records(path, layout):
        if cells is None:
            raise DataError(
                f'Line {line} of "{path}" is not UTF-8 text; save the file as UTF-8 '
                f"(for example: iconv -f latin1 -t utf-8 in.csv > out.csv)."
            )
        if len(cells) != width:
            raise DataError(
                f'Line {line} of "{path}" has {len(cells)} values where {width} are expected (separated by '
                f"{_spoken(layout.separator)}); correct the line, or quote values that contain a separator."
            )
    if "conversion error" not in problem:
        raise DataError(f'"{path}" cannot be read: {problem.splitlines()[0]}; mend the file.') from None


def _line(path: Path, layout: Layout, row: int) -> int:
    for number, (line, _) in enumerate(_records(path, layout)):
        if number == row:
            return line
    return row + 1 + layout.header_lines


def _records(path: Path, layout: Layout) -> Iterator[tuple[int, list[str] | None]]:
    """Every row that Arrow sees: its line in the file and its values, or None for one that is not UTF-8."""
    with _open(path) as file:
        for _ in range(layout.header_lines):
            file.readline()
        decoded = (line.decode(layout.encoding).removeprefix("\ufeff") for line in file)
        rows = _reader(decoded, layout.separator, layout.delimiter, layout.quoted)
        while True:
            line = layout.header_lines + rows.line_num + 1
            try:
                cells = next(rows)
            except (
                StopIteration,
                csv.Error,
            ):  # a value too long for Python's reader: Arrow can, lines end here
                return
            except UnicodeDecodeError:
                yield line, None
                return
            if cells:
                yield line, cells


def _reader(lines: Iterator[str] | list[str], separator: str, delimiter: str, quoted: bool) -> Any:
    replaced = (line.replace(separator, delimiter) if separator == "::" else line for line in lines)
    return csv.reader(replaced, delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE)


def _open(path: Path) -> IO[bytes]:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _spoken(separator: str) -> str:
    return {"\t": "tabs", ",": "commas", ";": "semicolons", "|": "bars", " ": "blanks"}.get(separator, "double colons")
