"""Gaussian posteriors of many rows at once, the other side fixed: half a sweep of Bayesian alternating least squares.

A rating is r = x·y + noise, and one coordinate of x is known to be 1: that of the item's bias where x is a user, and
that of the user's where x is an item. What ratings say about x is Σ E[y·yᵀ] and Σ r·E[y], so rows of moments are
added up: no products, and what is added may come from anywhere.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tacit.kernels.jit import Array, compiled

#: Blocks of rows are computed in this many threads, and in one where there are fewer operations than these.
THREADS, SMALL = min(4, os.cpu_count() or 1), 10_000_000


def in_row_blocks(compute: Callable[[int, int], None], ends: Array, work: int) -> None:
    """`compute(first, last)` for blocks of rows that cover all, with about the same number of entries each.

    A row is computed the same way whichever block it is in, so that the number of threads changes nothing.
    """
    n = len(ends) - 1
    if work < SMALL or THREADS == 1:
        compute(0, n)
        return
    cuts = np.searchsorted(ends, np.linspace(0, ends[-1], 2 * THREADS + 1)[1:-1])
    places = np.unique([0, *cuts, n])
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(compute, places[:-1].tolist(), places[1:].tolist()))


@compiled(fastmath=True)
def _moment_sums(indptr, columns, values, moments, means, first, last, out, targets):
    width, size = moments.shape[1], means.shape[1]
    for i in range(first, last):
        mine, target = out[i], targets[i]
        for e in range(indptr[i], indptr[i + 1]):
            j, value = columns[e], values[e]
            row, mean = moments[j], means[j]
            for f in range(width):
                mine[f] += row[f]
            for f in range(size):
                target[f] += value * mean[f]


def moment_sums(indptr: Array, columns: Array, values: Array, moments: Array, means: Array) -> tuple[Array, Array]:
    """For each row i, Σ_e moments[columns[e]] and Σ_e values[e]·means[columns[e]] over its entries.

    moments (m, w) and means (m, d) are float32, or both float64, and so are the sums, (n, w) and (n, d).
    """
    n = len(indptr) - 1
    out = np.zeros((n, moments.shape[1]), dtype=moments.dtype)
    targets = np.zeros((n, means.shape[1]), dtype=means.dtype)
    moments, means = np.ascontiguousarray(moments), np.ascontiguousarray(means)
    values = np.ascontiguousarray(values, dtype=means.dtype)

    def block(first: int, last: int) -> None:
        _moment_sums(indptr, columns, values, moments, means, first, last, out, targets)

    in_row_blocks(block, indptr, indptr[-1] * moments.shape[1])
    return out, targets


def moment_sums_numpy(indptr, columns, values, moments, means):
    """The twin of `moment_sums`."""
    n = len(indptr) - 1
    out, targets = np.zeros((n, moments.shape[1])), np.zeros((n, means.shape[1]))
    for i in range(n):
        mine = slice(indptr[i], indptr[i + 1])
        out[i] = moments[columns[mine]].sum(axis=0, dtype=np.float64)
        targets[i] = values[mine].astype(np.float64) @ means[columns[mine]]
    return out.astype(moments.dtype), targets.astype(means.dtype)


@compiled(fastmath=True)
def _posteriors(sums, targets, weights, fixed, priors, precision, first, last, means, moments):
    d = targets.shape[1]
    k = d - 1
    a, inverse, x, z = np.empty((k, k)), np.empty((k, k)), np.empty(k), np.empty(d)
    for i in range(first, last):
        w = np.float64(weights[i])
        for f in range(k):
            at = f if f < fixed else f + 1
            low, high = min(at, fixed), max(at, fixed)
            x[f] = w * (targets[i, at] - sums[i, low * d - low * (low - 1) // 2 + high - low])
            for h in range(k):
                x[f] += precision[f, h] * priors[i, h]
            for h in range(f + 1):
                other = h if h < fixed else h + 1
                a[f, h] = precision[f, h] + w * sums[i, other * d - other * (other - 1) // 2 + at - other]
        # Cholesky, a = L·Lᵀ
        for f in range(k):
            for h in range(f):
                value = a[f, h]
                for g in range(h):
                    value -= a[f, g] * a[h, g]
                a[f, h] = value * a[h, h]
            value = a[f, f]
            for g in range(f):
                value -= a[f, g] * a[f, g]
            a[f, f] = 1.0 / np.sqrt(max(value, 1e-12))
        # L⁻¹, row by row: inverse[h, f] is its entry (f, h), h ≤ f, so that the sums run along rows
        for h in range(k):
            inverse[h, h] = a[h, h]
            for f in range(h + 1, k):
                value = 0.0
                for g in range(h, f):
                    value -= a[f, g] * inverse[h, g]
                inverse[h, f] = value * a[f, f]
        # z = L⁻ᵀ·L⁻¹·x, by the inverse
        z[fixed] = 1.0
        for f in range(k):
            value = 0.0
            for g in range(f + 1):
                value += inverse[g, f] * x[g]
            a[0, f] = value  # L⁻¹·x; L itself is no longer needed
        for f in range(k):
            value = 0.0
            for g in range(f, k):
                value += inverse[f, g] * a[0, g]
            z[f if f < fixed else f + 1] = value
        for f in range(d):
            means[i, f] = z[f]
        place = 0
        for f in range(d):
            row = f if f < fixed else f - 1
            for h in range(f, d):
                value = z[f] * z[h]
                if f != fixed and h != fixed:
                    column = h if h < fixed else h - 1
                    for g in range(column, k):
                        value += inverse[row, g] * inverse[column, g]
                moments[i, place] = value
                place += 1


def posteriors(
    sums: Array, targets: Array, weights: Array, fixed: int, priors: Array, precision: Array
) -> tuple[Array, Array]:
    """E[x] (n, d) and the upper triangles of E[x·xᵀ] (n, d(d+1)/2), both float32, of every row.

    x is 1 at `fixed`, and elsewhere a priori N(priors, precision⁻¹); ratings say Σ y·yᵀ (`sums`, upper triangles) and
    Σ r·y (`targets`) about it, times `weights`, 1/σ² of each row.

        precision_i = w·Σ y·yᵀ + Λ,   mean_i = precision_i⁻¹·(w·Σ (r − y_fixed)·y + Λ·prior_i)   without y_fixed
    """
    n, d = targets.shape
    means, moments = np.empty((n, d), dtype=np.float32), np.empty((n, d * (d + 1) // 2), dtype=np.float32)
    sums, targets = np.ascontiguousarray(sums), np.ascontiguousarray(targets)
    priors, precision = np.ascontiguousarray(priors, np.float64), np.ascontiguousarray(precision, np.float64)
    weights = np.asarray(weights, dtype=np.float64)

    def block(first: int, last: int) -> None:
        _posteriors(sums, targets, weights, fixed, priors, precision, first, last, means, moments)

    in_row_blocks(block, np.arange(n + 1), n * d**3)
    return means, moments


def posteriors_numpy(sums, targets, weights, fixed, priors, precision):
    """The twin of `posteriors`."""
    n, d = targets.shape
    a, b = np.triu_indices(d)
    free = np.delete(np.arange(d), fixed)
    means, moments = np.empty((n, d), dtype=np.float32), np.empty((n, len(a)), dtype=np.float32)
    for i in range(n):
        known = np.zeros((d, d))
        known[a, b] = known[b, a] = weights[i] * sums[i].astype(np.float64)
        right = weights[i] * targets[i].astype(np.float64) - known[fixed]
        spread = np.zeros((d, d))
        spread[np.ix_(free, free)] = np.linalg.inv(known[np.ix_(free, free)] + precision)
        x = np.ones(d)
        x[free] = spread[np.ix_(free, free)] @ (right[free] + precision @ priors[i])
        means[i], moments[i] = x, (np.outer(x, x) + spread)[a, b]
    return means, moments
