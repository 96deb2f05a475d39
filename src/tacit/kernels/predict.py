"""Predictions of a factor model for pairs: u_i·v_j."""

import numpy as np

from tacit.kernels.jit import Array, compiled


@compiled(fastmath=True)
def _predict_pairs(u, v, users, items, out):
    for e in range(len(users)):
        total = np.float32(0)
        for f in range(u.shape[1]):
            total += u[users[e], f] * v[items[e], f]
        out[e] = total


def predict_pairs(u: Array, v: Array, users: Array, items: Array) -> Array:
    """u_i·v_j for each pair; u: (n, p), v: (m, p) float32; users, items: (k,) integers. Returns (k,) float32."""
    out = np.empty(len(users), dtype=np.float32)
    _predict_pairs(u, v, users, items, out)
    return out


def predict_pairs_numpy(u, v, users, items):
    """The twin of `predict_pairs`."""
    return np.einsum("ef,ef->e", u[users], v[items])
