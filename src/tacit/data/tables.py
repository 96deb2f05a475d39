"""The one path from a table of rows to `Ratings`: every value is checked, a bad one is named with its row.

Nothing here loops over rows: ids are dictionary-encoded by Arrow and only the dictionary is looked at, and
the place of a bad value is sought only once there is one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.bad_rows import BadRows
from tacit.data.columns import Columns, Origin, either
from tacit.data.ratings import Feedback, Ratings, Scale, inferred_scale, row_order
from tacit.data.values import decoded, distinct_ids, glimpse, numbers, quoted_id, seconds
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, DuplicatePair, PrivacyRefused

_LARGEST = float(np.finfo(np.float32).max)


def ratings_from_table(
    table: pa.Table,
    origin: Origin,
    columns: Columns,
    *,
    feedback: Feedback = Feedback.EXPLICIT,
    duplicates: str = "error",
    bad_rows: str = "error",
    scale: Scale | None = None,
    listed_users: np.ndarray | None = None,
    listed_items: np.ndarray | None = None,
    closed: bool = False,
    private: bool = False,
    **others: Any,
) -> Ratings:
    """Checked ratings from a table with one row per rating.

    Parameters
    ----------
    table : at least the columns that `columns` names; others are left alone
    duplicates : "error", or what to keep of a pair that occurs twice: "last" (by timestamp where there is
        one, and by place in the file among equals) or "mean"
    bad_rows : "error", or "drop" for rows that are no ratings; how many went is in `notes`
    scale : the declared scale; None reads it off the data. Implicit feedback is always 1 on the scale 0…1
    listed_users, listed_items : ids that belong to the vocabulary whether rated or not
    closed : whether an item that is not listed is an error, as with a declared catalogue
    private : whether what describes an item may not be read off the ratings
    others : attributes that `Ratings` takes as they are
    """
    if table.num_rows == 0:
        raise DataError(f"There are no ratings in {origin.name}; give data with at least one row.")
    declared = None if feedback is Feedback.IMPLICIT else scale
    read = partial(_read, columns=columns, feedback=feedback, scale=declared, users=listed_users, items=listed_items)
    try:
        (users, user_ids), (items, item_ids), values, times = read(table, origin, closed=closed)
    except DataError as error:
        try:
            found = BadRows(table, columns, feedback, declared, listed_items if closed else None)
        except pa.ArrowException:  # a column of no use at all
            raise error from None
        if found.count in (0, len(found.bad)):  # something is wrong with a column, and not with rows
            raise
        if bad_rows == "error":
            raise DataError(found.sentence(str(error), origin)) from None
        table, origin = found.without(origin)
        gone = f"{found.count:,} of {len(found.bad):,} {origin.unit}s were no ratings and were left out (bad_rows)"
        others = {**others, "notes": (*others.get("notes", ()), gone), "dropped": found.count}
        (users, user_ids), (items, item_ids), values, times = read(table, origin, closed=closed)
    if columns.attribute is not None:
        column = table[columns.attribute]
        others = {**others, **_attribute(column, columns.attribute, (users, user_ids), (items, item_ids), private)}
    if feedback is Feedback.IMPLICIT:
        scale = Scale(0.0, 1.0)
    elif scale is None and feedback is Feedback.COUNT:
        scale = Scale(0.0, max(float(values.max()), 1.0), declared=False)
    pa.default_memory_pool().release_unused()  # Arrow keeps what it has freed, and the sort needs room
    if duplicates != "error":
        users, items, values, times = _merged(users, items, values, times, len(item_ids), duplicates)
    try:
        indptr, order = row_order(users, items, user_ids, item_ids)
    except DuplicatePair as pair:
        raise _duplicate(pair, origin) from None
    if order is not None:  # one by one, so that each is let go before the next is made
        items = items[order]
        values = values[order]
        times = None if times is None else times[order]
    return Ratings(
        indptr=indptr,
        items=items,
        values=values,
        times=times,
        user_ids=user_ids,
        item_ids=item_ids,
        scale=inferred_scale(values) if scale is None else scale,
        feedback=feedback,
        **others,
    )


Codes = tuple[np.ndarray, Vocabulary]


def _read(
    table: pa.Table,
    origin: Origin,
    columns: Columns,
    feedback: Feedback,
    scale: Scale | None,
    users: np.ndarray | None,
    items: np.ndarray | None,
    closed: bool,
) -> tuple[Codes, Codes, np.ndarray, np.ndarray | None]:
    """Users, items, values and times of all rows; the first bad value is named."""
    people = _encoded(table[columns.user], "user", origin, users)
    things = _encoded(table[columns.item], "item", origin, items, closed)
    values = _values(table, origin, columns, feedback)
    times = None if columns.timestamp is None else seconds(table[columns.timestamp], origin)
    if scale is not None:
        _check_scale(values, scale, origin)
    return people, things, values, times


def _attribute(column: pa.ChunkedArray, name: str, users: Codes, items: Codes, private: bool) -> dict[str, pa.Table]:
    """A column of the ratings as what it describes: its users if it is the same in all their rows, else its items."""
    encoded = decoded(column).dictionary_encode().unify_dictionaries().combine_chunks()
    encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    there = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
    value = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)[there]
    for kind, (codes, ids) in (("user", users), ("item", items)):
        first = np.full(len(ids), -1, dtype=np.int64)
        first[codes[there][::-1]] = value[::-1]
        if np.array_equal(first[codes[there]], value):
            if kind == "item" and private:
                raise PrivacyRefused(
                    f'"{name}" describes items, and with [privacy] what describes items is not read off the ratings, '
                    "since it would tell which were rated; give it in a table, with [data] item_table."
                )
            places = pa.array(first, mask=first < 0)
            return {f"{kind}_attributes": pa.table({name: encoded.dictionary.take(places)})}
    codes, ids = users
    first = np.full(len(ids), -1, dtype=np.int64)
    first[codes[there][::-1]] = value[::-1]
    at = int(np.argmax(first[codes[there]] != value))
    user, texts = codes[there][at], encoded.dictionary.cast(pa.string()).to_pylist()
    raise DataError(
        f'"{name}" describes neither users nor items: user {quoted_id(ids.ids[[user]].tolist()[0])} has '
        f'"{glimpse(texts[first[user]])}" and "{glimpse(texts[value[at]])}", and items differ too; give each user one '
        "value, or divide by something else."
    )


def _encoded(
    column: pa.ChunkedArray, kind: str, origin: Origin, listed: np.ndarray | None, closed: bool = False
) -> tuple[np.ndarray, Vocabulary]:
    """The row in the vocabulary of each id, (rows,) int32, and the vocabulary."""
    places, ids = distinct_ids(column, kind, origin)
    if listed is None:
        vocabulary = Vocabulary(np.unique(ids), kind, listed=False)
    elif closed:
        vocabulary = Vocabulary(np.unique(listed), kind)
    else:
        if ids.dtype != listed.dtype:
            ids, listed = ids.astype(str).astype(object), listed.astype(str).astype(object)
        together = np.unique(np.concatenate([ids, listed]))
        vocabulary = Vocabulary(together, kind, listed=len(together) == len(np.unique(listed)))
    rows = vocabulary.rows(ids)
    unknown = np.flatnonzero(rows < 0)
    if len(unknown):
        first = int(np.argmax(np.isin(places, unknown)))
        raise DataError(
            f"{origin.at(first)} rates {kind} {quoted_id(ids[places[first]])}, which is not among the "
            f"{len(vocabulary):,} {kind}s of the catalogue; correct the id, or list it in the catalogue."
        )
    return rows.astype(np.int32)[places], vocabulary


def _values(table: pa.Table, origin: Origin, columns: Columns, feedback: Feedback) -> np.ndarray:
    if feedback is Feedback.IMPLICIT or columns.rating is None:
        return np.ones(table.num_rows, dtype=np.float32)
    values = numbers(table[columns.rating], "rating", origin)
    if not (values.min() >= -_LARGEST and values.max() <= _LARGEST):  # a NaN is neither
        first = int(np.argmax(~(np.abs(values) <= _LARGEST)))
        raise DataError(
            f"{origin.at(first)} has the rating {values[first]:g}, which is not a finite number that can be "
            f"computed with; correct the {origin.unit} or delete it."
        )
    if feedback is Feedback.COUNT and (values < 0).any():
        first = int(np.argmax(values < 0))
        raise DataError(
            f"{origin.at(first)} has the count {values[first]:g}, but counts start at 0; "
            f"correct the {origin.unit}, or use {either('feedback', 'explicit')}."
        )
    return values.astype(np.float32, copy=False)


def _check_scale(values: np.ndarray, scale: Scale, origin: Origin) -> None:
    # Compared in the precision that ratings are kept in: 4.7 in a file is on a scale that ends at 4.7.
    if values.min() < np.float32(scale.low) or values.max() > np.float32(scale.high):
        first = int(np.argmax((values < np.float32(scale.low)) | (values > np.float32(scale.high))))
        low, high = min(scale.low, float(values.min())), max(scale.high, float(values.max()))
        raise DataError(
            f"{origin.at(first)} has the rating {values[first]:g}, off the declared scale "
            f"{scale.low:g}…{scale.high:g}; correct the {origin.unit}, or declare scale=({low:g}, {high:g})."
        )


def _merged(
    users: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    times: np.ndarray | None,
    n_items: int,
    duplicates: str,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """One entry per pair, in order of pairs: the last, or the mean with the last time."""
    key = users.astype(np.int64) * n_items + items
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.concatenate((starts[1:], [len(key)])) - 1
    # The mean is summed in order of size, so that it does not depend on the order of the file.
    within = values if duplicates == "mean" else times
    if within is not None and len(starts) < len(key):
        repeated = np.flatnonzero(np.repeat(ends > starts, ends - starts + 1))
        rows = order[repeated]
        order[repeated] = rows[np.lexsort((within[rows], key[rows]))]
    kept = order[ends]
    if duplicates == "last" or len(starts) == len(key):
        return users[kept], items[kept], values[kept], None if times is None else times[kept]
    sums = np.add.reduceat(values[order].astype(np.float64), starts)
    means = (sums / (ends - starts + 1)).astype(np.float32)
    latest = None if times is None else np.maximum.reduceat(times[order], starts)
    return users[kept], items[kept], means, latest


def _duplicate(pair: DuplicatePair, origin: Origin) -> DuplicatePair:
    user, item = pair.user, pair.item
    first, second = sorted((pair.first, pair.second))
    return DuplicatePair(
        f"{origin.unit.capitalize()}s {origin.number(first)} and {origin.number(second)} of {origin.name} "
        f"both rate item {quoted_id(item)} for user {quoted_id(user)}; delete one of them, or keep the latest with "
        'duplicates="last" or their mean with duplicates="mean" (tacit join: --duplicates last, or mean).',
        first=first,
        second=second,
        user=user,
        item=item,
    )
