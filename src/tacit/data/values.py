"""Arrow columns as ids, numbers and seconds; what cannot be read as such is named with its row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.columns import Origin, called
from tacit.errors import DataError


def glimpse(text: str) -> str:
    """The beginning of a value's first line: enough to find it, and no more of the data than that."""
    first = text.split("\n", 1)[0]
    return first if first == text and len(text) <= 40 else first[:40] + "…"


def quoted_id(id: Any) -> str:
    """An id as messages show it: text in quotes."""
    return f'"{glimpse(id)}"' if isinstance(id, str) else str(id)


def distinct_ids(column: pa.ChunkedArray, kind: str, origin: Origin) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ids of a column, and which of them each row has.

    Text is trimmed. Whole numbers of any type become int64, everything else text; text stays text even where
    it looks like a number (a reader of text files has decided that already, see `plain_numbers`).

    Returns
    -------
    places : (rows,) int32, positions in `ids`
    ids : (k,) int64 or object (str), without repetition, in no particular order
    """
    _no_gaps(column, f"{kind} id", origin)
    column = _unwrapped(column)
    if pa.types.is_nested(column.type):
        raise _no_ids(column.type, kind, origin)
    encoded = _dictionary(column)
    places = encoded.indices.to_numpy(zero_copy_only=False)
    values = encoded.dictionary
    if pa.types.is_floating(values.type) or pa.types.is_decimal(values.type):
        gaps = np.isnan(values.cast(pa.float64()).to_numpy(zero_copy_only=False))
        if gaps.any():
            _gap(int(np.argmax(gaps[places])), f"{kind} id", origin)
        whole = pc.equal(pc.floor(values), values)
        if not pc.all(whole).as_py():
            bad = int(np.argmax(~whole.to_numpy(zero_copy_only=False)[places]))
            raise DataError(
                f"{origin.at(bad)} has the {kind} id {values[places[bad]].as_py()}; ids are whole numbers or "
                f"text, so name another column for the {kind}s."
            )
    if not is_text(values.type):
        values = _whole(values, kind, origin, places)
    if is_text(values.type):
        values = pc.utf8_trim_whitespace(values)
        blank = pc.equal(values, "").to_numpy(zero_copy_only=False)
        if blank.any():
            _gap(int(np.argmax(blank[places])), f"{kind} id", origin)
    again = values.dictionary_encode()  # trimming may have made two of them one
    if len(again.dictionary) < len(values):
        values, places = again.dictionary, again.indices.to_numpy()[places]
    return places, values.to_numpy(zero_copy_only=False)


def plain_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Text from a file without types: int64 where every entry is a whole number written plainly, else text.

    "007" stays text, and so does the column that it stands in: an id comes out as it went in.
    """
    encoded = _dictionary(column)
    trimmed = pc.utf8_trim_whitespace(encoded.dictionary)
    try:
        whole = trimmed.cast(pa.int64())
    except pa.ArrowInvalid:
        return column
    if not pc.all(pc.equal(whole.cast(trimmed.type), trimmed)).as_py():
        return column
    return pa.chunked_array([pa.DictionaryArray.from_arrays(encoded.indices, whole)])


def numbers(column: pa.ChunkedArray, what: str, origin: Origin) -> np.ndarray:
    """A column as float64 (float32 stays) without gaps; NaN and infinity pass, for the caller to judge."""
    column = decoded(column)
    if is_text(column.type):
        column = _trimmed(column)
    elif not (is_number(column.type) or pa.types.is_boolean(column.type)):
        raise DataError(f"The {what}s of {origin.name} are of type {column.type}; give a column of numbers.")
    _no_gaps(column, what, origin)
    if not is_text(column.type):
        return (column if column.type == pa.float32() else column.cast(pa.float64(), safe=False)).to_numpy()
    comma = "; write decimals with a point"

    def complain(row: int, text: str) -> str:
        return (
            f'{origin.at(row)} has the {what} "{glimpse(text)}", which is not a number{comma if "," in text else ""}; '
            f"correct the {origin.unit} or delete it."
        )

    return _cast(column, pa.float64(), complain).to_numpy()


def seconds(column: pa.ChunkedArray, origin: Origin) -> np.ndarray:
    """A column of times as int64 seconds since 1970: numbers as they are, dates and ISO texts converted."""
    column = decoded(column)
    if is_text(column.type):
        column = _trimmed(column)
        _no_gaps(column, "timestamp", origin)
        column = _times_from_text(column, origin)
    _no_gaps(column, "timestamp", origin)
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return column.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy() // 1_000_000
    if not is_number(kind):
        raise DataError(f"The timestamps of {origin.name} are of type {kind}; {_NO_TIMES}.")
    values = column.to_numpy() if pa.types.is_integer(kind) else column.cast(pa.float64()).to_numpy()
    if not (values.min() > -(2.0**62) and values.max() < 2.0**62):  # a NaN is neither
        bad = int(np.argmax(~(np.abs(values) < 2.0**62)))
        raise DataError(f"{origin.at(bad)} has the timestamp {values[bad]}, which is no time; {_NO_TIMES}.")
    return np.floor(values).astype(np.int64) if values.dtype.kind == "f" else values.astype(np.int64, copy=False)


_NO_COLUMN = called({"timestamp": ""})
_WITHOUT = f"do without with {_NO_COLUMN}"
_NO_TIMES = f"give seconds or dates, or {_WITHOUT}"
TIME_TYPES = (pa.int64(), pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))


def _times_from_text(column: pa.ChunkedArray, origin: Origin) -> pa.ChunkedArray:
    def complain(row: int, text: str) -> str:
        return f'{origin.at(row)} has the timestamp "{glimpse(text)}", which is no time; {_NO_TIMES}.'

    fitting = [kind for kind in TIME_TYPES if casts(column.slice(0, 1), kind)]
    for kind in fitting:
        if casts(column, kind):
            return column.cast(kind)
    return _cast(column, fitting[-1] if fitting else pa.timestamp("us"), complain)


def _dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    if pa.types.is_dictionary(column.type) and any(chunk.dictionary.null_count for chunk in column.chunks):
        column = decoded(column)
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    combined = column.unify_dictionaries().combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def _unwrapped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Without an extension type: PostgreSQL's numeric, for one, is text in a wrapper."""
    if not isinstance(column.type, pa.BaseExtensionType):
        return column
    return pa.chunked_array([chunk.storage for chunk in column.chunks], column.type.storage_type)


def decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = _unwrapped(column)
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def _trimmed(column: pa.ChunkedArray) -> pa.ChunkedArray:
    column = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, column.type), column)


def _whole(values: pa.Array, kind: str, origin: Origin, places: np.ndarray) -> pa.Array:
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
            f"{origin.at(bad)} has the {kind} id {values[places[bad]].as_py()}, which does not fit into "
            f"64 bits; give such ids as text."
        ) from None


def _no_ids(type: pa.DataType, kind: str, origin: Origin) -> DataError:
    return DataError(f"The {kind} ids of {origin.name} are of type {type}; give whole numbers or text.")


def _no_gaps(column: pa.ChunkedArray, what: str, origin: Origin) -> None:
    if column.null_count:
        _gap(pc.index(column.is_null(), True).as_py(), what, origin)


def _gap(row: int, what: str, origin: Origin) -> None:
    without = f", or {_WITHOUT}" if what == "timestamp" else ""
    raise DataError(f"{origin.at(row)} has no {what}; fill it in, or delete the {origin.unit}{without}.")


def _cast(column: pa.ChunkedArray, kind: pa.DataType, complain: Callable[[int, str], str]) -> pa.ChunkedArray:
    """`column` as `kind`; the first value that is none is found by halving, and complained of."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        low, high = 0, len(column)
        while high - low > 1:
            middle = (low + high) // 2
            if casts(column.slice(low, middle - low), kind):
                low = middle
            else:
                high = middle
        raise DataError(complain(low, str(column[low].as_py()))) from None


def casts(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    try:
        column.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
