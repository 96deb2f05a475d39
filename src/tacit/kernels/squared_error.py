"""Gradients of the squared error of a factor model, summed over the ratings of some users (P0, eqs 2–3).

For L = Σ (r_ij − u_i·v_j)² over the ratings of the sampled rows,

    ∂L/∂u_i = Σ_j −2 (r_ij − u_i·v_j) v_j        ∂L/∂v_j = Σ_i −2 (r_ij − u_i·v_j) u_i
"""

import numpy as np

from tacit.kernels.jit import Array, compiled


@compiled(fastmath=True)
def _factor_gradients(indptr, items, values, shift, rows, users, factors, by_user, by_item):
    p = users.shape[1]
    for a in range(len(rows)):
        i = rows[a]
        for e in range(indptr[i], indptr[i + 1]):
            j = items[e]
            predicted = np.float32(0)
            for f in range(p):
                predicted += users[i, f] * factors[j, f]
            slope = np.float32(2) * (predicted - (values[e] - shift))
            for f in range(p):
                by_user[i, f] += slope * factors[j, f]
                by_item[j, f] += slope * users[i, f]


def factor_gradients(
    indptr: Array, items: Array, values: Array, shift: float, rows: Array, users: Array, factors: Array
) -> tuple[Array, Array]:
    """Both gradients, over the ratings of `rows`; ratings are taken as values − shift.

    users: (n, p), factors: (m, p), float32. Returns (n, p) and (m, p) float32; rows that were not sampled are 0.
    """
    by_user, by_item = np.zeros_like(users), np.zeros_like(factors)
    _factor_gradients(indptr, items, values, np.float32(shift), rows, users, factors, by_user, by_item)
    return by_user, by_item


def factor_gradients_numpy(indptr, items, values, shift, rows, users, factors):
    """The twin of `factor_gradients`."""
    counts = np.diff(indptr)
    sampled = np.zeros(len(counts), dtype=bool)
    sampled[rows] = True
    entries = np.repeat(sampled, counts)
    i, j = np.repeat(np.arange(len(counts)), counts)[entries], items[entries]
    slope = 2 * (np.einsum("ef,ef->e", users[i], factors[j]) - (values[entries] - np.float32(shift)))
    by_user, by_item = np.zeros_like(users), np.zeros_like(factors)
    np.add.at(by_user, i, slope[:, None] * factors[j])
    np.add.at(by_item, j, slope[:, None] * users[i])
    return by_user, by_item
