"""Rounding and adding up: the kernel and its twin agree, to the last whole number."""

import numpy as np
import pytest

from tacit.kernels.rounding import round_and_add, round_and_add_numpy


def drawn(seed, pieces=50, size=30):
    stream = np.random.default_rng(seed)
    counts = stream.integers(0, 9, pieces)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    cells = np.concatenate([stream.choice(size, count, replace=False) for count in counts]).astype(np.int64)
    values = stream.normal(size=len(cells)) * 3
    values[stream.random(len(cells)) < 0.05] = stream.choice([np.nan, np.inf, -np.inf, 0.0])
    return starts, cells, values, stream.random(len(cells)), size


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("most", [0.0, 40.0, 1e300])
def test_the_kernel_is_its_twin(seed, most):
    starts, cells, values, coins, size = drawn(seed)
    totals = [np.zeros(size, dtype=np.int64) for _ in range(2)]
    marked = round_and_add(starts, cells, values, coins, 0.25, most, 60.0, totals[0])
    twin = round_and_add_numpy(starts, cells, values, coins, 0.25, most, 60.0, totals[1])
    np.testing.assert_array_equal(marked, twin)
    np.testing.assert_array_equal(*totals)
    assert most > 0 or marked.any()


def test_what_is_too_long_is_marked_and_adds_nothing():
    total = np.zeros(2, dtype=np.int64)
    starts, cells = np.array([0, 1, 2]), np.array([0, 1])
    marked = round_and_add(starts, cells, np.array([3.0, 4.0]), np.zeros(2), 1.0, 9.0, 3.0, total)
    assert marked.tolist() == [False, True]
    assert total.tolist() == [3, 0]
