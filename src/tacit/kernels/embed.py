"""Embedding clipping Π (P0, eq. 6): negative entries become 0, then rows are scaled to norm ≤ √R.

The two moves together are the projection onto {x ≥ 0, ‖x‖² ≤ R}: clipping at 0 projects onto the cone, and scaling a
point of a cone towards the origin stays in the cone and is the projection onto the ball.
"""

import math

import numpy as np

from tacit.kernels.jit import Array, compiled


@compiled(fastmath=True)
def _descend_and_embed(x, gradient, rate, span, keep):
    n, p = x.shape
    for i in range(n):
        squares = np.float32(0)
        for f in range(p):
            value = max(np.float32(0), keep * x[i, f] - rate * gradient[i, f])
            x[i, f] = value
            squares += value * value
        if squares > span:
            shrink = np.sqrt(span / squares)
            for f in range(p):
                x[i, f] *= shrink


def descend_and_embed(x: Array, gradient: Array, rate: float, span: float, decay: float = 0.0) -> Array:
    """x ← Π((1 − decay)·x − rate·gradient), in place and returned. x, gradient: (n, p) float32; span = R.

    Squares are summed in float32: entries of (1 − decay)·x − rate·gradient must be finite and below 1e18.
    """
    _descend_and_embed(x, gradient, np.float32(rate), np.float32(span), np.float32(1 - decay))
    return x


def descend_and_embed_numpy(x, gradient, rate, span, decay=0.0):
    """The twin of `descend_and_embed`; leaves x as it is."""
    return embed_numpy(np.float32(1 - decay) * x - np.float32(rate) * gradient, span)


# No flag here lets the compiler assume that numbers are finite: a peer sent them.
@compiled(fastmath={"reassoc", "contract", "nsz"})
def _embed(x, rows, root, out):
    zero, infinite = x.dtype.type(0), x.dtype.type(np.inf)
    for k in range(len(rows)):
        there, here, squares = x[rows[k]], out[k], 0.0
        for f in range(len(there)):
            here[f] = there[f] if (there[f] > zero) & (there[f] < infinite) else zero
        for f in range(len(here)):
            squares += np.float64(here[f]) * np.float64(here[f])
        longer = np.sqrt(squares) / root
        if longer > 1:
            for f in range(len(here)):
                here[f] = np.float64(here[f]) / longer


def embed(x: Array, span: float) -> Array:
    """Π(x), a new array; x: (n, p). What is not finite becomes 0, so that a peer cannot poison a norm."""
    out = np.empty(x.shape, dtype=x.dtype)
    _embed(np.ascontiguousarray(x), np.arange(len(x)), math.sqrt(span), out)
    return out


def embed_rows(x: Array, rows: Array, span: float) -> Array:
    """Π(x[rows]) in float64, a new array; x: (n, p) float32 or float64, rows: (k,) integers in [0, n)."""
    out = np.empty((len(rows), x.shape[1]), dtype=np.float64)
    _embed(x, rows, math.sqrt(span), out)
    return out


def embed_numpy(x, span):
    """The twin of `embed`."""
    clipped = np.maximum(np.nan_to_num(x, nan=0.0, posinf=0.0, neginf=0.0), 0)
    norms = np.sqrt(np.einsum("if,if->i", clipped, clipped, dtype=np.float64))
    return (clipped / np.maximum(1.0, norms / np.sqrt(span))[:, None]).astype(x.dtype)


def embed_rows_numpy(x, rows, span):
    """The twin of `embed_rows`."""
    return embed_numpy(x[rows].astype(np.float64), span)
