"""`Ratings`: a sparse users × items matrix with its id vocabularies, its public scale and its side tables."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.errors import DataError, DuplicatePair, UsageError


class Feedback(StrEnum):
    """What a number in the matrix means."""

    EXPLICIT = "explicit"  # an opinion on the scale
    IMPLICIT = "implicit"  # it happened: 1
    COUNT = "count"  # it happened so many times


@dataclass(frozen=True)
class Scale:
    """The public range of a rating; `declared` is False when it was inferred from the data, which privacy forbids."""

    low: float
    high: float
    declared: bool = True

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise UsageError(
                f"The scale [{self.low:g}, {self.high:g}] is empty or not finite; give its lower end first, "
                "as in scale = [1, 5]."
            )

    @property
    def span(self) -> float:
        """R, the top of the scale once ratings are shifted to start at 0."""
        return self.high - self.low

    def __str__(self) -> str:
        return f"{self.low:g}…{self.high:g}" + ("" if self.declared else " (inferred from the data)")


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of items by users, in compressed rows.

    Attributes
    ----------
    indptr : (n+1,) int64; user u's ratings are entries indptr[u] … indptr[u+1]
    items : (nnz,) int32 columns, increasing within a row, so there is one rating per user and item
    values : (nnz,) float32, on the scale
    times : (nnz,) int64 seconds, or None
    user_ids, item_ids : Vocabulary
    scale : Scale, public
    feedback : Feedback
    user_attributes, item_attributes : pyarrow.Table whose row r describes user or item r, or None
    features : the public columns of item_attributes, which a method may use
    name : of the source, for reports
    dropped : how many rows of the source were left out as bad
    """

    indptr: np.ndarray
    items: np.ndarray
    values: np.ndarray
    user_ids: Vocabulary
    item_ids: Vocabulary
    scale: Scale
    times: np.ndarray | None = None
    feedback: Feedback = Feedback.EXPLICIT
    user_attributes: pa.Table | None = None
    item_attributes: pa.Table | None = None
    name: str = "ratings"
    notes: tuple[str, ...] = field(default=())
    dropped: int = 0
    features: tuple[str, ...] = ()

    @classmethod
    def from_columns(
        cls,
        users: Any,
        items: Any,
        values: Any,
        times: Any = None,
        *,
        scale: Scale | tuple[float, float] | None = None,
        user_ids: Vocabulary | None = None,
        item_ids: Vocabulary | None = None,
        **others: Any,
    ) -> Ratings:
        """Ratings from one column each of ids, ids, numbers (and seconds); values are not checked.

        The vocabularies default to the ids that occur. A pair that occurs twice raises `DuplicatePair` with both
        positions; an id outside a given vocabulary raises `DataError`.
        """
        users, items = as_ids(users), as_ids(items)
        values = np.asarray(values, dtype=np.float32)
        if not len(users) == len(items) == len(values) == (len(values) if times is None else len(times)):
            raise DataError(
                f"The columns differ in length ({len(users):,} users, {len(items):,} items, {len(values):,} values"
                f"{'' if times is None else f', {len(times):,} times'}); give one entry of each per rating."
            )
        user_ids = Vocabulary.of(users, "user") if user_ids is None else user_ids
        item_ids = Vocabulary.of(items, "item") if item_ids is None else item_ids
        times = None if times is None else np.asarray(times, dtype=np.int64)
        scale = scale if scale is None or isinstance(scale, Scale) else Scale(*scale)
        rows, columns = _codes(users, user_ids), _codes(items, item_ids)
        del users, items  # the codes take less memory
        indptr, order = row_order(rows, columns, user_ids, item_ids)
        if order is not None:
            columns, values = columns[order], values[order]
            times = None if times is None else times[order]
        scale = inferred_scale(values) if scale is None else scale
        return cls(indptr, columns.astype(np.int32, copy=False), values, user_ids, item_ids, scale, times, **others)

    @property
    def n_users(self) -> int:
        return len(self.user_ids.ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids.ids)

    @property
    def n_ratings(self) -> int:
        return len(self.items)

    @property
    def nbytes(self) -> int:
        """Bytes of the compressed rows themselves."""
        return sum(a.nbytes for a in (self.indptr, self.items, self.values, self.times) if a is not None)

    def __repr__(self) -> str:
        shape = f"{self.n_users:,} users × {self.n_items:,} items, {self.n_ratings:,} ratings"
        return f"Ratings({self.name}: {shape} on {self.scale})"

    @property
    def users(self) -> np.ndarray:
        """The row of every rating, (nnz,) int32. Computed at each call."""
        return np.repeat(np.arange(self.n_users, dtype=np.int32), np.diff(self.indptr))

    @property
    def counts(self) -> np.ndarray:
        """Ratings per user, (n,) int64."""
        return np.diff(self.indptr)

    @property
    def item_counts(self) -> np.ndarray:
        """Ratings per item, (m,) int64."""
        return np.bincount(self.items, minlength=self.n_items)

    def row(self, user: int) -> tuple[np.ndarray, np.ndarray]:
        """The items and values of one row."""
        part = slice(self.indptr[user], self.indptr[user + 1])
        return self.items[part], self.values[part]

    def keep(self, mask: np.ndarray) -> Ratings:
        """The ratings whose entry in `mask` (nnz,) is true; all users and items stay."""
        active = self.counts > 0
        kept = np.zeros(self.n_users, dtype=np.int64)
        kept[active] = np.add.reduceat(mask, self.indptr[:-1][active], dtype=np.int64)
        return self._entries(kept, mask)

    def select_users(self, rows: np.ndarray) -> Ratings:
        """These users, in increasing order of row, with all their ratings; all items stay."""
        rows = np.sort(np.asarray(rows, dtype=np.int64))
        counts = self.counts[rows]
        starts = np.cumsum(counts) - counts
        entries = np.repeat(self.indptr[rows] - starts, counts) + np.arange(counts.sum())
        ids = Vocabulary(self.user_ids[rows], "user", self.user_ids.listed)
        table = None if self.user_attributes is None else self.user_attributes.take(rows)
        return replace(self._entries(counts, entries), user_ids=ids, user_attributes=table)

    def select_items(self, columns: np.ndarray) -> Ratings:
        """These items, in increasing order of column, and their ratings; all users stay."""
        columns = np.sort(np.asarray(columns, dtype=np.int64))
        position = np.full(self.n_items, -1, dtype=np.int32)
        position[columns] = np.arange(len(columns), dtype=np.int32)
        part = self.keep(position[self.items] >= 0)
        ids = Vocabulary(self.item_ids[columns], "item", self.item_ids.listed)
        table = None if self.item_attributes is None else self.item_attributes.take(columns)
        return replace(part, items=position[part.items], item_ids=ids, item_attributes=table)

    def _entries(self, counts: np.ndarray, entries: np.ndarray) -> Ratings:
        """Rows of so many entries each, which are some of these."""
        times = None if self.times is None else self.times[entries]
        indptr = np.concatenate(([0], np.cumsum(counts)))
        return replace(self, indptr=indptr, items=self.items[entries], values=self.values[entries], times=times)

    def to_arrow(self) -> pa.Table:
        """Columns user, item, rating (and timestamp), with ids."""
        columns = {
            "user": pa.array(self.user_ids[self.users]),
            "item": pa.array(self.item_ids[self.items]),
            "rating": pa.array(self.values),
        }
        if self.times is not None:
            columns["timestamp"] = pa.array(self.times)
        return pa.table(columns)


def inferred_scale(values: np.ndarray) -> Scale:
    """The range of the data, marked as not declared. A constant column gets a range of one."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    if high == low:
        high = max(low + 1.0, low + 1e-6 * abs(low))  # adding one to a huge number changes nothing
    return Scale(low, high, declared=False)


def _codes(ids: np.ndarray, vocabulary: Vocabulary) -> np.ndarray:
    rows = vocabulary.rows(ids)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        first = ids[unknown[:1]].tolist()[0]
        raise DataError(
            f"{vocabulary.kind.capitalize()} {first!r} (entry {unknown[0] + 1}) is not among the {len(vocabulary):,} "
            f"declared {vocabulary.kind}s; correct the id or the declared list."
        )
    return rows


def row_order(
    rows: np.ndarray, columns: np.ndarray, user_ids: Vocabulary, item_ids: Vocabulary
) -> tuple[np.ndarray, np.ndarray | None]:
    """Row pointers, and the order that sorts entries by (row, column), None if they are sorted.

    rows, columns : (nnz,) integers, places in the vocabularies. A pair that occurs twice raises `DuplicatePair`.
    """
    n, m, nnz = len(user_ids), len(item_ids), len(rows)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=n)))).astype(np.int64)
    key = rows.astype(np.int64)
    key *= m
    key += columns
    if np.all(key[1:] > key[:-1]):
        return indptr, None
    if n * m * nnz < 2**63:
        # Pair and position fit into one integer: one sort in place, faster and smaller than argsort.
        places: np.ndarray = np.arange(nnz, dtype=np.int32 if nnz < 2**31 else np.int64)
        key *= nnz
        key += places
        key.sort()
        key %= nnz
        order = key
    else:
        order = np.argsort(key, kind="stable")
    _check_once(indptr, columns[order], order, user_ids, item_ids)
    return indptr, order


def _check_once(
    indptr: np.ndarray, columns: np.ndarray, order: np.ndarray, user_ids: Vocabulary, item_ids: Vocabulary
) -> None:
    """Refuse a column that occurs twice in one row; within a row columns do not decrease."""
    again = columns[1:] == columns[:-1]
    starts = indptr[(indptr > 0) & (indptr < len(columns))]
    again[starts - 1] = False
    if again.any():
        at = int(np.argmax(again))
        row = int(np.searchsorted(indptr, at, side="right")) - 1
        first, second = int(order[at]), int(order[at + 1])
        user, item = user_ids.ids[[row]].tolist()[0], item_ids.ids[[columns[at]]].tolist()[0]
        raise DuplicatePair(
            f"User {user!r} rated item {item!r} twice (entries {first + 1} and {second + 1}).",
            first=first,
            second=second,
            user=user,
            item=item,
        )
