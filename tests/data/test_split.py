"""What is held out, by whom it can be decided, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.ratings import Ratings, Scale
from tacit.data.split import KINDS, split
from tacit.data.synthetic import demo
from tacit.errors import DataError, UsageError

WHOLE = demo(users=120, items=60, ratings=3000)


def pairs(r):
    """The (user id, item id) of every rating."""
    return set(zip(r.user_ids[r.users].tolist(), r.item_ids[r.items].tolist(), strict=True))


def parts(s):
    return [pairs(part) for part in (s.train, s.test, s.support) if part is not None]


def handmade(times):
    """User a rated items 1, 2, 3; user b item 1; user c items 1 and 2."""
    return Ratings.from_columns(
        list("aaabcc"), [1, 2, 3, 1, 1, 2], [1, 2, 3, 4, 5, 1], times, scale=Scale(1, 5), name="handmade"
    )


@pytest.mark.parametrize("by", KINDS)
def test_every_rating_is_in_exactly_one_part(by):
    found = parts(split(WHOLE, by, seed=3))
    assert set.union(*found) == pairs(WHOLE)
    assert sum(map(len, found)) == WHOLE.n_ratings


@pytest.mark.parametrize("by", KINDS)
def test_nobody_leaves_the_roster(by):
    s = split(WHOLE, by)
    for part in (s.train, s.test):
        assert part.user_ids is WHOLE.user_ids
        assert part.item_ids is WHOLE.item_ids
        assert part.user_attributes is WHOLE.user_attributes
        assert part.scale == WHOLE.scale


@pytest.mark.parametrize("by", KINDS)
def test_the_same_seed_gives_the_same_split_and_a_sentence(by):
    a, b = split(WHOLE, by, seed=5), split(WHOLE, by, seed=5)
    assert parts(a) == parts(b)
    assert a.description == b.description
    assert a.description.endswith("ratings in the test).")


@pytest.mark.parametrize("by", ["random", "leave-one-out", "cold-users", "cold-items"])
def test_another_seed_gives_another_split(by):
    assert parts(split(WHOLE, by, seed=5)) != parts(split(WHOLE, by, seed=6))


def test_a_split_unpacks_into_train_and_test():
    s = split(WHOLE)
    train, test = s
    assert train is s.train
    assert test is s.test
    assert s.support is None


def test_times_and_values_stay_with_their_rating():
    train, test = split(WHOLE, test=0.3)
    whole = {p: (v, t) for p, v, t in zip(_listed(WHOLE), WHOLE.values, WHOLE.times, strict=True)}
    for part in (train, test):
        for p, v, t in zip(_listed(part), part.values, part.times, strict=True):
            assert whole[p] == (v, t)


def _listed(r):
    return list(zip(r.users.tolist(), r.items.tolist(), strict=True))


@pytest.mark.parametrize("test", [0.05, 0.1, 0.5, 0.9])
def test_random_holds_out_the_fraction_asked_for(test):
    """n = 3,000 draws; 4.4 standard deviations: one false alarm in 10⁵ seeds, and the seed is fixed."""
    n = WHOLE.n_ratings
    held = split(WHOLE, test=test).test.n_ratings
    assert abs(held - n * test) < 4.4 * np.sqrt(n * test * (1 - test))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    by=st.sampled_from(["random", "leave-one-out", "latest", "cold-users", "cold-items"]),
    keep=st.sets(st.integers(0, WHOLE.n_users - 1), min_size=60),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_site_with_some_users_makes_its_part_of_the_split_on_its_own(by, keep, seed):
    rows = np.array(sorted(keep))
    whole, alone = split(WHOLE, by, 0.2, seed), split(WHOLE.select_users(rows), by, 0.2, seed)
    assert pairs(whole.train.select_users(rows)) == pairs(alone.train)
    assert pairs(whole.test.select_users(rows)) == pairs(alone.test)
    if whole.support is not None and alone.support is not None:
        assert pairs(whole.support.select_users(rows)) == pairs(alone.support)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    by=st.sampled_from(["random", "cold-users", "cold-items"]),
    keep=st.sets(st.integers(0, WHOLE.n_items - 1), min_size=45),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_site_with_some_items_makes_its_part_of_the_split_on_its_own(by, keep, seed):
    columns = np.array(sorted(keep))
    whole, alone = split(WHOLE, by, 0.3, seed), split(WHOLE.select_items(columns), by, 0.3, seed)
    assert pairs(whole.train.select_items(columns)) == pairs(alone.train)
    assert pairs(whole.test.select_items(columns)) == pairs(alone.test)


def test_whole_numbers_read_as_text_are_split_alike():
    users, items = np.repeat(np.arange(30), 10), np.tile(np.arange(10), 30)
    numbers = Ratings.from_columns(users, items, np.ones(300), scale=(0, 1))
    text = Ratings.from_columns(users.astype(str), items.astype(str), np.ones(300), scale=(0, 1))
    as_text = {(str(u), str(i)) for u, i in pairs(split(numbers).test)}
    assert as_text == pairs(split(text).test)


# -- one of each user --------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["leave-one-out", "latest"])
def test_one_rating_is_held_out_of_every_user_with_two_or_more(by):
    whole = handmade(times=[10, 30, 20, 99, 5, 5])
    s = split(whole, by)
    assert s.test.counts.tolist() == [1, 0, 1]
    assert s.train.counts.tolist() == [2, 1, 1]


def test_latest_takes_the_last_moment_and_breaks_ties_by_key():
    whole = handmade(times=[10, 30, 20, 99, 5, 5])
    tied = set()
    for seed in range(20):
        held = pairs(split(whole, "latest", seed=seed).test)
        assert ("a", 2) in held
        tied |= held - {("a", 2)}
    assert tied == {("c", 1), ("c", 2)}


def test_latest_works_before_1970():
    held = pairs(split(handmade(times=[-30, -10, -20, -99, -5, -6]), "latest").test)
    assert held == {("a", 2), ("c", 1)}


def test_leave_one_out_is_uniform_over_a_users_ratings():
    """n = 3,000 seeds over 3 ratings: each within 4.4 sd of 1,000 (false alarm below 3·10⁻⁵)."""
    whole = handmade(times=None)
    picked = [split(whole, "leave-one-out", seed=seed).test.row(0)[0][0] for seed in range(3000)]
    assert np.all(np.abs(np.bincount(picked) - 1000) < 4.4 * np.sqrt(3000 * 2 / 9))


def test_silent_users_are_left_alone():
    silent = WHOLE.keep(WHOLE.users % 3 == 1)
    for by in ("leave-one-out", "latest"):
        counts = split(silent, by).test.counts
        np.testing.assert_array_equal(counts, (silent.counts > 1).astype(int))


# -- by time -----------------------------------------------------------------------------------------------


def test_temporal_cuts_at_one_moment_for_all():
    train, test = split(WHOLE, "temporal", test=0.25)
    assert train.times.max() < test.times.min()
    assert abs(test.n_ratings - 0.25 * WHOLE.n_ratings) <= 2


@pytest.mark.parametrize(
    ("times", "test", "held"),
    [
        ([1, 2, 3, 4, 5, 6], 1 / 3, 2),
        ([1, 1, 1, 1, 1, 2], 0.5, 1),  # either 1 or all are possible: the moment cannot be cut
        ([1, 2, 2, 2, 2, 2], 0.1, 5),
        ([1, 1, 2, 2, 3, 3], 0.4, 2),
        ([1, 2, 3, 4, 5, 6], 0.001, 1),
        ([1, 2, 3, 4, 5, 6], 0.999, 5),
    ],
)
def test_temporal_never_cuts_through_a_moment(times, test, held):
    train, tested = split(handmade(times), "temporal", test)
    assert tested.n_ratings == held
    assert train.times.max() < tested.times.min()


def test_temporal_needs_two_moments():
    with pytest.raises(DataError, match="leaves no rating"):
        split(handmade([4] * 6), "temporal")


@pytest.mark.parametrize("by", ["latest", "temporal"])
def test_without_timestamps_there_is_no_split_by_time(by):
    with pytest.raises(DataError, match="needs timestamps, and handmade has none"):
        split(handmade(None), by)


# -- cold --------------------------------------------------------------------------------------------------


def test_cold_users_are_strangers_to_training():
    """Test and support share about 1 : 4; n ≈ 600 ratings, 4.4 sd."""
    s = split(WHOLE, "cold-users", test=0.2)
    cold = (s.test.counts > 0) | (s.support.counts > 0)
    assert np.all(s.train.counts[cold] == 0)
    assert np.all(s.train.counts[~cold] == WHOLE.counts[~cold])
    n = s.test.n_ratings + s.support.n_ratings
    assert abs(s.support.n_ratings - 0.8 * n) < 4.4 * np.sqrt(n * 0.16)
    assert abs(cold.sum() - 24) < 4.4 * np.sqrt(120 * 0.16)


def test_cold_items_are_strangers_to_training():
    s = split(WHOLE, "cold-items", test=0.2)
    cold = s.test.item_counts > 0
    assert np.all(s.train.item_counts[cold] == 0)
    assert 0 < cold.sum() < 30


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", [0, 1, -0.1, 1.5, float("nan"), float("inf")])
def test_a_fraction_outside_zero_and_one_is_refused(test):
    with pytest.raises(UsageError, match="between 0 and 1"):
        split(WHOLE, test=test)


def test_an_unknown_kind_is_refused_with_a_suggestion():
    with pytest.raises(UsageError, match='Did you mean "leave-one-out"'):
        split(WHOLE, "leave_one_out")


@pytest.mark.parametrize("by", KINDS)
def test_one_rating_cannot_be_split(by):
    with pytest.raises(DataError, match=r"leaves no rating for (train|test)"):
        split(demo(1, 1, 1), by)


@pytest.mark.parametrize("by", KINDS)
def test_no_rating_cannot_be_split(by):
    empty = WHOLE.keep(np.zeros(WHOLE.n_ratings, dtype=bool))
    with pytest.raises(DataError, match="no ratings to split"):
        split(replace(empty), by)
