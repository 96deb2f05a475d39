"""Entries in the order of their rows and columns: both ways to sort give one answer, and name one duplicate."""

import numpy as np
import pytest

from tacit.data.ratings import row_order
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DuplicatePair
from tacit.rng import derive

N, M = 7, 11


class Vast(Vocabulary):
    """A vocabulary so long that an entry's place does not fit beside its pair into 64 bits."""

    def __len__(self):
        return 2**60 // N


USERS = Vocabulary(np.arange(N) * 10, "user")
ITEMS = [kind(np.arange(M) + 100, "item") for kind in (Vocabulary, Vast)]


def pairs(seed, size):
    chosen = derive(seed, "pairs").permutation(N * M)[:size]
    return chosen // M, chosen % M


@pytest.mark.parametrize("items", ITEMS, ids=["packed", "too vast to pack"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [0, 1, 2, 40, N * M])
def test_entries_come_in_order_of_row_and_column(items, dtype, size):
    rows, columns = (codes.astype(dtype) for codes in pairs(size, size))
    indptr, order = row_order(rows, columns, USERS, items)
    expected = np.lexsort((columns, rows))
    np.testing.assert_array_equal(np.arange(size) if order is None else order, expected)
    np.testing.assert_array_equal(np.diff(indptr), np.bincount(rows, minlength=N))
    assert indptr.dtype == np.int64


@pytest.mark.parametrize("items", ITEMS, ids=["packed", "too vast to pack"])
def test_entries_in_order_are_left_alone(items):
    rows, columns = np.divmod(np.arange(0, N * M, 3), M)
    assert row_order(rows, columns, USERS, items)[1] is None


@pytest.mark.parametrize("items", ITEMS, ids=["packed", "too vast to pack"])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, M - 1), (3, 5), (N - 1, M - 1)])
def test_a_pair_that_comes_again_is_named_with_both_places(items, row, column):
    rows, columns = pairs(1, N * M)
    first = int(np.flatnonzero((rows == row) & (columns == column))[0])
    with pytest.raises(DuplicatePair, match="twice") as caught:
        row_order(np.append(rows, row), np.append(columns, column), USERS, items)
    assert (caught.value.first, caught.value.second) == (first, N * M)
    assert (caught.value.user, caught.value.item) == (10 * row, 100 + column)


def test_one_column_in_neighbouring_rows_is_no_duplicate():
    rows, columns = np.array([6, 5, 3, 1]), np.array([4, 4, 4, 4])  # with empty rows between, before and after
    assert row_order(rows, columns, USERS, ITEMS[0])[1].tolist() == [3, 2, 1, 0]
