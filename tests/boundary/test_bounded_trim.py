"""Trimming and sampling: how many, how likely, and on whose record they depend; and the kernel's twin."""

import math

import numpy as np
import pytest
from bounded_cases import RATING, SEEDS, USER, ZERO_OUT, make_world
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary.clipped_gradients import EmbeddingGradient
from tacit.boundary.trim import Part, check_rows, sample_ratings, sample_users, trim
from tacit.data.ratings import Scale
from tacit.errors import DataError
from tacit.kernels.clipped import bounded_gradients, bounded_gradients_numpy
from tacit.rng import derive


def rows(*records):
    """Compressed rows from lists of items."""
    return np.cumsum([0, *map(len, records)]).astype(np.int64), np.concatenate([*records, []]).astype(np.int32)


def kept(records, limit, seed=0):
    """What trimming leaves of each user's items."""
    indptr, items = rows(*records)
    part = trim(sample_users(indptr, 1, derive(seed, "x")), items, limit, derive(seed, "trim"))
    assert np.array_equal(part.rows, np.arange(len(records)))
    return [items[part.entries[a:b]].tolist() for a, b in zip(part.indptr[:-1], part.indptr[1:], strict=True)]


RECORDS = st.lists(st.lists(st.integers(0, 30), max_size=12, unique=True).map(sorted), min_size=1, max_size=6)


@given(RECORDS, st.integers(1, 13), SEEDS)
@settings(deadline=None, max_examples=150)
def test_trimming_keeps_so_many_and_all_where_there_are_no_more(records, limit, seed):
    for mine, left in zip(records, kept(records, limit, seed), strict=True):
        assert len(left) == min(limit, len(mine))
        assert left == sorted(set(left) & set(mine))


@given(RECORDS, st.integers(1, 6), SEEDS, st.lists(st.integers(0, 30), max_size=12, unique=True).map(sorted))
@settings(deadline=None, max_examples=150)
def test_what_a_user_keeps_depends_on_nobody_elses_record(records, limit, seed, other):
    for i in range(len(records)):
        changed = [other if k == i else record for k, record in enumerate(records)]
        for k, (left, now) in enumerate(zip(kept(records, limit, seed), kept(changed, limit, seed), strict=True)):
            assert k == i or left == now


@given(RECORDS, st.integers(1, 6), SEEDS)
@settings(deadline=None, max_examples=100)
def test_without_one_rating_at_most_one_other_takes_its_place(records, limit, seed):
    before = kept(records, limit, seed)[0]
    for item in records[0]:
        after = kept([[j for j in records[0] if j != item], *records[1:]], limit, seed)[0]
        assert set(before) - set(after) <= {item}
        assert len(set(after) - set(before)) <= (item in before)


def test_every_set_of_ratings_is_kept_equally_often():
    """n = 35,000 users, 35 possible sets: χ² with 34 degrees of freedom stays below 79 (false alarm 2e-5)."""
    n, size, limit = 35_000, 7, 3
    indptr, items = np.arange(0, size * n + 1, size), np.tile(np.array([0, 1, 2, 3, 500, 70_000, 2**30]), n)
    part = trim(sample_users(indptr, 1, derive(1, "x")), items, limit, derive(1, "trim"))
    positions = (part.entries % size).reshape(n, limit)
    _, counts = np.unique((2**positions).sum(axis=1), return_counts=True)
    assert len(counts) == math.comb(size, limit)
    assert ((counts - n / 35) ** 2 / (n / 35)).sum() < 79


def test_users_are_sampled_independently_at_the_rate_with_all_their_ratings():
    """n = 40,000: the number sampled and the number of neighbours in the roster both sampled, within 5 deviations."""
    n, rate = 40_000, 0.2
    indptr = np.concatenate(([0], np.cumsum(np.arange(n) % 3)))
    part = sample_users(indptr, rate, derive(3, "sample"))
    assert abs(len(part.rows) - n * rate) < 5 * math.sqrt(n * rate * (1 - rate))
    pairs = np.count_nonzero(np.diff(part.rows) == 1)
    assert abs(pairs - n * rate**2) < 5 * math.sqrt(3 * n * rate**2)
    wanted = np.concatenate([np.arange(indptr[i], indptr[i + 1]) for i in part.rows])
    np.testing.assert_array_equal(part.entries, wanted)
    np.testing.assert_array_equal(np.diff(part.indptr), part.rows % 3)


def test_samples_and_trimming_are_drawn_anew_and_who_is_sampled_depends_on_no_record():
    """A sample that can be foretold, or that a record shifts, amplifies nothing."""
    few, many = np.arange(201), 5 * np.arange(201)
    users = [sample_users(few, 0.5, derive(seed, "sample")).rows.tolist() for seed in range(4)]
    assert len(set(map(tuple, users))) == 4
    for seed, drawn in enumerate(users):
        assert sample_users(many, 0.5, derive(seed, "sample")).rows.tolist() == drawn
    ratings = [tuple(sample_ratings(few, 0.5, derive(seed, "sample")).entries.tolist()) for seed in range(4)]
    assert len(set(ratings)) == 4
    left = [kept([list(range(20))] * 3, 4, seed) for seed in range(4)]
    assert len({tuple(map(tuple, one)) for one in left}) == 4
    assert all(len(set(map(tuple, one))) == 3 for one in left)  # each user has a key of their own


def test_ratings_are_sampled_independently_at_the_rate():
    """n = 40,000 users with two ratings each: counts of one and of both, within 5 deviations."""
    n, rate = 40_000, 0.2
    indptr = np.arange(0, 2 * n + 1, 2)
    part = sample_ratings(indptr, rate, derive(3, "sample"))
    assert abs(len(part.entries) - 2 * n * rate) < 5 * math.sqrt(2 * n * rate * (1 - rate))
    both = np.count_nonzero(np.diff(part.indptr) == 2)
    assert abs(both - n * rate**2) < 5 * math.sqrt(n * rate**2)
    assert (np.diff(part.entries) > 0).all()
    np.testing.assert_array_equal(np.repeat(part.rows, np.diff(part.indptr)), part.entries // 2)
    by_user = np.count_nonzero(np.diff(sample_users(indptr, rate, derive(3, "sample")).indptr) == 2)  # planted
    assert abs(by_user - n * rate**2) > 100 * math.sqrt(n * rate**2)


@pytest.mark.parametrize("sample", [sample_users, sample_ratings])
def test_the_absent_are_left_out_and_rate_one_keeps_everybody(sample):
    indptr, _ = rows([1, 2], [], [0], [3, 4, 5])
    assert sample(indptr, 1, derive(1, "x")).entries.tolist() == [0, 1, 2, 3, 4, 5]
    absent = np.array([True, True, False, True])
    assert sample(indptr, 1, derive(1, "x"), absent).entries.tolist() == [0, 1, 3, 4, 5]
    assert 2 not in sample(indptr, 0.9, derive(1, "x"), absent).entries
    for empty in (np.array([0]), np.array([0, 0, 0])):
        part = sample(empty, 0.5, derive(1, "x"))
        assert isinstance(part, Part)
        assert len(part.entries) == 0
        assert trim(part, np.zeros(0, dtype=np.int32), 2, derive(1, "x")).entries.size == 0


def test_every_answer_draws_a_sample_and_a_trimming_of_its_own():
    world = make_world(5, n=40, m=13, poison=False)
    query = EmbeddingGradient(Scale(1, 5), 0.5, 2, users_are_public=True)
    answering = query.over(world.ratings)
    stream = derive(1, "one stream")
    first, second = answering(world.state, stream), answering(world.state, stream)
    assert (first["items"] != second["items"]).any()
    assert query.sensitivity(USER, ZERO_OUT) <= query.sensitivity(RATING, ZERO_OUT)


@given(RECORDS, st.data())
@settings(deadline=None, max_examples=100)
def test_a_repeated_item_anywhere_is_refused(records, data):
    long = [i for i, record in enumerate(records) if record]
    if long:
        i = data.draw(st.sampled_from(long))
        at = data.draw(st.integers(0, len(records[i]) - 1))
        records = [r[: at + 1] + r[at:] if k == i else r for k, r in enumerate(records)]
        with pytest.raises(DataError, match=f"row {i} "):
            check_rows(*rows(*records), 31)


@pytest.mark.parametrize("indptr", [[], [1, 2], [0, 1], [0, 2, 1, 2], [0, 3]])
def test_pointers_that_do_not_fit_are_refused(indptr):
    with pytest.raises(DataError, match="row pointers"):
        check_rows(np.array(indptr, dtype=np.int64), np.array([0, 1]), 5)


def kernel_case(seed, p, size):
    stream = derive(seed, "kernel")
    rated = stream.random((5, 6)) < 0.6
    return (
        np.concatenate(([0], np.cumsum(rated.sum(axis=1)))),
        np.nonzero(rated)[1],
        4 * stream.random(rated.sum()),
        size * stream.normal(size=(5, p)),
        size * stream.normal(size=(6, p)),
    )


@given(
    SEEDS,
    st.sampled_from([1, 2, 3, 8, 20]),
    st.sampled_from([0.0, 1e-6, 1.0, 1e19, 1e38]),
    st.sampled_from([1e-9, 0.5, 10.0, math.inf]),
    st.sampled_from([(True, True), (True, False), (False, True)]),
)
@settings(deadline=None, max_examples=150)
def test_the_kernel_equals_its_twin(seed, p, size, threshold, blocks):
    case = kernel_case(seed, p, size)
    found, wanted = bounded_gradients(*case, threshold, *blocks), bounded_gradients_numpy(*case, threshold, *blocks)
    for actual, expected in zip(found, wanted, strict=True):
        largest = np.abs(expected).max() + size * min(threshold, 1e200)
        np.testing.assert_allclose(actual, expected, atol=1e-9 * min(largest, 1e300), rtol=1e-9)
    if math.isfinite(threshold):
        assert all(np.isfinite(gradient).all() for gradient in found)


@pytest.mark.parametrize("planted", ["threshold", "blocks", "factor"])
def test_a_kernel_that_forgets_something_is_found(planted):
    case = kernel_case(1, 3, 1.0)
    wanted = bounded_gradients(*case, 0.5, True, False)
    if planted == "threshold":
        found = bounded_gradients_numpy(*case, math.inf, True, False)
    elif planted == "blocks":
        found = bounded_gradients_numpy(*case, 0.5, True, True)
    else:
        found = tuple(g / 2 for g in bounded_gradients_numpy(*case, 0.5, True, False))
    assert not np.allclose(found[0], wanted[0])
