"""Loops over entries of compressed rows: which of them a query looks at, and what it finds there.

Rows are given by pointers: row i has the entries indptr[i] … indptr[i + 1] − 1, and arrays of items and values have one
number an entry.
"""

import numpy as np
from numba.extending import register_jitable

from tacit.kernels.jit import Array, compiled
from tacit.rng import mix


@compiled()
def entries_of(indptr: Array, rows: Array) -> tuple[Array, Array]:
    """All entries of some rows, (nnz,) int64, and the pointers of these rows into them."""
    pointers = np.zeros(len(rows) + 1, dtype=np.int64)
    for a in range(len(rows)):
        pointers[a + 1] = pointers[a] + indptr[rows[a] + 1] - indptr[rows[a]]
    entries = np.empty(pointers[-1], dtype=np.int64)
    for a in range(len(rows)):
        mine = entries[pointers[a] : pointers[a + 1]]
        for e in range(len(mine)):
            mine[e] = indptr[rows[a]] + e
    return pointers, entries


def entries_of_numpy(indptr, rows):
    """The twin of `entries_of`."""
    counts = np.diff(indptr)[rows]
    pointers = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return pointers, np.repeat(indptr[rows] - pointers[:-1], counts) + np.arange(pointers[-1])


@compiled()
def rows_of(indptr: Array, entries: Array) -> tuple[Array, Array]:
    """The rows that some entries, which increase, are in, int64; and the pointers of these rows into them."""
    rows, pointers = np.empty(len(entries), dtype=np.int64), np.zeros(len(entries) + 1, dtype=np.int64)
    i, count = 0, 0
    for e in range(len(entries)):
        if count == 0 or entries[e] >= indptr[i + 1]:
            while entries[e] >= indptr[i + 1]:
                i += 1
            rows[count] = i
            count += 1
        pointers[count] = e + 1
    return rows[:count], pointers[: count + 1]


def rows_of_numpy(indptr, entries):
    """The twin of `rows_of`."""
    rows, counts = np.unique(np.searchsorted(indptr, entries, side="right") - 1, return_counts=True)
    return rows, np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))


@register_jitable
def _rank(key, item):
    """2⁵³ times `tacit.rng.mix` of two words."""
    z = key ^ ((item << np.uint64(32)) | (item >> np.uint64(32)))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(31))) >> np.uint64(11)


@register_jitable
def _lowest(ranks, limit):
    if limit > 32:
        return np.partition(ranks, limit - 1)[limit - 1]
    lowest, last = ranks[:limit].copy(), 0
    for e in range(limit):
        last = e if lowest[e] > lowest[last] else last
    for e in range(limit, len(ranks)):
        if ranks[e] < lowest[last]:
            lowest[last] = ranks[e]
            for k in range(limit):
                last = k if lowest[k] > lowest[last] else last
    return lowest[last]


@compiled()
def trimmed(pointers: Array, entries: Array, items: Array, keys: Array, limit: int) -> tuple[Array, Array]:
    """The `limit` ≥ 1 entries of each row that rank lowest, and the pointers of the rows into them.

    An entry's rank is `mix` of its row's key and its item. entries: (nnz,) int64, row a's being those from pointers[a]
    to pointers[a + 1]; items: the columns of all entries there are; keys: uint64, one a row.
    Ranks are uniform, so that the lowest are mostly among the few below about limit/count, and only those count.
    """
    after, most = np.zeros(len(pointers), dtype=np.int64), len(entries)
    kept = np.empty(min(most, limit * len(keys)), dtype=np.int64)
    ranks, few, place = np.empty(most, np.uint64), np.empty(most, np.uint64), np.empty(most, np.int64)
    at = 0
    for a in range(len(keys)):
        mine = entries[pointers[a] : pointers[a + 1]]
        count, found = len(mine), 0
        if count <= limit:
            for e in range(count):
                kept[at + e] = mine[e]
            at += count
        else:
            whole = mine[-1] - mine[0] == count - 1  # a row's entries side by side can be ranked many at a time
            theirs = items[mine[0] : mine[0] + count] if whole else items[mine]
            for e in range(count):
                ranks[e] = _rank(keys[a], np.uint64(theirs[e]))
            below = 2.0**53 * min(1.0, (limit + 6 * np.sqrt(limit) + 6) / count)
            for e in range(count):
                few[found], place[found] = ranks[e], e
                found += ranks[e] < np.uint64(below)
            if found < limit:
                found = count
                for e in range(count):
                    few[e], place[e] = ranks[e], e
            last, room = _lowest(few[:found], limit), limit
            for e in range(found):
                room -= few[e] < last
            for e in range(found):
                equal = few[e] == last and room > 0  # of equal ranks the first
                if equal or few[e] < last:
                    room -= equal
                    kept[at] = mine[place[e]]
                    at += 1
        after[a + 1] = at
    return after, kept[:at]


def trimmed_numpy(pointers, entries, items, keys, limit):
    """The twin of `trimmed`."""
    counts = np.diff(pointers)
    owner = np.repeat(np.arange(len(keys)), counts)
    order = np.lexsort((mix(keys[owner], items[entries].astype(np.uint64)), owner))  # rows stay where they are
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - pointers[owner]
    return np.concatenate(([0], np.cumsum(np.minimum(counts, limit)))), entries[place < limit]


@compiled()
def _looked_up(items, entries, place, places, touched):
    for e in range(len(entries)):
        place[items[entries[e]]] = 1
    count = 0
    for j in range(len(place)):
        if place[j]:
            touched[count] = j
            place[j] = count
            count += 1
    for e in range(len(entries)):
        places[e] = place[items[entries[e]]]
    return count


def looked_up(items: Array, entries: Array, m: int) -> tuple[Array, Array]:
    """The items of some entries, increasing, int64; and where in that list each entry's item is."""
    place, places = np.zeros(m, dtype=np.int64), np.empty(len(entries), dtype=np.int64)
    touched = np.empty(min(m, len(entries)), dtype=np.int64)
    return touched[: _looked_up(items, entries, place, places, touched)], places


def looked_up_numpy(items, entries, m):
    """The twin of `looked_up`."""
    touched, places = np.unique(items[entries], return_inverse=True)
    return touched.astype(np.int64), places


@compiled()
def _shifted(values, entries, low, span, out):
    for e in range(len(entries)):
        value = np.float64(values[entries[e]]) - low
        out[e] = min(value, span) if value > 0 else 0.0


def shifted(values: Array, entries: Array, low: float, span: float) -> Array:
    """The values of some entries, shifted to start at 0 and clipped into [0, span], float64; NaN counts as 0."""
    out = np.empty(len(entries), dtype=np.float64)
    _shifted(values, entries, float(low), float(span), out)
    return out


def shifted_numpy(values, entries, low, span):
    """The twin of `shifted`."""
    return np.nan_to_num(np.clip(values[entries].astype(np.float64) - low, 0.0, span), nan=0.0)


@compiled()
def first_fault(indptr: Array, items: Array, m: int) -> int:
    """The first entry whose item is outside [0, m), or not above the one before it in its row; −1 if there is none."""
    for i in range(len(indptr) - 1):
        row, falls = items[indptr[i] : indptr[i + 1]], 0
        for e in range(len(row) - 1):  # counted rather than looked for, which compilers can do many at a time
            falls += row[e + 1] <= row[e]
        if falls or (len(row) and (row[0] < 0 or row[-1] >= m)):
            for e in range(len(row)):
                if row[e] < 0 or row[e] >= m or (e and row[e] <= row[e - 1]):
                    return indptr[i] + e
    return -1


def first_fault_numpy(indptr, items, m):
    """The twin of `first_fault`."""
    falls = np.setdiff1d(np.flatnonzero(items[1:] <= items[:-1]) + 1, indptr)
    faults = np.union1d(falls, np.flatnonzero((items < 0) | (items >= m)))
    return int(faults[0]) if len(faults) else -1
