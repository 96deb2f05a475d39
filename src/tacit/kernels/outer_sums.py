"""Sums of users' factors over the items that they took: what item factors of least squares are solved from."""

import numpy as np

from tacit.kernels.jit import Array, compiled


@compiled(fastmath=True)
def _outer_sums(indptr, items, x, gram, moment):
    k = x.shape[1]
    outer = np.empty(k * (k + 1) // 2)
    for i in range(len(indptr) - 1):
        if indptr[i] == indptr[i + 1]:
            continue
        at = 0
        for f in range(k):
            for h in range(f, k):
                outer[at] = x[i, f] * x[i, h]
                at += 1
        for e in range(indptr[i], indptr[i + 1]):
            row, sums = gram[items[e]], moment[items[e]]
            for t in range(len(outer)):
                row[t] += outer[t]
            for f in range(k):
                sums[f] += x[i, f]


def outer_sums(indptr: Array, items: Array, x: Array, n_items: int) -> tuple[Array, Array]:
    """Per item j, Σ x_i·x_iᵀ as an upper triangle, and Σ x_i, over the rows i that have j.

    indptr, items: compressed rows; x: (n, k) float64. Returns (m, k(k+1)/2) and (m, k) float64.
    """
    k = x.shape[1]
    gram, moment = np.zeros((n_items, k * (k + 1) // 2)), np.zeros((n_items, k))
    _outer_sums(indptr, items, x, gram, moment)
    return gram, moment


def outer_sums_numpy(indptr, items, x, n_items):
    """The twin of `outer_sums`."""
    taken = np.zeros((len(indptr) - 1, n_items))
    taken[np.repeat(np.arange(len(taken)), np.diff(indptr)), items] = 1
    a, b = np.triu_indices(x.shape[1])
    return taken.T @ (x[:, a] * x[:, b]), taken.T @ x
