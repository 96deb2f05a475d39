"""The catalogue: the public list of items and their public attributes.

A column of attributes is either numbers or labels. Text is one label, or several with bars between them
("Comedy|Drama"); a list of text is several; true and false are labels. A feature "title:text" is the column "title"
read as free text: its words. So digests and features do not depend on how a file is written.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.arrow_tables import is_file, read_whole
from tacit.data.columns import Origin, capital, id_column
from tacit.data.item_text import BUCKETS, Rows, beside, tf_idf, unit_rows, words
from tacit.data.values import distinct_ids, is_number, is_text, quoted_id
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, UsageError, did_you_mean

#: Limits of feature columns, and of cells (2**28 of them take 1 GiB).
MOST_FEATURES, MOST_CELLS = 10_000, 2**28
#: The types of columns: the labels of every item, sorted and distinct, or a number.
LABELS, NUMBERS = pa.list_(pa.string()), pa.float32()
#: How a feature says that its column is free text. Such a column has the items' words, in order, as lists.
TEXT = ":text"
#: How many bumps a number becomes in `unit_rows`.
BUMPS = 8


@dataclass(frozen=True, eq=False)
class Catalogue:
    """The public list of items, and those attributes that a method may use.

    `attributes` is a table whose row j describes item j, with the `columns` that a method may use, in the order of
    their features; None without any.

    >>> ids = Vocabulary(np.array([1, 2, 3]), "item")
    >>> table = pa.table({"genres": ["War|Drama", "Drama", None], "year": [1990, 2000, None]})
    >>> films = Catalogue(ids, table, ("genres", "year"))
    >>> films.names
    ('genres=Drama', 'genres=War', 'year')
    >>> films.features().tolist()
    [[1.0, 1.0, -1.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    """

    ids: Vocabulary
    attributes: pa.Table | None = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        columns, kept = tuple(self.columns), {}
        for name in columns:
            if name in kept:
                raise UsageError(f'[public] features names "{name}" twice; name every column once.')
            column = named_column(self.attributes, name, "The items' table")
            if len(column) != len(self.ids):
                raise DataError(f'The column "{name}" has {len(column):,} rows for {len(self.ids):,} items.')
            kept[name] = _canonical(column, name)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "attributes", pa.table(kept) if kept else None)
        most = min(MOST_FEATURES, MOST_CELLS // max(1, len(self)))
        if self.width > most:
            made = ", ".join(f'"{name}" {len(self._names(name)):,}' for name in columns)
            raise UsageError(
                f"The item attributes make {self.width:,} feature columns ({made}) of {len(self):,} items, and there "
                f"can be at most {most:,}; name fewer in [public] features."
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        described = f"; {', '.join(self.columns)}: {self.width:,} feature column{'s' * (self.width != 1)}"
        return f"Catalogue({len(self):,} items{described if self.columns else ''})"

    @property
    def width(self) -> int:
        """d, the number of feature columns."""
        return len(self.names)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the feature columns: "genres=Drama" for a label, "year" for a number, "title:text#9" for text."""
        return tuple(word for name in self.columns for word in self._names(name))

    def features(self, columns: Sequence[str] | None = None) -> np.ndarray:
        """Every item's features, (m, d) float32, read-only: of all columns, or of those named, in that order.

        A label is 1 where the item has it and 0 elsewhere, labels in alphabetical order. A number is standardised by
        the catalogue's own mean and deviation. Free text is its hashed TF-IDF. What is missing is 0.
        """
        if columns is None:
            return self._matrix
        owners = np.array([name for name in self.columns for _word in self._names(name)], dtype=object)
        places = [np.flatnonzero(owners == name) for name in self._known(columns)]
        chosen = self._matrix[:, np.concatenate([np.zeros(0, dtype=np.int64), *places])]
        chosen.setflags(write=False)
        return chosen

    @cached_property
    def _matrix(self) -> np.ndarray:
        matrix, at = np.zeros((len(self), self.width), dtype=np.float32), 0
        for name in self.columns:
            column = self._column(name)
            if column.type == NUMBERS:
                matrix[:, at] = _standardised(column.to_numpy(zero_copy_only=False))
            elif is_free_text(name):
                text = tf_idf(column, hashed=True)
                matrix[np.repeat(np.arange(len(self)), np.diff(text.indptr)), at + text.columns] = text.values
            else:
                labels = pc.index_in(column.flatten(), value_set=pa.array(self._labels[name], pa.string()))
                matrix[pc.list_parent_indices(column).to_numpy(), at + labels.to_numpy()] = 1
            at += len(self._names(name))
        matrix.setflags(write=False)
        return matrix

    @cached_property
    def unit_rows(self) -> Rows:
        """Every item described anew, for measuring how alike items are: each column is a vector of length 1, or 0.

        Labels are weighted by TF-IDF, free text is its hashed TF-IDF, and a number is a few overlapping bumps over its
        range, so that 1994 is like 1996 and unlike both 1960 and 2010.
        """
        blocks = []
        for name in self.columns:
            column = self._column(name)
            if column.type == NUMBERS:
                blocks.append(_bumps(column.to_numpy(zero_copy_only=False).astype(np.float64)))
            else:
                blocks.append(tf_idf(column, hashed=is_free_text(name)))
        return beside(blocks, len(self))

    @cached_property
    def _labels(self) -> dict[str, list[str]]:
        columns = {name: self._column(name) for name in self.columns if not is_free_text(name)}
        return {name: sorted(pc.unique(c.flatten()).to_pylist()) for name, c in columns.items() if c.type == LABELS}

    def _names(self, column: str) -> list[str]:
        if is_free_text(column):
            return [f"{column}#{bucket}" for bucket in range(BUCKETS)]
        return [f"{column}={label}" for label in self._labels[column]] if column in self._labels else [column]

    def _known(self, columns: Sequence[str]) -> Sequence[str]:
        for name in columns:
            if name not in self.columns:
                there = f"it names {', '.join(self.columns)}" if self.columns else "it names none"
                raise UsageError(f'"{name}" is not in [public] features: {there}.{did_you_mean(name, self.columns)}')
        return columns

    def _column(self, name: str) -> pa.Array:
        assert self.attributes is not None
        return self.attributes.column(name).combine_chunks()

    @cached_property
    def digest(self) -> str:
        """SHA-256 over the ids and the named columns."""
        found = hashlib.sha256(id_bytes(self.ids))
        for name in self.columns:
            column = self._column(name)
            kind = "numbers" if column.type == NUMBERS else "text" if is_free_text(name) else "labels"
            found.update(json.dumps([name, kind, hashlib.sha256(self.column_bytes(name)).hexdigest()]).encode())
        return found.hexdigest()

    def column_bytes(self, name: str) -> bytes:
        """One column as bytes: float32 with NaN where it is missing, or the items' lists of labels or words as JSON."""
        column = self._column(name)
        if column.type == NUMBERS:
            values = column.to_numpy(zero_copy_only=False).astype("<f4")
            return np.where(np.isnan(values), np.float32(np.nan), values).astype("<f4").tobytes()
        return json.dumps(column.to_pylist(), ensure_ascii=False, separators=(",", ":")).encode()

    def differs(self, other: Catalogue) -> str | None:
        """What differs in another catalogue: "ids", "columns", or the name of a column; None if nothing."""
        if self.digest == other.digest:
            return None
        if id_bytes(self.ids) != id_bytes(other.ids):
            return "ids"
        if self.columns != other.columns:
            return "columns"
        return next(name for name in self.columns if self._column(name) != other._column(name))

    def part(self, rows: np.ndarray) -> Catalogue:
        """The catalogue of some items, by their rows in increasing order."""
        described = None if self.attributes is None else self.attributes.take(rows)
        return Catalogue(Vocabulary(self.ids[rows], self.ids.kind, self.ids.listed), described, self.columns)


def id_bytes(ids: Vocabulary) -> bytes:
    """A list of ids as JSON, so that text and numbers stay apart."""
    return json.dumps(ids.ids.tolist(), ensure_ascii=False).encode()


def is_free_text(feature: str) -> bool:
    """Whether a feature reads its column as free text."""
    return feature.endswith(TEXT)


def column_of(feature: str, there: Sequence[str]) -> str | None:
    """The column that a feature means: of that name, or the one whose free text it reads; None if there is none."""
    plain = feature.removesuffix(TEXT)
    return feature if feature in there else plain if plain in there else None


def named_column(table: pa.Table | None, name: str, where: str) -> pa.ChunkedArray:
    """A column that [public] features names, or an error that lists the existing ones."""
    there = [] if table is None else [column for column in table.column_names if column != "item"]
    if not there:
        raise UsageError(
            f'[public] features names "{name}", and nothing describes the items; name a table of items and '
            'attributes, as in [public] catalogue = "items.parquet".'
        )
    column = column_of(name, there)
    if column is not None and there.count(column) > 1:
        raise UsageError(f'{where} has two columns called "{column}"; rename one of them.')
    if column is None:
        listed = ", ".join(f'"{column[:60]}"' for column in there[:12]) + (", …" if len(there) > 12 else "")
        raise UsageError(
            f'{where} has no column "{name[:200]}", which [public] features names; it has {listed}.'
            f"{did_you_mean(name, [*there, *(column + TEXT for column in there)] if ':' in name else there)}"
        )
    assert table is not None
    return table.column(column)


def _canonical(column: pa.ChunkedArray, name: str) -> pa.Array:
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):  # there is too much text for one array
        raise UsageError(f'The item attribute "{name}" is too long; name another one in [public] features.')
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if is_number(kind) and not is_free_text(name):
        return _numbers(column, name)
    try:
        if pa.types.is_boolean(kind) or pa.types.is_null(kind):
            return _text_labels(column.cast(pa.string()))
        if is_text(kind):
            return _text_words(column) if is_free_text(name) else _text_labels(column)
        if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and is_text(_plain(kind.value_type)):
            column.validate(full=True)
            if is_free_text(name):  # lists are of words already
                return pa.array([[word for word in row or () if word] for row in column.to_pylist()], LABELS)
            return pa.array([_sorted(row or ()) for row in column.to_pylist()], LABELS)
    except (pa.ArrowInvalid, UnicodeError):
        raise DataError(f'The item attribute "{name}" holds text that is not UTF-8; write the table again.') from None
    raise UsageError(
        f'The item attribute "{name}" is of type {str(kind)[:60]}; '
        + (
            "free text is text."
            if is_free_text(name)
            else "features are text, numbers, true or false, or lists of text."
        )
    )


def _numbers(column: pa.Array, name: str) -> pa.Array:
    """To single precision, so that a file's own does not matter; NaN is missing."""
    values = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        values = values.astype(np.float32) + np.float32(0)  # which makes 0 of −0
    if np.isinf(values).any():
        raise DataError(f'The item attribute "{name}" holds a number that is not finite, or too large; correct it.')
    return pa.array(values, NUMBERS, mask=np.isnan(values))


def _text_labels(column: pa.Array) -> pa.Array:
    column.validate(full=True)
    encoded = column.dictionary_encode()
    distinct = [_sorted(text.split("|")) for text in encoded.dictionary.to_pylist()]
    places = encoded.indices.fill_null(len(distinct))
    return pa.array([*distinct, []], LABELS).take(places)


def _text_words(column: pa.Array) -> pa.Array:
    column.validate(full=True)
    return pa.array([words(text or "") for text in column.to_pylist()], LABELS)


def _sorted(labels: Sequence[Any]) -> list[str]:
    return sorted({label.strip() for label in labels if label is not None} - {""})


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _standardised(values: np.ndarray) -> np.ndarray:
    """(x − mean)/deviation, 0 where x is missing or all are equal; sums are exact, so every machine gets the same."""
    there = values[~np.isnan(values)].astype(np.float64)
    if not len(there):
        return np.zeros(len(values))
    mean = math.fsum(there) / len(there)
    deviation = math.sqrt(math.fsum((there - mean) ** 2) / len(there))
    if there.min() == there.max():
        return np.zeros(len(values))
    return np.nan_to_num((values.astype(np.float64) - mean) / deviation, nan=0.0)


def _bumps(values: np.ndarray) -> Rows:
    """Each number as (1 − (t/2)²)₊² at its distance t from centres evenly between the 1st and the 99th hundredth."""
    m, there = len(values), np.flatnonzero(~np.isnan(values))
    ordered = np.sort(values[there])
    low, high = (float(ordered[round(part * (len(ordered) - 1))]) if len(there) else 0.0 for part in (0.01, 0.99))
    if not low < high:
        return unit_rows(there[:0], there[:0], np.zeros(0), m, BUMPS)
    t = (np.clip(values[there], low, high) - low)[:, None] / ((high - low) / (BUMPS - 1)) - np.arange(BUMPS)
    bump = np.maximum(1 - (t / 2) * (t / 2), 0) * np.maximum(1 - (t / 2) * (t / 2), 0)
    row, column = np.nonzero(bump)
    return unit_rows(there[row], column, bump[row, column], m, BUMPS)


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
    columns = {name: named_column(table, name, capital(origin.name)) for name in features}
    return align(pa.table({"item": table["item"], **columns}), items, origin)


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
