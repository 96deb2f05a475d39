"""Ridge regression for many users at once, the item factors fixed: how linear models fold in a new user."""

import numpy as np

from tacit.kernels.jit import Array, compiled

#: A pivot that is smaller than this part of the largest is 0: nothing is known in that direction.
TINY = 1e-12


@compiled(fastmath=True)
def _ridge(indptr, items, targets, weights, factors, precision, out):
    p = factors.shape[1]
    a, x = np.empty((p, p), dtype=np.float64), np.empty(p, dtype=np.float64)
    for i in range(len(indptr) - 1):
        a[:] = precision
        x[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            j = items[e]
            for f in range(p):
                factor = np.float64(factors[j, f])
                x[f] += targets[e] * factor
                for h in range(f + 1):
                    a[f, h] += weights[e] * factor * factors[j, h]
        largest = 0.0
        for f in range(p):
            largest = max(largest, a[f, f])
        for f in range(p):
            for h in range(f + 1):
                value = a[f, h]
                for g in range(h):
                    value -= a[f, g] * a[h, g]
                if h < f:
                    a[f, h] = value / a[h, h] if a[h, h] > 0 else 0.0
                else:
                    a[f, f] = np.sqrt(value) if value > TINY * largest else 0.0
        for f in range(p):
            for g in range(f):
                x[f] -= a[f, g] * x[g]
            x[f] = x[f] / a[f, f] if a[f, f] > 0 else 0.0
        for f in range(p - 1, -1, -1):
            for g in range(f + 1, p):
                x[f] -= a[g, f] * x[g]
            x[f] = x[f] / a[f, f] if a[f, f] > 0 else 0.0
        out[i] = x


def ridge(indptr: Array, items: Array, targets: Array, weights: Array, factors: Array, precision: Array) -> Array:
    """For each user x = (Λ + Σ_j w_j·v_j·v_jᵀ)⁻¹ Σ_j t_j·v_j over the user's own entries; (n, p) float64.

    Λ is `precision`, (p, p); t and w are `targets` and `weights`, one an entry. By Cholesky; a direction in which
    neither Λ nor an entry has weight stays 0.
    """
    out = np.empty((len(indptr) - 1, factors.shape[1]), dtype=np.float64)
    targets, weights, precision = (np.asarray(array, dtype=np.float64) for array in (targets, weights, precision))
    _ridge(indptr, items, targets, weights, factors, precision, out)
    return out


def ridge_numpy(indptr, items, targets, weights, factors, precision):
    """The twin of `ridge`."""
    out = np.zeros((len(indptr) - 1, factors.shape[1]), dtype=np.float64)
    for i in range(len(out)):
        mine = slice(indptr[i], indptr[i + 1])
        v = factors[items[mine]].astype(np.float64)
        a, b = precision + (v * weights[mine, None]).T @ v, v.T @ targets[mine]
        known, root = np.zeros(len(b), dtype=bool), np.zeros_like(a)
        for f in range(len(b)):
            column = a[f:, f] - root[f:, :f] @ root[f, :f]
            known[f] = column[0] > TINY * a.diagonal().max()
            root[f:, f] = column / np.sqrt(column[0]) if known[f] else 0
        out[i, known] = np.linalg.solve(a[np.ix_(known, known)], b[known])
    return out
