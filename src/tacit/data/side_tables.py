"""Side tables: attributes of users and items, and the declared catalogue of items."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.arrow_tables import is_file, read_whole
from tacit.data.catalogue import Catalogue, named_column
from tacit.data.columns import Origin, capital, id_column
from tacit.data.values import distinct_ids, quoted_id
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError


def read_side(path: str | Path, kind: str) -> tuple[pa.Table, Origin]:
    """A CSV or Parquet table that describes users or items; its id column comes first, called `kind`."""
    try:
        path = Path(path).expanduser()
    except RuntimeError:  # there is no such home
        path = Path(path)
    if not is_file(path):
        raise DataError(f'There is no {kind} table "{str(path)[:200]}"; check the path.')
    table, origin = read_whole(path)
    found = id_column(table.column_names, kind, origin.name)
    others = [name for name in table.column_names if name != found]
    return table.select([found, *others]).rename_columns([kind, *others]), origin


def read_catalogue(path: str | Path, features: Sequence[str] = ()) -> Catalogue:
    """The items that a file lists, with those of their attributes that `features` names."""
    return catalogue_of(*read_side(path, "item"), features)


def catalogue_of(table: pa.Table, origin: Origin, features: Sequence[str] = ()) -> Catalogue:
    """The items that a side table describes, with those of their attributes that `features` names."""
    ids = Vocabulary(np.unique(distinct_ids(table["item"], "item", origin)[1]), "item")
    return Catalogue(ids, public_attributes(table, ids, origin, features), tuple(features))


def public_attributes(
    table: pa.Table | None, items: Vocabulary, origin: Origin, features: Sequence[str]
) -> pa.Table | None:
    """The named columns of an item table, whose rows must describe every item; in the items' order."""
    if not features:
        return None
    for name in features:
        named_column(table, name, capital(origin.name))
    assert table is not None
    described = items.rows(distinct_ids(table["item"], "item", origin)[1])
    missing = np.setdiff1d(np.arange(len(items)), described)
    if len(missing):
        raise DataError(
            f"Item {quoted_id(items.ids[missing[0]])} has no {origin.unit} in {origin.name}, and [public] features "
            f"needs one for every item ({len(missing):,} of {len(items):,} have none); add the item, with empty cells "
            "where a value is unknown."
        )
    return align(table.select(["item", *dict.fromkeys(features)]), items, origin)


def listed_ids(table: pa.Table | None, kind: str, origin: Origin) -> np.ndarray | None:
    """The ids that a side table describes, or None without one."""
    return None if table is None else distinct_ids(table[kind], kind, origin)[1]


def align(table: pa.Table, vocabulary: Vocabulary, origin: Origin) -> pa.Table | None:
    """The side table's rows in the order of the vocabulary, nulls for ids without a row; without its id column.

    None if it has no other column. Rows of ids outside the vocabulary are left out.
    """
    places, ids = distinct_ids(table[vocabulary.kind], vocabulary.kind, origin)
    if len(ids) < len(places):
        _, first_of = np.unique(places, return_index=True)
        again = int(np.setdiff1d(np.arange(len(places)), first_of)[0])
        raise DataError(
            f"{origin.at(again)} describes {vocabulary.kind} {quoted_id(ids[places[again]])} a second time; "
            f"delete all but one {origin.unit} per {vocabulary.kind}."
        )
    described = table.drop_columns([vocabulary.kind])
    if not described.num_columns:
        return None
    place = np.full(len(vocabulary), -1, dtype=np.int64)
    rows = vocabulary.rows(ids)[places]
    known = rows >= 0
    place[rows[known]] = np.flatnonzero(known)
    return described.take(pc.if_else(pa.array(place >= 0), pa.array(place), None)).combine_chunks()
