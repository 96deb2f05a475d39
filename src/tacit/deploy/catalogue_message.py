"""The catalogue in a message: ids as JSON, and each named column of attributes as a plain array.

Labels are JSON and numbers float32, so that a forged offer meets no decoder but the wire's and JSON's. The memory that
it takes is bounded by its size, and features by `MOST_CELLS`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.boundary.wire import Array, Value
from tacit.data.catalogue import LABELS, NUMBERS, Catalogue, id_bytes
from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.errors import BadMessage

#: The keys of the ids and of the columns, by number, in a message.
IDS, COLUMN = "items", "features/{}"


def catalogue_content(catalogue: Catalogue) -> dict[str, Value]:
    """The catalogue as part of a message; the run file has the names of its columns."""
    content: dict[str, Value] = {IDS: ids_array(catalogue.ids)}
    for place, name in enumerate(catalogue.columns):
        numeric = catalogue.attributes is not None and catalogue.attributes.schema.field(name).type == NUMBERS
        dtype = np.float32 if numeric else np.uint8
        content[COLUMN.format(place)] = np.frombuffer(catalogue.column_bytes(name), dtype=dtype)
    return content


def read_catalogue_content(content: Mapping[str, Any], columns: tuple[str, ...]) -> Catalogue | None:
    """The catalogue in a message, None if there is none; columns that are not in canonical form are refused."""
    if IDS not in content:
        if columns:
            raise BadMessage("A run uses attributes of items, and its offer has no list of items.")
        return None
    ids = read_ids(content[IDS])
    if not columns:
        return Catalogue(ids)
    sent = {name: content[COLUMN.format(place)] for place, name in enumerate(columns)}
    found = Catalogue(ids, pa.table({name: _column(raw, len(ids)) for name, raw in sent.items()}), columns)
    if any(found.column_bytes(name) != raw.tobytes() for name, raw in sent.items()):
        raise BadMessage("The items' attributes are not in canonical form; they were damaged or forged.")
    return found


def ids_array(ids: Vocabulary) -> Array:
    """A list of ids as JSON bytes, which keep text and numbers apart."""
    return np.frombuffer(id_bytes(ids), dtype=np.uint8)


def read_ids(raw: object) -> Vocabulary:
    """The list of ids in a message."""
    found = _json(raw, "A list of items")
    if not isinstance(found, list) or not all(isinstance(id, (int, str)) and not isinstance(id, bool) for id in found):
        raise BadMessage("A list of items holds an invalid id; it was damaged or forged.")
    ids = as_ids(found)
    if len(ids) == 0 or np.any(ids[1:] <= ids[:-1]):
        raise BadMessage("A list of items is empty, or not in order; it was damaged or forged.")
    return Vocabulary(ids, "item")


def _column(raw: object, items: int) -> pa.Array:
    """One column of attributes in a message."""
    if isinstance(raw, np.ndarray) and raw.dtype == np.float32:
        if raw.shape != (items,) or np.isinf(raw).any():
            raise BadMessage(f"A column of the items' attributes is not {items:,} numbers; it was damaged or forged.")
        return pa.array(raw, NUMBERS, mask=np.isnan(raw))
    found = _json(raw, "A column of the items' attributes")
    if not isinstance(found, list) or len(found) != items or not all(map(_are_labels, found)):
        raise BadMessage(f"A column of the items' attributes is not {items:,} lists of text; it was damaged or forged.")
    return pa.array(found, LABELS)


def _are_labels(row: object) -> bool:
    return isinstance(row, list) and all(isinstance(label, str) for label in row)


def _json(raw: object, what: str) -> Any:
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8:
        raise BadMessage(f"{what} is not bytes; it was damaged or forged.")
    try:
        return json.loads(raw.tobytes())
    except (ValueError, RecursionError):
        raise BadMessage(f"{what} is not JSON; it was damaged or forged.") from None
