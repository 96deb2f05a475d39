"""Which entries are looked at: kernels equal their twins, number by number."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.kernels.entries import (
    entries_of,
    entries_of_numpy,
    first_fault,
    first_fault_numpy,
    looked_up,
    looked_up_numpy,
    rows_of,
    rows_of_numpy,
    shifted,
    shifted_numpy,
    trimmed,
    trimmed_numpy,
)
from tacit.rng import derive

SEEDS = st.integers(0, 2**32)


def entries_case(seed, longest=300, catalogue=2000):
    """Rows of all lengths, some of them looked at, as trimming meets them; ranks are equal where items are."""
    stream = derive(seed, "entries")
    indptr = np.concatenate(([0], np.cumsum(stream.integers(0, stream.integers(1, longest + 1), size=6))))
    items = stream.integers(0, catalogue, size=indptr[-1]).astype(np.int32)
    looked_at = np.flatnonzero(stream.random(6) < 0.7)
    keys = stream.integers(0, 2**64, size=len(looked_at), dtype=np.uint64)
    return indptr, items, looked_at, keys


def check_entries(kernels, seed, limit, catalogue):
    entries_of_, trimmed_, looked_up_, first_fault_ = kernels
    indptr, items, looked_at, keys = entries_case(seed, catalogue=catalogue)
    pointers, entries = entries_of_(indptr, looked_at)
    after, left = trimmed_(pointers, entries, items, keys, limit)
    places = looked_up_(items, left, catalogue)
    wanted = entries_of_numpy(indptr, looked_at)
    found = (pointers, entries, after, left, *places, first_fault_(indptr, items, catalogue - 1))
    trims, lookups = trimmed_numpy(*wanted, items, keys, limit), looked_up_numpy(items, left, catalogue)
    for actual, expected in zip(
        found, (*wanted, *trims, *lookups, first_fault_numpy(indptr, items, catalogue - 1)), strict=True
    ):
        np.testing.assert_array_equal(actual, expected)


KERNELS = (entries_of, trimmed, looked_up, first_fault)


@given(SEEDS, st.integers(1, 40), st.sampled_from([3, 2000]))
@settings(deadline=None, max_examples=150)
def test_entries_are_those_of_the_twins(seed, limit, catalogue):
    check_entries(KERNELS, seed, limit, catalogue)


@pytest.mark.parametrize(
    "planted",
    [
        (lambda indptr, rows: entries_of(indptr, np.minimum(rows + 1, len(indptr) - 2)), *KERNELS[1:]),
        (entries_of, lambda *case: trimmed(*case[:-1], case[-1] + 1), *KERNELS[2:]),  # one more than the limit
        (entries_of, lambda p, e, i, keys, n: trimmed(p, e, i, keys[::-1].copy(), n), *KERNELS[2:]),
        (entries_of, trimmed, lambda *case: tuple(part[::-1] for part in looked_up(*case)), first_fault),
        (*KERNELS[:3], lambda *case: -1),
    ],
)
def test_entries_of_somebody_else_are_found(planted):
    def broken():
        for seed in range(20):
            check_entries(planted, seed, 4, 3)

    with pytest.raises(AssertionError):
        broken()


@given(SEEDS, st.integers(1, 40), st.sampled_from([0.0, 0.02, 0.3, 0.9, 1.0]))
@settings(deadline=None, max_examples=150)
def test_rows_of_some_entries_are_found_and_trimmed_as_the_twins_do(seed, limit, share):
    indptr, items, _, _ = entries_case(seed)
    entries = np.flatnonzero(derive(seed, "some").random(len(items)) < share)
    for found, wanted in zip(rows_of(indptr, entries), rows_of_numpy(indptr, entries), strict=True):
        np.testing.assert_array_equal(found, wanted)
    rows, pointers = rows_of(indptr, entries)
    keys = derive(seed, "keys").integers(0, 2**64, size=len(rows), dtype=np.uint64)
    case = (pointers, entries, items, keys, limit)
    for found, wanted in zip(trimmed(*case), trimmed_numpy(*case), strict=True):
        np.testing.assert_array_equal(found, wanted)


@given(st.lists(st.sampled_from([-3.0, 0.5, 1.0, 2.5, 5.0, 9.0, np.nan, np.inf, -np.inf, 1e38]), max_size=9))
@settings(deadline=None, max_examples=100)
def test_shifted_values_are_those_of_the_twin(values):
    values, entries = np.array(values, dtype=np.float32), np.arange(len(values))[::-1].copy()
    found = shifted(values, entries, 0.5, 4.5)
    np.testing.assert_array_equal(found, shifted_numpy(values, entries, 0.5, 4.5))
    assert np.all((found >= 0) & (found <= 4.5))
