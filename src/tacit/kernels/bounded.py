"""Loops behind bounded queries: gradients whose every term is clipped, and the lowest ranks of each row.

For L = Σ (r_ij − u_i·v_j)² one rating's gradient is 2 (u_i·v_j − r_ij)·(v_j, u_i): v_j's multiple goes to user i's row,
u_i's to item j's. So clipping the pair to norm C scales its slope by min(1, C / (|slope|·‖(v_j, u_i)‖)).
"""

from __future__ import annotations

import numba
import numpy as np


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


@numba.njit(cache=True, nogil=True)
def _lowest(indptr, ranks, limit, kept):
    for i in range(len(indptr) - 1):
        start, end = indptr[i], indptr[i + 1]
        if end - start <= limit:
            kept[start:end] = True
            continue
        last = np.partition(ranks[start:end], limit - 1)[limit - 1]
        room = limit
        for e in range(start, end):
            if ranks[e] < last:
                kept[e] = True
                room -= 1
        for e in range(start, end):  # of equal ranks the first
            if ranks[e] == last and room > 0:
                kept[e] = True
                room -= 1


def lowest(indptr: np.ndarray, ranks: np.ndarray, limit: int) -> np.ndarray:
    """Which entries are among the `limit` ≥ 1 lowest of their row, (nnz,) bool; ranks are float64, without NaN."""
    kept = np.zeros(len(ranks), dtype=np.bool_)
    _lowest(indptr, ranks, limit, kept)
    return kept


def lowest_numpy(indptr: np.ndarray, ranks: np.ndarray, limit: int) -> np.ndarray:
    """The twin of `lowest`."""
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.lexsort((ranks, owner))  # rows stay in place, so position − start is the place within the row
    kept = np.zeros(len(ranks), dtype=np.bool_)
    kept[order[np.arange(len(owner)) - indptr[owner] < limit]] = True
    return kept
