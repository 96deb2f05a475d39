"""Cells of item gradients of implicit feedback equal their twin, wherever they are drawn."""

import numpy as np
import pytest

from tacit.kernels import posteriors
from tacit.kernels.confidence import cell_gradients, cell_gradients_numpy
from tacit.rng import derive


def case(seed, n=9, m=12, p=3, each=20, size=1.0):
    """Empty rows, full rows, counts, zeros and negative numbers; some users are not asked."""
    stream = derive(seed, "cells")
    taken = stream.random((n, m)) < stream.choice([0.0, 0.3, 1.0], size=(n, 1))
    indptr, items = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]), np.nonzero(taken)[1].astype(np.int32)
    values = stream.choice([-1.0, 0.0, 1.0, 7.0], size=len(items)).astype(np.float32)
    x, V = ((size * stream.standard_normal((k, p))).astype(np.float32) for k in (n, m))
    rows = np.flatnonzero(stream.random(n) < 0.8)
    return indptr, items, values, x, V, 2.5, rows, stream.integers(0, m * p, len(rows) * each, dtype=np.int32)


@pytest.mark.parametrize("size", [0.0, 1e-6, 1.0, 1e9])
@pytest.mark.parametrize("p", [1, 3, 8])
@pytest.mark.parametrize("seed", range(4))
def test_cells_equal_their_twin(seed, p, size):
    given = case(seed, p=p, size=size)
    expected = cell_gradients_numpy(*given)
    np.testing.assert_allclose(cell_gradients(*given), expected, rtol=1e-9, atol=1e-9 * max(1, size) ** 3)


def test_neither_threads_nor_nobody_change_anything(monkeypatch):
    given = case(3)
    whole = cell_gradients(*given)
    monkeypatch.setattr(posteriors, "SMALL", 0)
    monkeypatch.setattr(posteriors, "THREADS", 3)
    np.testing.assert_array_equal(cell_gradients(*given), whole)
    *same, _rows, _cells = given
    assert cell_gradients(*same, np.array([], dtype=np.int64), np.array([], dtype=np.int32)).shape == (0,)
