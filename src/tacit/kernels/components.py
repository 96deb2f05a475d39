"""Principal components of a sparse matrix, the same bits on every machine.

Blocked power iteration and a Jacobi eigensolver, in +, −, ×, ÷ and √ of 64-bit floats in a fixed order: each of them is
exact to the last bit by IEEE 754, and without `fastmath` the compiler neither reorders nor fuses them. BLAS and LAPACK
give other bits on other machines, and any basis at all where eigenvalues are equal.
"""

import numpy as np

from tacit.kernels.jit import Array, compiled
from tacit.rng import derive

#: Power iterations, and the columns beyond those asked for: what is lost between equal eigenvalues is of no account.
STEPS, MORE = 30, 10
#: An eigenvalue below this part of the largest is 0.
TINY = 1e-9


@compiled()
def _project(indptr, columns, values, means, q, out):
    """out = (M − 1·meansᵀ)·q."""
    b = q.shape[1]
    shift = np.zeros(b)
    for j in range(len(means)):
        for f in range(b):
            shift[f] += means[j] * q[j, f]
    for i in range(len(indptr) - 1):
        out[i] = -shift
        for e in range(indptr[i], indptr[i + 1]):
            j, value = columns[e], values[e]
            for f in range(b):
                out[i, f] += value * q[j, f]


@compiled()
def _back(indptr, columns, values, means, x, out):
    """out = (M − 1·meansᵀ)ᵀ·x."""
    b = x.shape[1]
    total = np.zeros(b)
    out[:] = 0
    for i in range(len(indptr) - 1):
        for f in range(b):
            total[f] += x[i, f]
        for e in range(indptr[i], indptr[i + 1]):
            j, value = columns[e], values[e]
            for f in range(b):
                out[j, f] += value * x[i, f]
    for j in range(len(means)):
        for f in range(b):
            out[j, f] -= means[j] * total[f]


@compiled()
def _orthonormal(q):
    """Gram–Schmidt, twice, in place; a column that depends on those before it becomes 0. q: rows are the vectors."""
    for f in range(len(q)):
        before = 0.0
        for j in range(q.shape[1]):
            before += q[f, j] * q[f, j]
        for _twice in range(2):
            for g in range(f):
                dot = 0.0
                for j in range(q.shape[1]):
                    dot += q[f, j] * q[g, j]
                for j in range(q.shape[1]):
                    q[f, j] -= dot * q[g, j]
        norm = 0.0
        for j in range(q.shape[1]):
            norm += q[f, j] * q[f, j]
        scale = 1 / np.sqrt(norm) if norm > 1e-20 * before else 0.0
        for j in range(q.shape[1]):
            q[f, j] *= scale


@compiled()
def _gram(x, out):
    out[:] = 0
    for i in range(len(x)):
        for f in range(x.shape[1]):
            for g in range(x.shape[1]):
                out[f, g] += x[i, f] * x[i, g]


@compiled()
def _jacobi(a, v):
    """Eigenvalues of a symmetric matrix on its own diagonal, eigenvectors in the columns of v, by cyclic rotations."""
    b = len(a)
    v[:] = 0
    for f in range(b):
        v[f, f] = 1
    for _sweep in range(30):
        off, on = 0.0, 0.0
        for f in range(b):
            on += a[f, f] * a[f, f]
            for g in range(f):
                off += a[f, g] * a[f, g]
        if off <= 1e-30 * on:
            return
        for f in range(b - 1):
            for g in range(f + 1, b):
                if a[f, g] == 0:
                    continue
                theta = (a[g, g] - a[f, f]) / (2 * a[f, g])
                t = (1.0 if theta >= 0 else -1.0) / (abs(theta) + np.sqrt(theta * theta + 1))
                c = 1 / np.sqrt(t * t + 1)
                s = t * c
                for h in range(b):
                    left, right = a[h, f], a[h, g]
                    a[h, f], a[h, g] = c * left - s * right, s * left + c * right
                for h in range(b):
                    left, right = a[f, h], a[g, h]
                    a[f, h], a[g, h] = c * left - s * right, s * left + c * right
                for h in range(b):
                    left, right = v[h, f], v[h, g]
                    v[h, f], v[h, g] = c * left - s * right, s * left + c * right


def components(indptr: Array, columns: Array, values: Array, width: int, k: int) -> Array:
    """The rows of a sparse matrix, less their mean, along its k main directions: X = (M − 1·meanᵀ)·W, (m, ≤ k) float64.

    W are the leading eigenvectors of the covariance, in order; fewer where the rest of the eigenvalues are 0. The entry
    of largest size in a column of X is positive. Bit for bit the same wherever floats are IEEE 754.
    """
    m, b = len(indptr) - 1, min(width, k + MORE)
    means = np.bincount(columns, values, minlength=width) / max(1, m)
    q = np.eye(width) if b == width else derive(0, "components").random((width, b)) - 0.5
    matrix, x = (indptr, columns, values, means), np.empty((m, b))
    for _step in range(STEPS if b < width else 0):
        _project(*matrix, q, x)
        _back(*matrix, x, q)
        turned = np.ascontiguousarray(q.T)
        _orthonormal(turned)
        q = np.ascontiguousarray(turned.T)
    _project(*matrix, q, x)
    inner, vectors, out = np.empty((b, b)), np.empty((b, b)), np.empty((m, b))
    _gram(x, inner)
    _jacobi(inner, vectors)
    eigenvalues = inner.diagonal()
    order = np.argsort(-eigenvalues, kind="stable")[:k]
    order = order[eigenvalues[order] > TINY * eigenvalues.max(initial=0.0)]
    every = np.arange(m + 1) * b
    _project(every, np.tile(np.arange(b), m), x.ravel(), np.zeros(b), vectors, out)
    out = np.ascontiguousarray(out[:, order])
    largest = np.argmax(np.abs(out), axis=0) if m else np.zeros(0, dtype=np.int64)
    return out * np.where(out[largest, np.arange(out.shape[1])] < 0, -1.0, 1.0)


def components_numpy(indptr, columns, values, width, k):
    """The twin of `components`, by LAPACK: equal up to rounding where eigenvalues are apart."""
    dense = np.zeros((len(indptr) - 1, width))
    np.add.at(dense, (np.repeat(np.arange(len(dense)), np.diff(indptr)), columns), values)
    u, s, _w = np.linalg.svd(dense - dense.mean(axis=0), full_matrices=False)
    kept = np.flatnonzero(s**2 > TINY * s.max(initial=0.0) ** 2)[:k]
    out = u[:, kept] * s[kept]
    largest = np.argmax(np.abs(out), axis=0)
    return out * np.sign(out[largest, np.arange(len(kept))])
