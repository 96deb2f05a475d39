"""Plain stochastic gradient descent, one rating at a time, with embedding clipping and weight decay.

For each rating in turn, with e = r_ij − u_i·v_j,

    u_i ← Π(u_i + rate (e v_j − regularization u_i))        v_j ← Π(v_j + rate (e u_i − regularization v_j))
"""

import numpy as np

from tacit.kernels.embed import embed_numpy
from tacit.kernels.jit import Array, compiled


@compiled(fastmath=True)
def _sgd_epoch(users, items, values, shift, order, u, v, rate, regularization, span):
    p = u.shape[1]
    for k in range(len(order)):
        e = order[k]
        i, j = users[e], items[e]
        predicted = np.float32(0)
        for f in range(p):
            predicted += u[i, f] * v[j, f]
        error = values[e] - shift - predicted
        of_u, of_v = np.float32(0), np.float32(0)
        for f in range(p):
            a, b = u[i, f], v[j, f]
            x = max(np.float32(0), a + rate * (error * b - regularization * a))
            y = max(np.float32(0), b + rate * (error * a - regularization * b))
            u[i, f] = x
            v[j, f] = y
            of_u += x * x
            of_v += y * y
        if of_u > span:
            shrink = np.sqrt(span / of_u)
            for f in range(p):
                u[i, f] *= shrink
        if of_v > span:
            shrink = np.sqrt(span / of_v)
            for f in range(p):
                v[j, f] *= shrink


def sgd_epoch(
    users: Array,
    items: Array,
    values: Array,
    shift: float,
    order: Array,
    u: Array,
    v: Array,
    rate: float,
    regularization: float,
    span: float,
) -> None:
    """One pass over the ratings in `order` (nnz,), in place; u: (n, p), v: (m, p) float32; users, items: int32."""
    sizes = (np.float32(x) for x in (rate, regularization, span))
    _sgd_epoch(users, items, values, np.float32(shift), order, u, v, *sizes)


def sgd_epoch_numpy(users, items, values, shift, order, u, v, rate, regularization, span):
    """The twin of `sgd_epoch`."""
    for e in order:
        i, j = users[e], items[e]
        error = values[e] - np.float32(shift) - u[i] @ v[j]
        a, b = u[i].copy(), v[j].copy()
        u[i] = embed_numpy((a + rate * (error * b - regularization * a))[None], span)[0]
        v[j] = embed_numpy((b + rate * (error * a - regularization * b))[None], span)[0]
