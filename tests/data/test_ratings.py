"""Ratings in compressed rows: ids in, ids out, one rating per pair, and parts that fit together again."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.ratings import Feedback, Ratings, Scale, row_order
from tacit.data.vocabulary import Vocabulary, as_ids
from tacit.errors import DataError, DuplicatePair, UsageError
from tacit.rng import derive

LARGEST, SMALLEST = 2**63 - 1, -(2**63)


def triples(r):
    return set(zip(r.user_ids[r.users].tolist(), r.item_ids[r.items].tolist(), r.values.tolist(), strict=True))


def well_formed(r):
    assert r.indptr.dtype == np.int64
    assert r.items.dtype == np.int32
    assert r.values.dtype == np.float32
    assert (r.indptr[0], r.indptr[-1], len(r.indptr)) == (0, r.n_ratings, r.n_users + 1)
    assert np.all(np.diff(r.indptr) >= 0)
    for u in range(r.n_users):
        assert np.all(np.diff(r.row(u)[0]) > 0)
    if r.n_ratings:
        assert 0 <= r.items.min() <= r.items.max() < r.n_items
    assert r.times is None or len(r.times) == r.n_ratings


def made(seed=1, n=6, m=5, nnz=12, text=False):
    """A handful of ratings in random order, with gaps between the ids."""
    stream = derive(seed, "made")
    pairs = stream.permutation(n * m)[:nnz]
    users, items = (pairs // m) * 10, (pairs % m) * 7 - 3
    values = stream.integers(1, 6, size=nnz)
    name = (lambda ids: [f"n{i}" for i in ids]) if text else (lambda ids: ids)
    return name(users), name(items), values, stream.integers(0, 10**9, size=nnz)


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([3, 1], [3, 1]),
        (np.array([3, 1], dtype=np.uint8), [3, 1]),
        (pa.array([3, 1]), [3, 1]),
        (pa.chunked_array([[3], [1]]), [3, 1]),
        ([SMALLEST, LARGEST], [SMALLEST, LARGEST]),
        (["1", "2"], ["1", "2"]),
        (np.array([1, "a"], dtype=object), ["1", "a"]),
        (pa.array(["b", "a"]), ["b", "a"]),
        ([1, "a"], ["1", "a"]),
        (np.array([True, 2], dtype=object), ["True", "2"]),
        (np.array([LARGEST + 1, 1], dtype=np.uint64), [str(LARGEST + 1), "1"]),
        ([10**30, 1], [str(10**30), "1"]),
    ],
)
def test_ids_are_whole_numbers_or_text_and_never_wrap_round(ids, expected):
    found = as_ids(ids)
    assert found.tolist() == expected
    assert found.dtype == (np.int64 if isinstance(expected[0], int) else object)


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=20))
@settings(deadline=None)
def test_a_vocabulary_is_sorted_without_repetition_and_finds_its_own(ids):
    vocabulary = Vocabulary.of(ids, "user")
    assert vocabulary.ids.tolist() == sorted(set(ids))
    assert vocabulary[vocabulary.rows(ids)].tolist() == ids
    assert vocabulary.rows([str(i) for i in ids]).tolist() == vocabulary.rows(ids).tolist()


def test_ids_are_found_as_number_and_as_text():
    numbers, texts = Vocabulary.of([5, 42], "item"), Vocabulary.of(["42", "x"], "item")
    assert (numbers.row(42), numbers.row("42"), numbers.row(np.int32(42))) == (1, 1, 1)
    assert (texts.row(42), texts.row("42")) == (0, 0)
    assert numbers.rows(["42", "x", "7"]).tolist() == [1, -1, -1]
    assert texts.rows([42, 43]).tolist() == [0, -1]


@pytest.mark.parametrize(
    "id",
    ["²", "--5", "-", "", " 3", "03", "+3", "3.0", "٣", "1_0", str(10**20), str(-(10**20)), 10**30, None, 3.5, True],
)
def test_what_is_no_id_of_a_vocabulary_of_numbers_is_unknown(id):
    vocabulary = Vocabulary.of([SMALLEST, -5, 3, 10], "item")
    assert vocabulary.rows([id]).tolist() == [-1]
    with pytest.raises(DataError, match=r"There is no item .* among the 4 known"):
        vocabulary.row(id)


@pytest.mark.parametrize(
    "ends", [(5, 1), (1, 1), (float("nan"), 5), (1, float("nan")), (0, float("inf")), (float("-inf"), 0)]
)
def test_a_scale_without_a_finite_span_is_refused(ends):
    with pytest.raises(UsageError, match="give its lower end first"):
        Scale(*ends)


@pytest.mark.parametrize("text", [False, True])
@given(seed=st.integers(0, 10**6), n=st.integers(1, 8), m=st.integers(1, 8), data=st.data())
@settings(deadline=None, max_examples=40)
def test_any_order_of_the_columns_gives_the_same_well_formed_rows(text, seed, n, m, data):
    nnz = data.draw(st.integers(0, n * m))
    users, items, values, times = made(seed, n, m, nnz, text)
    r = Ratings.from_columns(users, items, values, times, scale=(1, 5))
    well_formed(r)
    assert triples(r) == set(zip(as_ids(users).tolist(), as_ids(items).tolist(), values.tolist(), strict=True))
    time_of = dict(zip(zip(users, items, strict=True), times.tolist(), strict=True))
    for user, item, time in zip(r.user_ids[r.users], r.item_ids[r.items], r.times, strict=True):
        assert time_of[(user, item)] == time
    order = derive(seed, "order").permutation(nnz)
    again = Ratings.from_columns(
        as_ids(users)[order], as_ids(items)[order], values[order], times[order], scale=Scale(1, 5)
    )
    for name in ("indptr", "items", "values", "times"):
        np.testing.assert_array_equal(getattr(again, name), getattr(r, name))


def test_a_roster_keeps_those_who_rated_nothing():
    roster, catalogue = Vocabulary.of([1, 2, 3], "user"), Vocabulary.of(list("abcd"), "item")
    r = Ratings.from_columns([3, 1], ["d", "a"], [5, 4], scale=(1, 5), user_ids=roster, item_ids=catalogue)
    well_formed(r)
    assert r.counts.tolist() == [1, 0, 1]
    assert r.item_counts.tolist() == [1, 0, 0, 1]
    assert r.user_ids is roster


@pytest.mark.parametrize(
    ("users", "items", "words"),
    [
        ([1, 9], ["a", "a"], r"User 9 \(entry 2\) is not among the 2 declared users"),
        ([1, 2], ["a", "z"], r"Item 'z' \(entry 2\) is not among the 1 declared items"),
    ],
)
def test_an_id_outside_the_declared_ones_is_named(users, items, words):
    declared = {"user_ids": Vocabulary.of([1, 2], "user"), "item_ids": Vocabulary.of(["a"], "item")}
    with pytest.raises(DataError, match=words):
        Ratings.from_columns(users, items, [3, 3], **declared)


@pytest.mark.parametrize(
    "columns",
    [
        ([1, 2], [1], [3, 4]),
        ([1, 2], [1, 2], [3]),
        ([1, 2], [1, 2], [3, 4], [0]),
    ],
)
def test_columns_of_different_lengths_are_refused(columns):
    with pytest.raises(DataError, match="differ in length"):
        Ratings.from_columns(*columns, scale=(1, 5))


def whole(seed=1):
    users, items, values, times = made(seed)
    r = Ratings.from_columns(users, items, values, times, scale=(1, 5), feedback=Feedback.EXPLICIT)
    ages = pa.table({"age": pa.array(r.user_ids.ids * 2)})
    years = pa.table({"year": pa.array(r.item_ids.ids * 3)})
    return Ratings(**{**vars(r), "user_attributes": ages, "item_attributes": years})


@given(seed=st.integers(0, 10**6), data=st.data())
@settings(deadline=None, max_examples=40)
def test_kept_and_left_ratings_together_are_the_whole(seed, data):
    r = whole(seed)
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=r.n_ratings, max_size=r.n_ratings)), dtype=bool)
    kept, left = r.keep(mask), r.keep(~mask)
    for part in (kept, left):
        well_formed(part)
        assert part.user_ids is r.user_ids
        assert len(part.times) == part.n_ratings
    assert triples(kept) | triples(left) == triples(r)
    assert kept.n_ratings == mask.sum()


@pytest.mark.parametrize("side", ["user", "item"])
@given(seed=st.integers(0, 10**6), data=st.data())
@settings(deadline=None, max_examples=40)
def test_selected_users_or_items_bring_all_of_theirs_and_nothing_else(side, seed, data):
    r = whole(seed)
    ids, other = (r.user_ids, r.item_ids) if side == "user" else (r.item_ids, r.user_ids)
    rows = data.draw(st.lists(st.integers(0, len(ids) - 1), unique=True))
    part = (r.select_users if side == "user" else r.select_items)(np.array(rows, dtype=np.int64))
    well_formed(part)
    chosen, place = set(ids[rows].tolist()), ("user", "item").index(side)
    mine, others = (part.user_ids, part.item_ids) if side == "user" else (part.item_ids, part.user_ids)
    assert mine.ids.tolist() == sorted(chosen)
    assert others is other
    assert triples(part) == {t for t in triples(r) if t[place] in chosen}
    described = part.user_attributes["age"] if side == "user" else part.item_attributes["year"]
    assert described.to_pylist() == [(2 + place) * i for i in sorted(chosen)]


ROWS, COLUMNS = 7, 11


class Vast(Vocabulary):
    """A vocabulary so long that an entry's place does not fit beside its pair into 64 bits."""

    def __len__(self):
        return 2**60 // ROWS


USERS = Vocabulary(np.arange(ROWS) * 10, "user")
ITEMS = [kind(np.arange(COLUMNS) + 100, "item") for kind in (Vocabulary, Vast)]


def some_pairs(seed, size):
    chosen = derive(seed, "pairs").permutation(ROWS * COLUMNS)[:size]
    return chosen // COLUMNS, chosen % COLUMNS


@pytest.mark.parametrize("items", ITEMS, ids=["packed", "too vast to pack"])
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [0, 1, 2, 40, ROWS * COLUMNS])
def test_entries_come_in_order_of_row_and_column(items, dtype, size):
    rows, columns = (codes.astype(dtype) for codes in some_pairs(size, size))
    indptr, order = row_order(rows, columns, USERS, items)
    expected = np.lexsort((columns, rows))
    np.testing.assert_array_equal(np.arange(size) if order is None else order, expected)
    np.testing.assert_array_equal(np.diff(indptr), np.bincount(rows, minlength=ROWS))
    assert indptr.dtype == np.int64


@pytest.mark.parametrize("items", ITEMS, ids=["packed", "too vast to pack"])
@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, COLUMNS - 1), (3, 5), (ROWS - 1, COLUMNS - 1)])
def test_a_pair_that_comes_again_is_named_with_both_places(items, row, column):
    rows, columns = some_pairs(1, ROWS * COLUMNS)
    first = int(np.flatnonzero((rows == row) & (columns == column))[0])
    with pytest.raises(DuplicatePair, match="twice") as caught:
        row_order(np.append(rows, row), np.append(columns, column), USERS, items)
    assert (caught.value.first, caught.value.second) == (first, ROWS * COLUMNS)
    assert (caught.value.user, caught.value.item) == (10 * row, 100 + column)
