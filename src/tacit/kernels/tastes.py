"""Posteriors of many users' tastes at once, the item factors fixed: z ~ N(0, I), targets = v·z + N(0, s²)."""

import numpy as np

from tacit.kernels.jit import Array, compiled

#: Nothing raises, whatever numbers a coordinator sent: whether something does could tell of a user's ratings.
OPTIONS = {"fastmath": True, "error_model": "numpy"}


@compiled(**OPTIONS)
def _posteriors(indptr, items, targets, factors, noise, directions, means, spreads):
    k, q = directions.shape
    a, x, column = np.empty((k, k)), np.empty(k), np.empty(k)
    for i in range(len(indptr) - 1):
        a[:] = 0
        x[:] = 0
        end = indptr[i + 1]
        for e in range(indptr[i], end - 1, 2):  # two entries at a time: half as many passes over a
            v, w, s, t = factors[items[e]], factors[items[e + 1]], targets[e], targets[e + 1]
            for f in range(k):
                x[f] += s * v[f] + t * w[f]
                for h in range(f + 1):
                    a[f, h] += v[f] * v[h] + w[f] * w[h]
        if (end - indptr[i]) % 2:
            v, t = factors[items[end - 1]], targets[end - 1]
            for f in range(k):
                x[f] += t * v[f]
                for h in range(f + 1):
                    a[f, h] += v[f] * v[h]
        for f in range(k):
            a[f, f] += noise
        for f in range(k):  # a = L·Lᵀ, in place
            for h in range(f + 1):
                value = a[f, h]
                for g in range(h):
                    value -= a[f, g] * a[h, g]
                a[f, h] = np.sqrt(max(value, noise * 1e-9)) if h == f else value / a[h, h]
        for c in range(q + 1):
            for f in range(k):
                column[f] = x[f] if c == q else noise * directions[f, c]
            for f in range(k):
                for g in range(f):
                    column[f] -= a[f, g] * column[g]
                column[f] /= a[f, f]
            for f in range(k - 1, -1, -1):
                for g in range(f + 1, k):
                    column[f] -= a[g, f] * column[g]
                column[f] /= a[f, f]
            for f in range(k):
                if c == q:
                    means[i, f] = column[f]
                else:
                    spreads[i, f, c] = column[f]


def posteriors(
    indptr: Array, items: Array, targets: Array, factors: Array, noise: float, directions: Array | None = None
) -> tuple[Array, Array]:
    """Every user's posterior mean, (n, k), and posterior covariance times `directions` (k, q), (n, k, q); float64.

    With A = s²·I + Σ_j v_j·v_jᵀ over the user's own entries the mean is A⁻¹ Σ_j t_j·v_j and the covariance s²·A⁻¹.
    `noise` is s² > 0; a user without entries has mean 0 and covariance I.
    """
    n, k = len(indptr) - 1, factors.shape[1]
    directions = np.empty((k, 0)) if directions is None else np.asarray(directions, dtype=np.float64)
    means, spreads = np.empty((n, k)), np.empty((n, k, directions.shape[1]))
    targets, factors = (np.ascontiguousarray(x, dtype=np.float64) for x in (targets, factors))
    _posteriors(indptr, items, targets, factors, float(noise), directions, means, spreads)
    return means, spreads


def posteriors_numpy(indptr, items, targets, factors, noise, directions=None):
    """The twin of `posteriors`."""
    n, k = len(indptr) - 1, factors.shape[1]
    directions = np.empty((k, 0)) if directions is None else directions
    means, spreads = np.zeros((n, k)), np.zeros((n, k, directions.shape[1]))
    for i in range(n):
        mine = slice(indptr[i], indptr[i + 1])
        v = factors[items[mine]].astype(np.float64)
        a = v.T @ v + noise * np.eye(k)
        means[i], spreads[i] = np.linalg.solve(a, v.T @ targets[mine]), noise * np.linalg.solve(a, directions)
    return means, spreads


@compiled(**OPTIONS)
def _slopes(indptr, items, residuals, factors, means, spreads, out):
    k, q = spreads.shape[1:]
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            v = factors[items[e]]
            for c in range(q):
                value = residuals[e] * means[i, c]
                for f in range(k):
                    value -= v[f] * spreads[i, f, c]
                out[e, c] = value


def slopes(indptr: Array, items: Array, residuals: Array, factors: Array, means: Array, spreads: Array) -> Array:
    """For each entry e of user i, residual_e·means_i − v_e·spreads_i: (nnz, q) float64.

    With means and covariances along q directions this is the posterior mean of (t − v·z)·z there, the slope of the
    expected log likelihood in v_e; means is (n, q), spreads (n, k, q).
    """
    out = np.empty((len(items), spreads.shape[2]))
    residuals, factors, means = (np.ascontiguousarray(x, dtype=np.float64) for x in (residuals, factors, means))
    _slopes(indptr, items, residuals, factors, means, spreads, out)
    return out


def slopes_numpy(indptr, items, residuals, factors, means, spreads):
    """The twin of `slopes`."""
    users = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    along = np.einsum("ek,ekq->eq", factors[items].astype(np.float64), spreads[users])
    return residuals[:, None] * means[users] - along


@compiled(**OPTIONS)
def _explained(indptr, items, factors, states, out):
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            value = 0.0
            for f in range(factors.shape[1]):
                value += factors[items[e], f] * states[i, f]
            out[e] = value


def explained(indptr: Array, items: Array, factors: Array, states: Array) -> Array:
    """v_e·z_i for each entry e of user i, (nnz,) float64."""
    out = np.empty(len(items))
    factors, states = (np.ascontiguousarray(x, dtype=np.float64) for x in (factors, states))
    _explained(indptr, items, factors, states, out)
    return out


def explained_numpy(indptr, items, factors, states):
    """The twin of `explained`."""
    return np.einsum("ek,ek->e", factors[items], states[users_of(indptr)])


def users_of(indptr: Array) -> Array:
    """The user of each entry, (nnz,) int64."""
    return np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
