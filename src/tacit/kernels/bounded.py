"""Loops behind bounded queries: which entries of compressed rows a query looks at, and gradients with clipped terms.

For L = Σ (r_ij − u_i·v_j)² one rating's gradient is 2 (u_i·v_j − r_ij)·(v_j, u_i): v_j's multiple goes to user i's row,
u_i's to item j's. So clipping the pair to norm C scales its slope by min(1, C / (|slope|·‖(v_j, u_i)‖)).
"""

from __future__ import annotations

import numba
import numpy as np
from numba.extending import register_jitable

from tacit.rng import mix


# No flag here lets the compiler assume that numbers are finite: a clip must hold for whatever arrives.
@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _bounded_gradients(indptr, items, values, users, factors, threshold, for_users, for_items, by_user, by_item):
    p = users.shape[1]
    for i in range(len(indptr) - 1):
        of_user = 0.0
        for f in range(p):
            of_user += users[i, f] * users[i, f]
        for e in range(indptr[i], indptr[i + 1]):
            j = items[e]
            predicted, of_item = 0.0, 0.0
            for f in range(p):
                predicted += users[i, f] * factors[j, f]
                of_item += factors[j, f] * factors[j, f]
            slope = 2.0 * (predicted - values[e])
            length = abs(slope) * np.sqrt((of_item if for_users else 0.0) + (of_user if for_items else 0.0))
            if length > threshold:
                slope *= threshold / length
            for f in range(p):
                by_user[i, f] += slope * factors[j, f]
                by_item[j, f] += slope * users[i, f]


def bounded_gradients(
    indptr: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    users: np.ndarray,
    factors: np.ndarray,
    threshold: float,
    for_users: bool = True,
    for_items: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Both gradient sums, each rating's part clipped to norm `threshold`, which may be infinite.

    The norm counts the blocks that the answer is for. users: (n, p), factors: (m, p), values: (nnz,), all float64 and
    finite, with |entry| < 1e39. Returns (n, p) and (m, p) float64.
    """
    by_user, by_item = np.zeros_like(users), np.zeros_like(factors)
    _bounded_gradients(indptr, items, values, users, factors, float(threshold), for_users, for_items, by_user, by_item)
    return by_user, by_item


def bounded_gradients_numpy(
    indptr: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    users: np.ndarray,
    factors: np.ndarray,
    threshold: float,
    for_users: bool = True,
    for_items: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """The twin of `bounded_gradients`."""
    u, v = users[np.repeat(np.arange(len(users)), np.diff(indptr))], factors[items]
    slope = 2 * (np.einsum("ef,ef->e", u, v) - values)
    squares = for_users * np.einsum("ef,ef->e", v, v) + for_items * np.einsum("ef,ef->e", u, u)
    length = np.abs(slope) * np.sqrt(squares)
    clipped = length > threshold
    slope[clipped] *= threshold / length[clipped]
    by_user, by_item = np.zeros_like(users), np.zeros_like(factors)
    np.add.at(by_user, np.repeat(np.arange(len(users)), np.diff(indptr)), slope[:, None] * v)
    np.add.at(by_item, items, slope[:, None] * u)
    return by_user, by_item


# -- entries ---------------------------------------------------------------------------------------------------------


@numba.njit(cache=True, nogil=True)
def _entries_of(indptr, rows, pointers, entries):
    at = 0
    for a in range(len(rows)):
        for e in range(indptr[rows[a]], indptr[rows[a] + 1]):
            entries[at] = e
            at += 1
        pointers[a + 1] = at


def entries_of(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All entries of some rows, (nnz,) int64, and the pointers of these rows into them."""
    pointers = np.zeros(len(rows) + 1, dtype=np.int64)
    entries = np.empty(int((indptr[rows + 1] - indptr[rows]).sum()), dtype=np.int64)
    _entries_of(indptr, rows, pointers, entries)
    return pointers, entries


def entries_of_numpy(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The twin of `entries_of`."""
    counts = np.diff(indptr)[rows]
    pointers = np.concatenate(([0], np.cumsum(counts, dtype=np.int64)))
    return pointers, np.repeat(indptr[rows] - pointers[:-1], counts) + np.arange(pointers[-1])


@register_jitable
def _rank(key, item):
    """`tacit.rng.mix` for one pair of words."""
    z = key ^ ((item << np.uint64(32)) | (item >> np.uint64(32)))
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.float64((z ^ (z >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53


@register_jitable
def _lowest(ranks, few, limit):
    """The `limit`-th lowest rank. Ranks are uniform, so it is mostly among the few that are below about limit/count."""
    below, found = (limit + 6 * np.sqrt(limit) + 6) / len(ranks), 0
    for e in range(len(ranks)):
        if ranks[e] < below:
            few[found] = ranks[e]
            found += 1
    among = few[:found] if found >= limit else ranks
    return np.partition(among, limit - 1)[limit - 1]


@numba.njit(cache=True, nogil=True)
def _trimmed(pointers, entries, items, keys, limit, after, kept):
    ranks, few = np.empty(len(entries), dtype=np.float64), np.empty(len(entries), dtype=np.float64)
    at = 0
    for a in range(len(keys)):
        mine = entries[pointers[a] : pointers[a + 1]]
        if len(mine) <= limit:
            for e in range(len(mine)):
                kept[at + e] = mine[e]
            at += len(mine)
        else:
            below = 0
            for e in range(len(mine)):
                ranks[e] = _rank(keys[a], np.uint64(items[mine[e]]))
            last = _lowest(ranks[: len(mine)], few, limit)
            for e in range(len(mine)):
                below += ranks[e] < last
            room = limit - below  # of equal ranks the first
            for e in range(len(mine)):
                if ranks[e] <= last and (ranks[e] < last or room > 0):
                    room -= ranks[e] == last
                    kept[at] = mine[e]
                    at += 1
        after[a + 1] = at


def trimmed(
    pointers: np.ndarray, entries: np.ndarray, items: np.ndarray, keys: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """The `limit` ≥ 1 entries of each row that rank lowest, and the pointers of the rows into them.

    An entry's rank is `mix` of its row's key and its item. entries: (nnz,) int64, row a's being those from pointers[a]
    to pointers[a + 1]; items: the columns of all entries there are; keys: uint64, one a row.
    """
    after = np.zeros(len(pointers), dtype=np.int64)
    kept = np.empty(min(len(entries), limit * len(keys)), dtype=np.int64)
    _trimmed(pointers, entries, items, keys, limit, after, kept)
    return after, kept[: after[-1]]


def trimmed_numpy(
    pointers: np.ndarray, entries: np.ndarray, items: np.ndarray, keys: np.ndarray, limit: int
) -> tuple[np.ndarray, np.ndarray]:
    """The twin of `trimmed`."""
    counts = np.diff(pointers)
    owner = np.repeat(np.arange(len(keys)), counts)
    order = np.lexsort((mix(keys[owner], items[entries].astype(np.uint64)), owner))  # rows stay where they are
    place = np.empty_like(order)
    place[order] = np.arange(len(order)) - pointers[owner]
    return np.concatenate(([0], np.cumsum(np.minimum(counts, limit)))), entries[place < limit]


@numba.njit(cache=True, nogil=True)
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


def looked_up(items: np.ndarray, entries: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The items of some entries, increasing, int64; and where in that list each entry's item is."""
    place, places = np.zeros(m, dtype=np.int64), np.empty(len(entries), dtype=np.int64)
    touched = np.empty(min(m, len(entries)), dtype=np.int64)
    return touched[: _looked_up(items, entries, place, places, touched)], places


def looked_up_numpy(items: np.ndarray, entries: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """The twin of `looked_up`."""
    touched, places = np.unique(items[entries], return_inverse=True)
    return touched.astype(np.int64), places


@numba.njit(cache=True, nogil=True)
def _shifted(values, entries, low, span, out):
    for e in range(len(entries)):
        value = np.float64(values[entries[e]]) - low
        out[e] = min(value, span) if value > 0 else 0.0


def shifted(values: np.ndarray, entries: np.ndarray, low: float, span: float) -> np.ndarray:
    """The values of some entries, shifted to start at 0 and clipped into [0, span], float64; NaN counts as 0."""
    out = np.empty(len(entries), dtype=np.float64)
    _shifted(values, entries, float(low), float(span), out)
    return out


def shifted_numpy(values: np.ndarray, entries: np.ndarray, low: float, span: float) -> np.ndarray:
    """The twin of `shifted`."""
    return np.nan_to_num(np.clip(values[entries].astype(np.float64) - low, 0.0, span), nan=0.0)


@numba.njit(cache=True, nogil=True)
def _first_fall(indptr, items):
    for i in range(len(indptr) - 1):
        row, falls = items[indptr[i] : indptr[i + 1]], 0
        for e in range(len(row) - 1):  # counted rather than looked for, which compilers can do many at a time
            falls += row[e + 1] <= row[e]
        if falls:
            for e in range(len(row) - 1):
                if row[e + 1] <= row[e]:
                    return indptr[i] + e + 1
    return -1


def first_fall(indptr: np.ndarray, items: np.ndarray) -> int:
    """The first entry whose item is not above the one before it in its row; −1 if there is none."""
    return int(_first_fall(indptr, items))


def first_fall_numpy(indptr: np.ndarray, items: np.ndarray) -> int:
    """The twin of `first_fall`."""
    falls = np.flatnonzero(items[1:] <= items[:-1]) + 1
    falls = np.setdiff1d(falls, indptr)
    return int(falls[0]) if len(falls) else -1
