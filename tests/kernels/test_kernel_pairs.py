"""Pairs of items: every kernel equals its twin, on empty rows, one item, and all items."""

import numpy as np
import pytest

from tacit.kernels import pairs as kernels
from tacit.rng import derive


def rows(seed, n=9, size=7):
    stream = derive(seed, "pairs")
    x = stream.random((n, size)) < stream.choice([0.0, 0.3, 1.0], size=(n, 1))
    indptr = np.concatenate([[0], np.cumsum(x.sum(axis=1))]).astype(np.int64)
    return indptr, np.nonzero(x)[1].astype(np.int64), *stream.random((2, n)), size


@pytest.mark.parametrize("given", [rows(1), rows(2), rows(3, n=0), rows(4, n=3, size=1), rows(5, n=2, size=0)])
def test_sums_and_lists_of_pairs_equal_their_twins(given):
    np.testing.assert_allclose(kernels.add_pairs(*given), kernels.add_pairs_numpy(*given))
    for mine, twin in zip(kernels.list_pairs(*given), kernels.list_pairs_numpy(*given), strict=True):
        np.testing.assert_array_equal(mine, twin)


def test_the_list_adds_up_to_the_sum():
    given = rows(6)
    _starts, cells, values = kernels.list_pairs(*given)
    np.testing.assert_allclose(np.bincount(cells, values, minlength=28), kernels.add_pairs(*given))


@pytest.mark.parametrize("size", [0, 1, 6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_triangles_unpack_and_pack_as_their_twins_do(size, dtype):
    triangle = derive(7, "triangle").random(size * (size + 1) // 2).astype(dtype)
    matrix = kernels.unpack_pairs(triangle, size)
    np.testing.assert_array_equal(matrix, kernels.unpack_pairs_numpy(triangle, size))
    np.testing.assert_array_equal(matrix, matrix.T)
    np.testing.assert_array_equal(kernels.pack_pairs(matrix), kernels.pack_pairs_numpy(matrix))
    np.testing.assert_array_equal(kernels.pack_pairs(matrix), triangle.astype(np.float32))
