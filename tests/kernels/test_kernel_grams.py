"""Kernels of least squares equal their twins, in one thread or several."""

import numpy as np
import pytest

from tacit.kernels import grams, posteriors
from tacit.kernels.grams import (
    gram_solutions,
    gram_solutions_numpy,
    gram_sums,
    gram_sums_numpy,
    least_squares,
    least_squares_numpy,
)
from tacit.rng import derive


def entries(rows=40, columns=300, k=5):
    """Rows without entries, with all of them, and between."""
    stream = derive(7, "grams")
    taken = stream.random((rows, columns)) < stream.choice([0.0, 0.1, 1.0], size=(rows, 1))
    indptr, items = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]), np.nonzero(taken)[1].astype(np.int32)
    x = stream.standard_normal((columns, k)).astype(np.float32)
    weights, values = stream.random(len(items)), stream.standard_normal(len(items))
    return indptr, items, weights, values, x


@pytest.mark.parametrize("k", [1, 5, 33])
def test_sums_and_solutions_equal_their_twins(k):
    given, common = entries(k=k), np.eye(k) + 0.5
    for mine, twin in zip(gram_sums(*given), gram_sums_numpy(*given), strict=True):
        np.testing.assert_allclose(mine, twin, rtol=1e-4, atol=1e-4)
    sums = gram_sums_numpy(*given)
    np.testing.assert_allclose(gram_solutions(*sums, 0.7, common), gram_solutions_numpy(*sums, 0.7, common), atol=1e-5)
    np.testing.assert_allclose(least_squares(*given, common), least_squares_numpy(*given, common), atol=1e-4)


def test_neither_threads_nor_parts_change_anything(monkeypatch):
    given, common = entries(), np.eye(5)
    whole = least_squares(*given, common)
    monkeypatch.setattr(posteriors, "SMALL", 0)
    monkeypatch.setattr(posteriors, "THREADS", 3)
    np.testing.assert_array_equal(least_squares(*given, common), whole)
    monkeypatch.setattr(grams, "AT_ONCE", 7)
    np.testing.assert_array_equal(least_squares(*given, common), whole)
