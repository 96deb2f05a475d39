"""Rows that are no ratings, once there is one: all of them, what is wrong with each, and the table without them.

Whether a row is bad depends on that row alone and on what is declared, so leaving bad rows out is sound with [privacy].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.columns import Columns, Origin, either
from tacit.data.ratings import Feedback, Scale
from tacit.data.values import TIME_TYPES, casts, decoded, glimpse, is_number, is_text

#: How many bad rows a message shows.
SHOWN = 5


class BadRows:
    """The bad rows of a table.

    Attributes
    ----------
    bad : (rows,) bool
    """

    def __init__(
        self, table: Any, columns: Columns, feedback: Feedback, scale: Scale | None, catalogue: np.ndarray | None
    ) -> None:
        self._what: dict[str, np.ndarray] = {}
        self._table, self._columns = table, columns
        self.bad = np.zeros(table.num_rows, dtype=bool)
        listed = None if catalogue is None else {str(id) for id in catalogue}
        for kind, name in (("user", columns.user), ("item", columns.item)):
            column = decoded(table[name])
            self._note(name, _each(column, lambda value: value is None or not str(value).strip()))
            if kind == "item" and listed is not None:
                self._note(name, _each(column, lambda value: str(value).strip() not in listed))
        if columns.rating is not None and feedback is not Feedback.IMPLICIT:
            column = decoded(table[columns.rating])
            self._note(columns.rating, _no_ratings(column, feedback, scale))
        if columns.timestamp is not None:
            self._note(columns.timestamp, _no_times(decoded(table[columns.timestamp])))

    def _note(self, name: str, wrong: np.ndarray) -> None:
        self._what[name] = self._what.get(name, False) | wrong
        self.bad |= wrong

    @property
    def count(self) -> int:
        return int(self.bad.sum())

    def sentence(self, first: str, origin: Origin) -> str:
        """The complaint about all of them: about the `first` that was met, how many there are, and the first few."""
        drop = f"to leave bad rows out, use {either('bad_rows', 'drop')}"
        if self.count <= 1:
            return f"{first.rstrip('.')}; {drop}."
        shown = [f"{origin.number(row)} ({self._shown(row)})" for row in np.flatnonzero(self.bad)[:SHOWN].tolist()]
        more = ", …" if self.count > SHOWN else ""
        return (
            f"{first.rstrip('.')}. In all {self.count:,} of {len(self.bad):,} {origin.unit}s are bad, on "
            f"{origin.unit}s {', '.join(shown)}{more}; {drop}."
        )

    def without(self, origin: Origin) -> tuple[Any, Origin]:
        """The table without bad rows, and where its rows came from."""
        kept = np.flatnonzero(~self.bad)
        return Kept(self._table, kept), replace(origin, kept=kept.tolist())

    def _shown(self, row: int) -> str:
        """What is wrong with a row: the value, or that there is none."""
        name = next(name for name, wrong in self._what.items() if wrong[row])
        value = decoded(self._table[name])[row].as_py()
        empty = value is None or (isinstance(value, str) and not value.strip())
        return f"no {name}" if empty else f'{name} "{glimpse(str(value))}"'


class Kept:
    """Some rows of a table, column by column as they are asked for."""

    def __init__(self, table: Any, rows: np.ndarray) -> None:
        self._table, self._rows = table, rows

    @property
    def num_rows(self) -> int:
        return len(self._rows)

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        column = decoded(self._table[name]).take(pa.array(self._rows))  # a dictionary would still list what went
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _distinct(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Which of the distinct values, gaps among them, each row has, and these."""
    encoded = column.dictionary_encode(null_encoding="encode").unify_dictionaries().combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    return encoded.indices.to_numpy(zero_copy_only=False), encoded.dictionary


def _each(column: pa.ChunkedArray, wrong: Callable[[Any], bool]) -> np.ndarray:
    """Whether each entry is wrong, by looking at every distinct value once: (rows,) bool."""
    places, values = _distinct(column)
    verdict: np.ndarray = np.array([wrong(value) for value in values.to_pylist()], dtype=bool)[places]
    return verdict


def _no_ratings(column: pa.ChunkedArray, feedback: Feedback, scale: Scale | None) -> np.ndarray:
    """Whether each entry is no number, or none that a rating can be: (rows,) bool."""
    places, values = _distinct(column)
    found = np.full(len(values), np.nan)
    if is_text(values.type):
        good = np.flatnonzero(~_unread(values, (pa.float64(),)))
        found[good] = pc.utf8_trim_whitespace(values).take(pa.array(good)).cast(pa.float64()).to_numpy()
    elif is_number(values.type) or pa.types.is_boolean(values.type):
        found = pc.fill_null(values.cast(pa.float64(), safe=False), np.nan).to_numpy(zero_copy_only=False)
    wrong = ~(np.abs(found) <= float(np.finfo(np.float32).max))
    if feedback is Feedback.COUNT:
        wrong |= found < 0
    if scale is not None:
        kept = np.where(wrong, 0, found).astype(np.float32)
        wrong |= (kept < np.float32(scale.low)) | (kept > np.float32(scale.high))
    result: np.ndarray = wrong[places]
    return result


def _no_times(column: pa.ChunkedArray) -> np.ndarray:
    """Whether each entry is no time, in any way that times are written: (rows,) bool."""
    places, values = _distinct(column)
    if is_text(values.type):
        wrong = _unread(values, TIME_TYPES)
    else:
        wrong = values.is_null().to_numpy(zero_copy_only=False)
        if pa.types.is_floating(values.type):
            wrong |= ~(np.abs(pc.fill_null(values, np.nan).to_numpy(zero_copy_only=False)) < 2.0**62)
    result: np.ndarray = wrong[places]
    return result


def _unread(values: pa.Array, kinds: Sequence[pa.DataType]) -> np.ndarray:
    """Which texts are of none of these kinds: (values,) bool."""
    trimmed = pc.utf8_trim_whitespace(values)
    likely = pc.fill_null(pc.match_substring_regex(trimmed, _LIKELY), False).to_numpy(zero_copy_only=False)
    left = np.flatnonzero(likely)
    for kind in kinds:
        left = left[_uncast(trimmed.take(pa.array(left)), kind)] if len(left) else left
    wrong: np.ndarray = ~likely
    wrong[left] = True
    return wrong


def _uncast(values: pa.Array, kind: pa.DataType) -> np.ndarray:
    """Which texts do not become this kind, found by halving: a good half costs one look."""
    if casts(values, kind):
        return np.zeros(len(values), dtype=bool)
    if len(values) == 1:
        return np.ones(1, dtype=bool)
    middle = len(values) // 2
    return np.concatenate([_uncast(values[:middle], kind), _uncast(values[middle:], kind)])


#: What every text that is a number or a time is made of.
_LIKELY = r"^[0-9+\-.:TZ eE]+$|^[+-]?(?i:nan|inf|infinity)$"
