"""Least squares of many rows at once, the other side fixed: half a sweep of alternating least squares.

What entries say about a row is Σ w·x·xᵀ and Σ t·x over the factors x of the other side. Some entries' factors are
copied next to each other, so that products of matrices add them up.
"""

import numpy as np

from tacit.kernels.jit import Array, compiled
from tacit.kernels.posteriors import in_row_blocks

#: Entries whose factors are multiplied at a time, and rows that are solved at a time.
TOGETHER, AT_ONCE = 256, 4_096


@compiled(fastmath=True)
def _gram_sums(indptr, columns, roots, values, x, first, last, sums, targets):
    k = x.shape[1]
    rows, part, whole = np.empty((TOGETHER, k), x.dtype), np.empty((k, k), x.dtype), np.empty((k, k), x.dtype)
    for i in range(first, last):
        whole[:] = 0
        target = targets[i]
        target[:] = 0
        for start in range(indptr[i], indptr[i + 1], TOGETHER):
            count = min(TOGETHER, indptr[i + 1] - start)
            for e in range(count):
                factors, copy = x[columns[start + e]], rows[e]
                root, value = roots[start + e], values[start + e]
                for f in range(k):
                    copy[f] = root * factors[f]
                    target[f] += value * factors[f]
            these = rows[:count]
            np.dot(these.T, these, part)
            whole += part
        place = 0
        for f in range(k):
            for h in range(f, k):
                sums[i, place] = whole[f, h]
                place += 1


def gram_sums(indptr: Array, columns: Array, weights: Array, values: Array, x: Array) -> tuple[Array, Array]:
    """For each row, Σ_e w_e·x·xᵀ as an upper triangle and Σ_e t_e·x, where x are the factors of the entries' columns.

    weights ≥ 0 and values are w and t, one an entry. Returns (n, k(k+1)/2) and (n, k) float32.
    """
    n, k = len(indptr) - 1, x.shape[1]
    sums, targets = np.empty((n, k * (k + 1) // 2), dtype=np.float32), np.empty((n, k), dtype=np.float32)
    x, roots, values = (np.ascontiguousarray(array, dtype=np.float32) for array in (x, np.sqrt(weights), values))

    def block(first: int, last: int) -> None:
        _gram_sums(indptr, columns, roots, values, x, first, last, sums, targets)

    in_row_blocks(block, indptr, (indptr[-1] - indptr[0]) * k * k)
    return sums, targets


def gram_sums_numpy(indptr, columns, weights, values, x):
    """The twin of `gram_sums`."""
    n, (a, b) = len(indptr) - 1, np.triu_indices(x.shape[1])
    sums, targets = np.zeros((n, len(a))), np.zeros((n, x.shape[1]))
    for i in range(n):
        mine = slice(indptr[i], indptr[i + 1])
        y = x[columns[mine]].astype(np.float64)
        sums[i], targets[i] = ((y * weights[mine, None]).T @ y)[a, b], values[mine] @ y
    return sums.astype(np.float32), targets.astype(np.float32)


@compiled(fastmath=True)
def _gram_solutions(sums, targets, weight, common, first, last, out):
    k = targets.shape[1]
    a, x = np.empty((k, k)), np.empty(k)
    for i in range(first, last):
        place = 0
        for f in range(k):
            x[f] = targets[i, f]
            for h in range(f, k):
                a[h, f] = common[f, h] + weight * sums[i, place]
                place += 1
        for f in range(k):  # Cholesky, a = L·Lᵀ, and L⁻¹·x on the way
            for h in range(f):
                value = a[f, h]
                for g in range(h):
                    value -= a[f, g] * a[h, g]
                a[f, h] = value * a[h, h]
                x[f] -= a[f, h] * x[h]
            value = a[f, f]
            for g in range(f):
                value -= a[f, g] * a[f, g]
            a[f, f] = 1.0 / np.sqrt(max(value, 1e-12))
            x[f] *= a[f, f]
        for f in range(k - 1, -1, -1):
            x[f] *= a[f, f]
            for g in range(f):
                x[g] -= a[f, g] * x[f]
            out[i, f] = x[f]


def gram_solutions(sums: Array, targets: Array, weight: float, common: Array) -> Array:
    """(common + weight·Σ)⁻¹·target of every row, by Cholesky; (n, k) float32.

    sums (n, k(k+1)/2) and targets (n, k) are as of `gram_sums`; common (k, k) is symmetric and positive definite.
    """
    n, k = targets.shape
    out, common = np.empty((n, k), dtype=np.float32), np.ascontiguousarray(common, dtype=np.float64)
    sums, targets = np.ascontiguousarray(sums), np.ascontiguousarray(targets)

    def block(first: int, last: int) -> None:
        _gram_solutions(sums, targets, weight, common, first, last, out)

    in_row_blocks(block, np.arange(n + 1), n * k**3)
    return out


def gram_solutions_numpy(sums, targets, weight, common):
    """The twin of `gram_solutions`."""
    n, k = targets.shape
    a, b = np.triu_indices(k)
    full = np.empty((n, k, k))
    full[:, a, b] = full[:, b, a] = weight * sums.astype(np.float64)
    return np.linalg.solve(common + full, targets[:, :, None].astype(np.float64))[:, :, 0].astype(np.float32)


def least_squares(indptr: Array, columns: Array, weights: Array, values: Array, x: Array, common: Array) -> Array:
    """(common + Σ_e w_e·x·xᵀ)⁻¹ Σ_e t_e·x of every row, (n, k) float32; some rows at a time."""
    out = np.empty((len(indptr) - 1, x.shape[1]), dtype=np.float32)
    for first in range(0, len(out), AT_ONCE):
        ends = indptr[first : first + AT_ONCE + 1]
        mine = slice(ends[0], ends[-1])
        sums, targets = gram_sums(ends - ends[0], columns[mine], weights[mine], values[mine], x)
        out[first : first + AT_ONCE] = gram_solutions(sums, targets, 1.0, common)
    return out


def least_squares_numpy(indptr, columns, weights, values, x, common):
    """The twin of `least_squares`."""
    sums, targets = gram_sums_numpy(indptr, columns, weights, values, x)
    return gram_solutions_numpy(sums, targets, 1.0, common)
