"""Pairs of items that users have in common, as the upper triangle of an item × item matrix, row by row.

Cell (i, j), i ≤ j, of K × K is number i·(2K − i − 1)/2 + j, as in `numpy.triu_indices`. Work is in pairs that occur, so
K may be thousands.
"""

import numpy as np

from tacit.kernels.jit import Array, compiled


@compiled()
def _add_pairs(indptr, places, diagonal, beside, size, total):
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            i = places[e]
            row = i * (2 * size - i - 1) // 2
            total[row + i] += diagonal[u]
            for g in range(e + 1, indptr[u + 1]):
                total[row + places[g]] += beside[u]


def add_pairs(indptr: Array, places: Array, diagonal: Array, beside: Array, size: int) -> Array:
    """Σ_u w_u·x_u·x_uᵀ over rows of 0/1 indicators x_u; upper triangle, (size·(size+1)/2,) float64.

    Parameters
    ----------
    indptr, places : compressed rows; places (nnz,) int64 below `size`, increasing in each row
    diagonal, beside : (n,) float64, w_u on the diagonal and beside it
    """
    total = np.zeros(size * (size + 1) // 2)
    _add_pairs(indptr, places, diagonal, beside, size, total)
    return total


def add_pairs_numpy(indptr, places, diagonal, beside, size):
    """The twin of `add_pairs`."""
    x = np.zeros((len(indptr) - 1, size))
    x[np.repeat(np.arange(len(x)), np.diff(indptr)), places] = 1
    total = (x * beside[:, None]).T @ x
    total[np.diag_indices(size)] = diagonal @ x
    return total[np.triu_indices(size)]


@compiled()
def _list_pairs(indptr, places, diagonal, beside, size, cells, values):
    at = 0
    for u in range(len(indptr) - 1):
        for e in range(indptr[u], indptr[u + 1]):
            i = places[e]
            row = i * (2 * size - i - 1) // 2
            for g in range(e, indptr[u + 1]):
                cells[at] = row + places[g]
                values[at] = diagonal[u] if g == e else beside[u]
                at += 1


def list_pairs(indptr: Array, places: Array, diagonal: Array, beside: Array, size: int) -> tuple[Array, Array, Array]:
    """The same without the sum: (n+1,) where each row's pairs start, their cells (int64) and values (float64)."""
    counts = np.diff(indptr).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(counts * (counts + 1) // 2)])
    cells, values = np.empty(starts[-1], dtype=np.int64), np.empty(starts[-1])
    _list_pairs(indptr, places, diagonal, beside, size, cells, values)
    return starts, cells, values


def list_pairs_numpy(indptr, places, diagonal, beside, size):
    """The twin of `list_pairs`."""
    cells, values = [np.empty(0, dtype=np.int64)], [np.empty(0)]
    for u in range(len(indptr) - 1):
        mine = places[indptr[u] : indptr[u + 1]].astype(np.int64)
        a, b = np.triu_indices(len(mine))
        cells.append(mine[a] * (2 * size - mine[a] - 1) // 2 + mine[b])
        values.append(np.where(a == b, diagonal[u], beside[u]))
    starts = np.cumsum([0, *(len(part) for part in cells[1:])])
    return starts, np.concatenate(cells), np.concatenate(values)


@compiled()
def _unpack_pairs(triangle, size, out):
    at = 0
    for i in range(size):
        for j in range(i, size):
            out[i, j] = triangle[at]
            out[j, i] = triangle[at]
            at += 1


def unpack_pairs(triangle: Array, size: int) -> Array:
    """The symmetric matrix of an upper triangle, (size, size), of the triangle's type."""
    out = np.empty((size, size), dtype=triangle.dtype)
    _unpack_pairs(triangle, size, out)
    return out


def unpack_pairs_numpy(triangle, size):
    """The twin of `unpack_pairs`."""
    out, (a, b) = np.empty((size, size), dtype=triangle.dtype), np.triu_indices(size)
    out[a, b] = out[b, a] = triangle
    return out


@compiled()
def _pack_pairs(matrix, out):
    at = 0
    for i in range(len(matrix)):
        for j in range(i, len(matrix)):
            out[at] = matrix[i, j]
            at += 1


def pack_pairs(matrix: Array) -> Array:
    """The upper triangle of a square matrix, row by row, float32."""
    out = np.empty(len(matrix) * (len(matrix) + 1) // 2, dtype=np.float32)
    _pack_pairs(matrix, out)
    return out


def pack_pairs_numpy(matrix):
    """The twin of `pack_pairs`."""
    return matrix[np.triu_indices(len(matrix))].astype(np.float32)
