"""Rounding and adding up: the kernel and its twin agree, to the last whole number."""

import numpy as np
import pytest

from tacit.kernels.rounding import (
    add_rows,
    add_rows_numpy,
    round_and_add,
    round_and_add_numpy,
    round_rows,
    round_rows_numpy,
)


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
    before = np.random.default_rng(seed).choice([0.0, 5.0, np.inf], (len(starts) - 1, 2), p=[0.5, 0.4, 0.1])
    marked = round_and_add(starts, cells, values, coins, 0.25, most, 60.0, before, totals[0])
    twin = round_and_add_numpy(starts, cells, values, coins, 0.25, most, 60.0, before, totals[1])
    np.testing.assert_array_equal(marked, twin)
    np.testing.assert_array_equal(*totals)
    assert most > 0 or marked.any()


def test_what_is_too_long_is_marked_and_adds_nothing():
    total = np.zeros(2, dtype=np.int64)
    starts, cells = np.array([0, 1, 2]), np.array([0, 1])
    marked = round_and_add(starts, cells, np.array([3.0, 4.0]), np.zeros(2), 1.0, 9.0, 3.0, np.zeros((2, 2)), total)
    assert marked.tolist() == [False, True]
    assert total.tolist() == [3, 0]


def rows_drawn(seed, count=40, width=5, height=12):
    stream = np.random.default_rng(seed)
    counts = stream.integers(0, 6, count)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    places = np.concatenate([stream.choice(height, n, replace=stream.random() < 0.2) for n in counts]).astype(np.int64)
    rows = stream.normal(size=(count, width)) * 3
    rows[stream.random(rows.shape) < 0.03] = stream.choice([np.nan, np.inf, -np.inf, 0.0, 1e300])
    return starts, places, rows, stream.random(rows.size), height


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("most", [0.0, 400.0, 1e17])
def test_rows_are_rounded_and_added_as_by_their_twins(seed, most):
    starts, places, rows, coins, height = rows_drawn(seed)
    whole, lengths = round_rows(starts, places, rows, coins, 0.25, most, 1e9, height)
    twin, same = round_rows_numpy(starts, places, rows, coins, 0.25, most, 1e9, height)
    np.testing.assert_array_equal(whole, twin)
    np.testing.assert_allclose(lengths, same)
    totals = [np.ones(height * rows.shape[1] + 3, dtype=np.int64) for _ in range(2)]
    add_rows(starts, places, whole, totals[0], height)
    add_rows_numpy(starts, places, whole, totals[1], height)
    np.testing.assert_array_equal(*totals)
    assert most > 0 or not whole.any()


def test_a_row_counts_once_for_each_of_its_places():
    starts, places = np.array([0, 3, 4, 6, 6]), np.array([0, 1, 2, 0, 1, 1])
    whole, lengths = round_rows(starts, places, np.full((4, 1), 2.0), np.zeros(4), 1.0, 8.0, 8.0, 3)
    assert lengths.tolist() == [[12, 6], [4, 2], [np.inf, np.inf], [0, 0]]  # the third is twice at a place
    assert whole.ravel().tolist() == [0, 2, 0, 0]
