"""The loop behind bounded gradients: sums in which every rating's term is clipped.

For L = Σ (r_ij − u_i·v_j)² one rating's gradient is 2 (u_i·v_j − r_ij)·(v_j, u_i): v_j's multiple goes to user i's row,
u_i's to item j's. So clipping the pair to norm C scales its slope by min(1, C / (|slope|·‖(v_j, u_i)‖)).
"""

from __future__ import annotations

import math

import numpy as np

from tacit.kernels.embed import _embed, embed_rows_numpy
from tacit.kernels.entries import _looked_up, _shifted, looked_up_numpy, shifted_numpy
from tacit.kernels.jit import compiled


# No flag here lets the compiler assume that numbers are finite: a clip must hold for whatever arrives.
@compiled(fastmath={"reassoc", "contract", "nsz"})
def _bounded_gradients(indptr, items, values, users, factors, threshold, for_users, for_items):
    p = users.shape[1]
    by_user, by_item = np.zeros_like(users), np.zeros_like(factors)
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
    return by_user, by_item


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
    return _bounded_gradients(indptr, items, values, users, factors, float(threshold), for_users, for_items)


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


@compiled(fastmath={"reassoc", "contract", "nsz"})
def _embedded_gradients(
    indptr, entries, items, values, low, span, rows, users, factors, root, for_users, for_items, touched
):
    place, places = np.zeros(len(factors), dtype=np.int64), np.empty(len(entries), dtype=np.int64)
    count, rated = _looked_up(items, entries, place, places, touched), np.empty(len(entries))
    _shifted(values, entries, low, span, rated)
    u, v = np.empty((len(rows), users.shape[1])), np.empty((count, users.shape[1]))
    _embed(users, rows, root, u)
    _embed(factors, touched[:count], root, v)
    return count, *_bounded_gradients(indptr, places, rated, u, v, np.inf, for_users, for_items)


def embedded_gradients(
    indptr: np.ndarray,
    entries: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    low: float,
    span: float,
    rows: np.ndarray,
    users: np.ndarray,
    factors: np.ndarray,
    largest: float,
    for_users: bool = True,
    for_items: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gradient sums over some entries at Π(users[rows]) and Π(factors): what `looked_up`, `shifted`, `embed_rows` and
    `bounded_gradients` make one after the other, in one call.

    indptr, entries, rows : a `tacit.boundary.trim.Part`; items, values: of all entries; low, span: of the scale
    largest : the R of Π. Returns the items of the entries, increasing, and the sums by row and by such an item.
    """
    touched = np.empty(min(len(factors), len(entries)), dtype=np.int64)
    ratings, scale = (indptr, entries, items, values), (float(low), float(span))
    root, blocks = math.sqrt(largest), (for_users, for_items)
    count, by_user, by_item = _embedded_gradients(*ratings, *scale, rows, users, factors, root, *blocks, touched)
    return touched[:count], by_user, by_item


def embedded_gradients_numpy(
    indptr: np.ndarray,
    entries: np.ndarray,
    items: np.ndarray,
    values: np.ndarray,
    low: float,
    span: float,
    rows: np.ndarray,
    users: np.ndarray,
    factors: np.ndarray,
    largest: float,
    for_users: bool = True,
    for_items: bool = True,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The twin of `embedded_gradients`."""
    touched, places = looked_up_numpy(items, entries, len(factors))
    rated = shifted_numpy(values, entries, low, span)
    u, v = embed_rows_numpy(users, rows, largest), embed_rows_numpy(factors, touched, largest)
    return touched, *bounded_gradients_numpy(indptr, places, rated, u, v, math.inf, for_users, for_items)


def bounded_slopes(
    indptr: np.ndarray, items: np.ndarray, values: np.ndarray, users: np.ndarray, factors: np.ndarray, threshold: float
) -> np.ndarray:
    """What each rating multiplies its user's factors by, in the gradient of its item's alone; (nnz,) float64.

    Shapes and the clip are as in `bounded_gradients` for items alone: rating e adds slope_e·u to its item's row.
    """
    owners = np.repeat(np.arange(len(users)), np.diff(indptr))
    slope: np.ndarray = 2 * (np.einsum("ef,ef->e", users[owners], factors[items]) - values)
    length = np.abs(slope) * np.sqrt(np.einsum("nf,nf->n", users, users))[owners]
    clipped = length > threshold
    slope[clipped] *= threshold / length[clipped]
    return slope
