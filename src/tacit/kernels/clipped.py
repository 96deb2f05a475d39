"""The loop behind bounded gradients: sums in which every rating's term is clipped.

For L = Σ (r_ij − u_i·v_j)² one rating's gradient is 2 (u_i·v_j − r_ij)·(v_j, u_i): v_j's multiple goes to user i's row,
u_i's to item j's. So clipping the pair to norm C scales its slope by min(1, C / (|slope|·‖(v_j, u_i)‖)).
"""

import numpy as np

from tacit.kernels.jit import Array, compiled


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
    indptr: Array,
    items: Array,
    values: Array,
    users: Array,
    factors: Array,
    threshold: float,
    for_users: bool = True,
    for_items: bool = True,
) -> tuple[Array, Array]:
    """Both gradient sums, each rating's part clipped to norm `threshold`, which may be infinite.

    The norm counts the blocks that the answer is for. users: (n, p), factors: (m, p), values: (nnz,), all float64 and
    finite, with |entry| < 1e39. Returns (n, p) and (m, p) float64.
    """
    return _bounded_gradients(indptr, items, values, users, factors, float(threshold), for_users, for_items)


def bounded_gradients_numpy(indptr, items, values, users, factors, threshold, for_users=True, for_items=True):
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


def bounded_slopes(indptr: Array, items: Array, values: Array, users: Array, factors: Array, threshold: float) -> Array:
    """What each rating multiplies its user's factors by, in the gradient of its item's alone; (nnz,) float64.

    Shapes and the clip are as in `bounded_gradients` for items alone: rating e adds slope_e·u to its item's row.
    """
    owners = np.repeat(np.arange(len(users)), np.diff(indptr))
    slope: Array = 2 * (np.einsum("ef,ef->e", users[owners], factors[items]) - values)
    length = np.abs(slope) * np.sqrt(np.einsum("nf,nf->n", users, users))[owners]
    clipped = length > threshold
    slope[clipped] *= threshold / length[clipped]
    return slope
