"""Arrow columns as ids, numbers and seconds; values that cannot be read as such are marked and explained."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.columns import Origin, columns_hint
from tacit.errors import DataError

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(?i:nan|inf|infinity)")
_LATEST = 2.0**62  # seconds
_WITHOUT_TIMES = f"or load without timestamps: {columns_hint({'timestamp': ''})}"


@dataclass(frozen=True, eq=False)
class Problem:
    """The bad rows of one column, (rows,) bool, and what is wrong with a given row, to follow "Line 3 of …"."""

    bad: np.ndarray
    explain: Callable[[int], str]


def shortened(text: str) -> str:
    """The beginning of a value's first line: enough to find it, and no more of the data than that."""
    first = text.split("\n", 1)[0]
    return first if first == text and len(text) <= 40 else first[:40] + "…"


def quoted_id(id: Any) -> str:
    """An id as messages show it: text in quotes."""
    return f'"{shortened(id)}"' if isinstance(id, str) else str(id)


def read_ids(column: pa.ChunkedArray, kind: str, origin: Origin) -> tuple[np.ndarray, np.ndarray, Problem | None]:
    """The distinct ids of a column, and which of them each row has.

    Text is trimmed. Integers of any type become int64, everything else text; text stays text even where it looks like a
    number (a reader of text files has decided that already, see `plain_integers`).

    Returns
    -------
    places : (rows,) int32, positions in `ids`; without meaning in bad rows
    ids : (k,) int64 or object (str), without repetition, in no particular order
    problem : the rows without an id, or None
    """
    column = _unwrapped(column)
    if pa.types.is_nested(column.type):
        raise _no_ids(column.type, kind, origin)
    encoded = encode(column)
    indices = pc.fill_null(encoded.indices, -1) if encoded.null_count else encoded.indices
    places = indices.to_numpy(zero_copy_only=False)
    values, missing = encoded.dictionary, np.zeros(len(encoded.dictionary), dtype=bool)
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        missing = np.isnan(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
        fraction = pc.not_equal(pc.floor(values), values).to_numpy(zero_copy_only=False) & ~missing
        if fraction.any():
            bad = int(np.argmax(fraction[places]))
            raise DataError(
                f"{origin.at(bad)} has the {kind} id {values[places[bad]].as_py()}; ids are integers or text, so name "
                f"another column for the {kind}s."
            )
        if missing.any():
            values = pc.if_else(pa.array(missing), pa.scalar(0, values.type), values)
    if not is_text(values.type):
        values = _integers_or_text(values, kind, origin, places)
    if is_text(values.type):
        values = pc.utf8_trim_whitespace(values)
        missing = pc.equal(values, "").to_numpy(zero_copy_only=False)
    problem = None
    if encoded.null_count or missing.any():
        gaps = (places < 0) | (missing[places] if len(missing) else False)
        problem = Problem(gaps, lambda row: f"has no {kind} id; fill it in, or delete the {origin.unit}")
    again = values.dictionary_encode()  # trimming may have made two of them one
    if len(again.dictionary) < len(values):
        values, places = again.dictionary, again.indices.to_numpy()[places]
    return places, values.to_numpy(zero_copy_only=False), problem


def distinct_ids(column: pa.ChunkedArray, kind: str, origin: Origin) -> tuple[np.ndarray, np.ndarray]:
    """`read_ids` of a column in which every row must have an id."""
    places, ids, problem = read_ids(column, kind, origin)
    if problem is not None:
        row = int(np.argmax(problem.bad))
        raise DataError(f"{origin.at(row)} {problem.explain(row)}.")
    return places, ids


def plain_integers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text from a file without types: int64 where every entry is an integer written plainly, else text.

    "007" stays text, and so does its whole column: an id comes out as it went in.
    """
    encoded = encode(column)
    trimmed = pc.utf8_trim_whitespace(encoded.dictionary)
    try:
        integers = trimmed.cast(pa.int64())
    except pa.ArrowInvalid:
        return column
    if not pc.all(pc.equal(integers.cast(trimmed.type), trimmed)).as_py():
        return column
    return pa.chunked_array([pa.DictionaryArray.from_arrays(encoded.indices, integers)])


def read_numbers(column: pa.ChunkedArray, what: str, origin: Origin) -> np.ndarray:
    """A column as float64 (float32 stays); NaN where a value is missing or is not a number."""
    column = decoded(column)
    if is_text(column.type):
        return _parsed(column, [pa.float64()], lambda text: float(text) if _NUMBER.fullmatch(text) else None).to_numpy()
    if not (is_number(column.type) or pa.types.is_boolean(column.type)):
        raise DataError(f"The {what}s of {origin.name} are of type {column.type}; give a column of numbers.")
    column = column if column.type == pa.float32() else column.cast(pa.float64(), safe=False)
    return (pc.fill_null(column, np.nan) if column.null_count else column).to_numpy()


def explain_number(value: Any, what: str, origin: Origin) -> str | None:
    """What is wrong with a value that is missing or not a number; None for a number."""
    mend = f"correct the {origin.unit} or delete it"
    if is_blank(value):
        return f"has no {what}; fill it in, or delete the {origin.unit}"
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        comma = "; write decimals with a point" if "," in value else ""
        return f'has the {what} "{shortened(value)}", which is not a number{comma}; {mend}'
    if not abs(float(value)) <= float(np.finfo(np.float32).max):
        return f"has the {what} {float(value):g}, which is not a finite number that can be computed with; {mend}"
    return None


def read_times(column: pa.ChunkedArray, origin: Origin) -> tuple[np.ndarray, Problem | None]:
    """A column of times as int64 seconds since 1970 (numbers as they are, dates and ISO texts converted); a problem."""
    raw = column = decoded(column)
    if is_text(column.type):
        column = _parsed(column, [pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")], _time)
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = pc.divide(column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()), 1.0e6)
    if not is_number(column.type):
        raise DataError(
            f"The timestamps of {origin.name} are of type {column.type}; give seconds or dates, {_WITHOUT_TIMES}."
        )
    if pa.types.is_integer(column.type) and not column.null_count:
        values = column.to_numpy()
    else:
        values = np.floor(pc.fill_null(column.cast(pa.float64()), np.nan).to_numpy())
    if values.min() > -_LATEST and values.max() < _LATEST:  # false where there is a NaN
        return values.astype(np.int64, copy=False), None
    bad = ~(np.abs(values) < _LATEST)

    def explain(row: int) -> str:
        value = raw[row].as_py()
        if is_blank(value):
            return f"has no timestamp; fill it in, or delete the {origin.unit}, {_WITHOUT_TIMES}"
        shown = f'"{shortened(value)}"' if isinstance(value, str) else value
        return f"has the timestamp {shown}, which is not a time; give seconds or dates, {_WITHOUT_TIMES}"

    return np.where(bad, 0, values).astype(np.int64), Problem(bad, explain)


def is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def encode(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """The column as one dictionary array whose dictionary has no null."""
    if pa.types.is_dictionary(column.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
        column = decoded(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    combined = column.unify_dictionaries().combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column without dictionary or extension type."""
    column = _unwrapped(column)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _parsed(column: pa.ChunkedArray, kinds: list[pa.DataType], parse: Callable[[str], float | None]) -> pa.ChunkedArray:
    """Text as the first kind that fits every entry; where none does, each distinct text by `parse`, NaN for None."""
    column = pc.utf8_trim_whitespace(column)
    if not column.null_count:
        for kind in kinds:
            try:
                return column.cast(kind)
            except pa.ArrowInvalid:
                continue
    encoded = encode(column)
    numbers = pa.array([parse(text) for text in encoded.dictionary.to_pylist()], pa.float64())
    return pa.chunked_array([pc.fill_null(numbers.take(encoded.indices), np.nan)])


def _time(text: str) -> float | None:
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _unwrapped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without an extension type: PostgreSQL's numeric, for one, is text in a wrapper."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def _integers_or_text(values: pa.Array, kind: str, origin: Origin, places: np.ndarray) -> pa.Array:
    if values.type == pa.binary(16):
        return pa.array([str(UUID(bytes=value)) for value in values.to_pylist()], pa.string())
    if not is_number(values.type):
        try:
            return values.cast(pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise _no_ids(values.type, kind, origin) from None
    try:
        return values.cast(pa.int64())
    except pa.ArrowInvalid:
        size = np.abs(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        bad = int(np.argmax((size >= 2.0**63)[places]))
        raise DataError(
            f"{origin.at(bad)} has the {kind} id {values[places[bad]].as_py()}, which does not fit into 64 bits; give "
            "such ids as text."
        ) from None


def _no_ids(type: pa.DataType, kind: str, origin: Origin) -> DataError:
    return DataError(f"The {kind} ids of {origin.name} are of type {type}; give integers or text.")
