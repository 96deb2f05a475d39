"""Tables that are in memory already: Arrow tables, and pandas and polars frames, by Arrow's own interface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from tacit.data.columns import Origin, Records, resolve
from tacit.data.ratings import Feedback
from tacit.errors import DataError


def is_frame(source: object) -> bool:
    """Whether this is a table: anything that hands its columns over as an Arrow stream, or a pandas frame."""
    return hasattr(source, "__arrow_c_stream__") or type(source).__module__.split(".")[0] == "pandas"


def read(source: Any, columns: Mapping[str, str] | None, feedback: Feedback) -> Records:
    """The records of a table in memory; rows are counted from 1, and a pandas index is left out."""
    kind = type(source).__name__
    try:
        table = pa.table(source)
        table = pa.table({name: _text(table[name]) for name in table.column_names})
    except (pa.ArrowException, TypeError, ValueError, KeyError) as error:
        raise DataError(
            f"The {kind} cannot be read as a table: {str(error).splitlines()[0]}; give it columns of one kind each, "
            "named user, item and rating."
        ) from None
    chosen = resolve([name for name in table.column_names if isinstance(name, str)], columns, feedback, f"the {kind}")
    return Records(table, Origin(f"the {kind}"), chosen, name=kind)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The column with views of text, as polars has them, made text."""
    if pa.types.is_string_view(column.type):
        return column.cast(pa.large_string())
    if pa.types.is_dictionary(column.type) and pa.types.is_string_view(column.type.value_type):
        chunks = [pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string())) for c in column.chunks]
        return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.string()))
    return column
