"""Counting positions and drawing without replacement: the kernels and their NumPy twins."""

import numpy as np
import pytest

from tacit.kernels.ranks import floyd, floyd_numpy, not_finite, not_finite_numpy, ranks, ranks_numpy
from tacit.rng import derive


def compressed(lists):
    starts = np.concatenate(([0], np.cumsum([len(one) for one in lists]))).astype(np.int64)
    return starts, np.array([j for one in lists for j in one], dtype=np.int64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_positions_equal_their_twin(dtype):
    """Many ties, empty rows, rows of which all was seen but a few."""
    stream = derive(3, "ranks")
    for case in range(20):
        u, m = int(stream.integers(1, 6)), int(stream.integers(1, 40))
        scores = stream.integers(0, 1 + 4 * (case + 1), (u, m)).astype(dtype)
        orders = [stream.permutation(m) for _ in range(u)]
        cuts = [sorted(stream.integers(0, m + 1, 2)) for _ in range(u)]
        items = compressed([order[:a] for order, (a, _b) in zip(orders, cuts, strict=True)])
        seen = compressed([order[a:b] for order, (a, b) in zip(orders, cuts, strict=True)])
        rivals = stream.integers(-1, m, (u, 5))
        np.testing.assert_array_equal(ranks(scores, *items, *seen, rivals), ranks_numpy(scores, *items, *seen, rivals))


def test_a_known_answer():
    scores = np.array([[5.0, 3.0, 3.0, 1.0, 9.0]])
    found = ranks(scores, *compressed([[1, 3]]), *compressed([[4]]), np.array([[0, 2, -1]]))
    assert found.tolist() == [[1, 3], [2, 1], [1, 2], [1, 0]]


def test_draws_equal_their_twin_and_are_distinct():
    stream = derive(4, "floyd")
    numbers = stream.random((50, 12))
    unknown = stream.integers(0, 30, 50)
    wanted = np.minimum(unknown, 12)
    drawn = floyd(numbers, unknown, wanted)
    np.testing.assert_array_equal(drawn, floyd_numpy(numbers, unknown, wanted))
    for row, size, below in zip(drawn, wanted, unknown, strict=True):
        assert len(set(row[:size])) == size
        assert np.all((row[:size] >= 0) & (row[:size] < below))
        assert np.all(row[size:] == -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_not_finite_is_counted_like_its_twin(dtype):
    values = np.zeros((3, 4), dtype=dtype)
    values[0, 1], values[1, 2], values[2, 3] = np.nan, np.inf, -np.inf
    assert not_finite(values) == not_finite_numpy(values) == 3
    assert not_finite(np.full((2, 2), np.finfo(dtype).max, dtype=dtype)) == 0
