"""Single cells of item gradients of implicit feedback, at cells that each user draws."""

import numpy as np

from tacit.kernels.jit import Array, compiled
from tacit.kernels.posteriors import in_row_blocks


@compiled()
def _cell_gradients(indptr, items, taken, x, factors, confidence, rows, cells, first, last, out):
    p = x.shape[1]
    each = len(cells) // len(rows)
    for a in range(first, last):
        i = rows[a]
        for c in range(a * each, (a + 1) * each):
            j, f = cells[c] // p, cells[c] % p
            predicted = 0.0
            for h in range(p):
                predicted += np.float64(x[i, h]) * np.float64(factors[j, h])
            low, high = indptr[i], indptr[i + 1]
            while low < high:  # a user's items increase
                middle = (low + high) // 2
                if items[middle] < j:
                    low = middle + 1
                else:
                    high = middle
            r = 0.0
            if low < indptr[i + 1] and items[low] == j:
                r = max(0.0, np.float64(taken[low]))
            target = 1.0 if r > 0 else 0.0
            out[c] = (1.0 + confidence * r) * (target - predicted) * x[i, f]


def cell_gradients(
    indptr: Array, items: Array, taken: Array, x: Array, factors: Array, confidence: float, rows: Array, cells: Array
) -> Array:
    """(1 + α·r_ij)·(p_ij − x_i·v_j)·x_if of each user i of `rows` at their own cells j·p + f; float64, as `cells`.

    `cells` are as many of every user, one user's after the other's. p_ij is 1 where r_ij > 0; `taken` (nnz,) holds r.
    """
    out = np.empty(len(cells))
    if len(rows) == 0:
        return out
    x, factors = np.ascontiguousarray(x, dtype=np.float32), np.ascontiguousarray(factors, dtype=np.float32)

    def block(first: int, last: int) -> None:
        _cell_gradients(indptr, items, taken, x, factors, float(confidence), rows, cells, first, last, out)

    in_row_blocks(block, len(cells) // len(rows) * np.arange(len(rows) + 1), len(cells) * (x.shape[1] + 20))
    return out


def cell_gradients_numpy(indptr, items, taken, x, factors, confidence, rows, cells):
    """The twin of `cell_gradients`: the whole gradient of one user after the other."""
    out = []
    for i, drawn in zip(rows, cells.reshape(len(rows), -1) if len(rows) else [], strict=True):
        mine = slice(indptr[i], indptr[i + 1])
        r = np.zeros(len(factors))
        r[items[mine]] = np.maximum(taken[mine], 0)
        u, V = x[i].astype(np.float64), factors.astype(np.float64)
        gradient = ((1 + confidence * r) * ((r > 0) - V @ u))[:, None] * u
        out.append(gradient.ravel()[drawn])
    return np.concatenate(out) if out else np.empty(len(cells))
