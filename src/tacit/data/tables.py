"""The one path from a table of rows to `Ratings`: every value is checked, and bad ones are named with their rows.

Nothing here loops over rows: Arrow encodes ids as dictionaries and only the dictionary is looked at, and the place of a
bad value is sought only once there is one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tacit.data.columns import Columns, Origin, option_hint
from tacit.data.ratings import Feedback, Ratings, Scale, inferred_scale, row_order
from tacit.data.values import (
    Problem,
    decoded,
    encode,
    explain_number,
    is_blank,
    quoted_id,
    read_ids,
    read_numbers,
    read_times,
    shortened,
)
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, DuplicatePair, PrivacyRefused

_LARGEST = np.finfo(np.float32).max
#: How many bad rows a message shows.
_SHOWN = 5

Codes = tuple[np.ndarray, Vocabulary]


def ratings_from_table(
    table: Any,
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
    table : at least the columns that `columns` names, each under `table[name]`; others are ignored
    duplicates : "error", or which rating a pair that occurs twice gets: the "last" (by timestamp where there is
        one, and by place in the file among equals) or the "mean"
    bad_rows : "error", or "drop" to leave out rows that are not ratings. Whether a row is bad depends on that row
        and on what is declared, so this is sound with [privacy]
    scale : the declared scale; None infers it. Implicit feedback is always 1 on the scale 0…1
    listed_users, listed_items : ids that belong to the vocabulary whether rated or not
    closed : whether an item that is not listed is an error, as with a declared catalogue
    private : whether attributes of items may not be read from the ratings
    others : attributes that `Ratings` takes as they are
    """
    if table.num_rows == 0:
        raise DataError(f"There are no ratings in {origin.name}; give data with at least one row.")
    declared = None if feedback is Feedback.IMPLICIT else scale
    catalogue = Vocabulary(np.unique(listed_items), "item") if closed and listed_items is not None else None
    places, ids, no_user = read_ids(table[columns.user], "user", origin)
    users, user_ids = _coded(places, ids, "user", listed_users)
    places, ids, no_item = read_ids(table[columns.item], "item", origin)
    items, item_ids = _coded(places, ids, "item", listed_items, catalogue)
    del places, ids
    if catalogue is not None:
        no_item = _off_catalogue(items, no_item, table[columns.item], len(catalogue))
    values, no_rating = _values(table, origin, columns, feedback, declared)
    times, no_time = None, None
    if columns.timestamp is not None:
        times, no_time = read_times(table[columns.timestamp], origin)
    named = (columns.user, columns.item, columns.rating, columns.timestamp)
    checks = zip(named, (no_user, no_item, no_rating, no_time), strict=True)
    problems = {str(name): problem for name, problem in checks if problem is not None}
    good = None
    if problems:
        good = _good_rows(problems, table, origin, bad_rows)
        users, user_ids = _coded(*_only_used(users[good], user_ids.ids), "user", listed_users)
        items, item_ids = _coded(*_only_used(items[good], item_ids.ids), "item", listed_items, catalogue)
        values, times = values[good], None if times is None else times[good]
        dropped, total = table.num_rows - len(good), table.num_rows
        note = f"{dropped:,} of {total:,} {origin.unit}s were not ratings and were left out (bad_rows)"
        others = {**others, "notes": (*others.get("notes", ()), note), "dropped": dropped}
        origin = replace(origin, rows=good.tolist())
    if columns.attribute is not None:
        column = decoded(table[columns.attribute])
        column = column if good is None else column.take(pa.array(good))
        others |= _attribute(column, columns.attribute, (users, user_ids), (items, item_ids), private)
    if feedback is Feedback.IMPLICIT:
        scale = Scale(0.0, 1.0)
    elif scale is None and feedback is Feedback.COUNT:
        scale = Scale(0.0, max(float(values.max()), 1.0), declared=False)
    pa.default_memory_pool().release_unused()  # Arrow holds on to freed memory, and the sort needs room
    if duplicates != "error":
        users, items, values, times = _merged(users, items, values, times, len(item_ids), duplicates)
    try:
        indptr, order = row_order(users, items, user_ids, item_ids)
    except DuplicatePair as pair:
        raise _duplicate(pair, origin) from None
    if order is not None:  # one by one, so that each is freed before the next is made
        items = items[order]
        values = values[order]
        times = None if times is None else times[order]
    scale = inferred_scale(values) if scale is None else scale
    return Ratings(indptr, items, values, user_ids, item_ids, scale, times, feedback, **others)


def _values(
    table: Any, origin: Origin, columns: Columns, feedback: Feedback, scale: Scale | None
) -> tuple[np.ndarray, Problem | None]:
    """The ratings as float32, (rows,), and those that are missing, not finite, or outside the scale."""
    if feedback is Feedback.IMPLICIT or columns.rating is None:
        return np.ones(table.num_rows, dtype=np.float32), None
    column = table[columns.rating]
    numbers = read_numbers(column, "rating", origin)
    with np.errstate(over="ignore"):
        values = numbers.astype(np.float32, copy=False)
    # Compared in the precision of the stored ratings: 4.7 in a file is on a scale that ends at 4.7.
    low = np.float32(0) if feedback is Feedback.COUNT else -_LARGEST
    low = low if scale is None else max(low, np.float32(scale.low))
    high = _LARGEST if scale is None else np.float32(scale.high)
    if values.min() >= low and values.max() <= high:  # false where there is a NaN
        return values, None

    def explain(row: int) -> str:
        value = decoded(column)[row].as_py()
        unreadable = explain_number(value, "rating", origin)
        if unreadable is not None:
            return unreadable
        if feedback is Feedback.COUNT and values[row] < 0:
            hint = option_hint("feedback", "explicit")
            return f"has the count {values[row]:g}, but counts start at 0; correct the {origin.unit}, or use {hint}"
        assert scale is not None
        finite = numbers[np.isfinite(numbers)]
        wide = f"scale=({min(scale.low, finite.min()):g}, {max(scale.high, finite.max()):g})"
        return (
            f"has the rating {values[row]:g}, off the declared scale {scale.low:g}…{scale.high:g}; correct the "
            f"{origin.unit}, or declare {wide}"
        )

    return values, Problem(~((values >= low) & (values <= high)), explain)


def _off_catalogue(codes: np.ndarray, missing: Problem | None, column: pa.ChunkedArray, items: int) -> Problem | None:
    """Rows whose item is missing, or is not in the declared catalogue."""
    unknown = codes < 0
    if not unknown.any():
        return missing

    def explain(row: int) -> str:
        if missing is not None and missing.bad[row]:
            return missing.explain(row)
        return (
            f"rates item {quoted_id(decoded(column)[row].as_py())}, which is not among the {items:,} items of the "
            "catalogue; correct the id, or list it in the catalogue"
        )

    return Problem(unknown if missing is None else unknown | missing.bad, explain)


def _good_rows(problems: dict[str, Problem], table: Any, origin: Origin, bad_rows: str) -> np.ndarray:
    """The rows without a problem; an error if rows may not be dropped, or none would remain."""
    bad = np.logical_or.reduce([problem.bad for problem in problems.values()])
    count = int(bad.sum())
    if bad_rows == "drop" and count < len(bad):
        return np.flatnonzero(~bad)
    problem = next(iter(problems.values()))
    row = int(np.argmax(problem.bad))
    first = f"{origin.at(row)} {problem.explain(row)}"
    if count == len(bad):  # the column is wrong, and not some rows
        raise DataError(f"{first}.")
    hint = f"to leave bad rows out, use {option_hint('bad_rows', 'drop')}"
    if count == 1:
        raise DataError(f"{first}; {hint}.")

    def shown(row: int) -> str:
        name = next(name for name, problem in problems.items() if problem.bad[row])
        value = decoded(table[name])[row].as_py()
        what = f"no {name}" if is_blank(value) else f'{name} "{shortened(str(value))}"'
        return f"{origin.number(row)} ({what})"

    listed = ", ".join(shown(row) for row in np.flatnonzero(bad)[:_SHOWN].tolist())
    raise DataError(
        f"{first}. In all {count:,} of {len(bad):,} {origin.unit}s are bad, on {origin.unit}s {listed}"
        f"{', …' if count > _SHOWN else ''}; {hint}."
    )


def _only_used(places: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same without ids that no row has."""
    used, again = np.unique(places, return_inverse=True)
    return again, ids[used]


def _coded(
    places: np.ndarray,
    ids: np.ndarray,
    kind: str,
    listed: np.ndarray | None,
    vocabulary: Vocabulary | None = None,
) -> Codes:
    """The row in the vocabulary of each id, (rows,) int32, and the vocabulary: the given one, or that of all ids."""
    if vocabulary is None and listed is None:
        vocabulary = Vocabulary(np.unique(ids), kind, listed=False)
    elif vocabulary is None:
        assert listed is not None
        if ids.dtype != listed.dtype:
            ids, listed = ids.astype(str).astype(object), listed.astype(str).astype(object)
        together = np.unique(np.concatenate([ids, listed]))
        vocabulary = Vocabulary(together, kind, listed=len(together) == len(np.unique(listed)))
    return vocabulary.rows(ids).astype(np.int32)[places], vocabulary


def _attribute(column: pa.ChunkedArray, name: str, users: Codes, items: Codes, private: bool) -> dict[str, pa.Table]:
    """A column of the ratings as an attribute: of the users if all rows of a user agree on it, else of the items."""
    encoded = encode(column)
    there = np.flatnonzero(encoded.is_valid().to_numpy(zero_copy_only=False))
    value = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)[there]
    clash = ""
    for kind, (codes, ids) in (("user", users), ("item", items)):
        own, first = codes[there], np.full(len(ids), -1, dtype=np.int64)
        first[own[::-1]] = value[::-1]
        differs = first[own] != value
        if differs.any():
            at = int(np.argmax(differs))
            texts = [encoded.dictionary[int(place)].as_py() for place in (first[own[at]], value[at])]
            one, other = (f'"{shortened(str(text))}"' for text in texts)
            clash = clash or f"user {quoted_id(ids.ids[[own[at]]].tolist()[0])} has {one} and {other}"
            continue
        if kind == "item" and private:
            raise PrivacyRefused(
                f'"{name}" describes items. With [privacy], attributes of items are not read from the ratings, since '
                "that would reveal which items were rated; give them in a table, with [data] item_table."
            )
        return {f"{kind}_attributes": pa.table({name: encoded.dictionary.take(pa.array(first, mask=first < 0))})}
    raise DataError(
        f'"{name}" describes neither users nor items: {clash}, and items differ too; give each user one value, or '
        "divide by another column."
    )


def _merged(
    users: np.ndarray, items: np.ndarray, values: np.ndarray, times: np.ndarray | None, n_items: int, duplicates: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """One entry per pair, in order of pairs: the last, or the mean with the last time."""
    key = users.astype(np.int64) * n_items + items
    # The mean is summed in order of size, so that it does not depend on the order of the file.
    within = values if duplicates == "mean" else times
    order = np.argsort(key, kind="stable") if within is None else np.lexsort((within, key))
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.concatenate((starts[1:], [len(key)])) - 1
    last = order[ends]
    if duplicates == "last":
        return users[last], items[last], values[last], None if times is None else times[last]
    means = np.add.reduceat(values[order].astype(np.float64), starts) / (ends - starts + 1)
    latest = None if times is None else np.maximum.reduceat(times[order], starts)
    return users[last], items[last], means.astype(np.float32), latest


def _duplicate(pair: DuplicatePair, origin: Origin) -> DuplicatePair:
    first, second = sorted((pair.first, pair.second))
    return DuplicatePair(
        f"{origin.unit.capitalize()}s {origin.number(first)} and {origin.number(second)} of {origin.name} "
        f"both rate item {quoted_id(pair.item)} for user {quoted_id(pair.user)}; delete one of them, or use the latest "
        'with duplicates="last" or their mean with duplicates="mean" (tacit join: --duplicates last, or mean).',
        first=first,
        second=second,
        user=pair.user,
        item=pair.item,
    )
