"""What is held out, by whom it can be decided, and what is refused."""

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
    made = split(WHOLE, by, seed=3)
    found = parts(made)
    assert set.union(*found) == pairs(WHOLE)
    assert sum(map(len, found)) == WHOLE.n_ratings
    assert parts(split(WHOLE, by, seed=3)) == found
    assert (parts(split(WHOLE, by, seed=6)) == found) == (by in ("latest", "temporal"))
    train, test = made
    for part in (train, test):
        assert part.user_ids is WHOLE.user_ids
        assert part.item_attributes is WHOLE.item_attributes


@pytest.mark.parametrize("by", KINDS)
def test_what_is_too_small_to_split_is_refused(by):
    with pytest.raises(DataError, match=r"leaves no rating for (train|test)"):
        split(demo(1, 1, 1), by)
    with pytest.raises(DataError, match="no ratings to split"):
        split(WHOLE.keep(np.zeros(WHOLE.n_ratings, dtype=bool)), by)


@pytest.mark.parametrize("test", [0.05, 0.1, 0.5, 0.9])
def test_random_holds_out_the_fraction_asked_for(test):
    """n = 3,000 draws; 4.4 standard deviations: one false alarm in 10⁵ seeds, and the seed is fixed."""
    n = WHOLE.n_ratings
    held = split(WHOLE, test=test).test.n_ratings
    assert abs(held - n * test) < 4.4 * np.sqrt(n * test * (1 - test))


BY_USER = [("select_users", by) for by in ("random", "leave-one-out", "latest", "cold-users", "cold-items")]
BY_ITEM = [("select_items", by) for by in ("random", "cold-users", "cold-items")]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    way=st.sampled_from(BY_USER + BY_ITEM),
    keep=st.sets(st.integers(0, WHOLE.n_items - 1), min_size=45),
    seed=st.integers(0, 2**63 - 1),
)
def test_a_site_with_some_users_or_items_makes_its_part_of_the_split_on_its_own(way, keep, seed):
    select, by = way
    rows = np.array(sorted(keep))
    whole, alone = split(WHOLE, by, 0.3, seed), split(getattr(WHOLE, select)(rows), by, 0.3, seed)
    for part, own in ((whole.train, alone.train), (whole.test, alone.test), (whole.support, alone.support)):
        if part is not None and own is not None:
            assert pairs(getattr(part, select)(rows)) == pairs(own)


def test_whole_numbers_read_as_text_are_split_alike():
    users, items = np.repeat(np.arange(30), 10), np.tile(np.arange(10), 30)
    numbers = Ratings.from_columns(users, items, np.ones(300), scale=(0, 1))
    text = Ratings.from_columns(users.astype(str), items.astype(str), np.ones(300), scale=(0, 1))
    as_text = {(str(u), str(i)) for u, i in pairs(split(numbers).test)}
    assert as_text == pairs(split(text).test)


@pytest.mark.parametrize("by", ["leave-one-out", "latest"])
def test_one_rating_is_held_out_of_every_user_with_two_or_more(by):
    whole = handmade(times=[10, 30, 20, 99, 5, 5])
    s = split(whole, by)
    assert s.test.counts.tolist() == [1, 0, 1]
    assert s.train.counts.tolist() == [2, 1, 1]


def test_latest_takes_the_last_moment_and_breaks_ties_by_key():
    whole = handmade(times=[-30, -10, -20, 99, -5, -5])
    tied = set()
    for seed in range(20):
        held = pairs(split(whole, "latest", seed=seed).test)
        assert ("a", 2) in held
        tied |= held - {("a", 2)}
    assert tied == {("c", 1), ("c", 2)}


def test_leave_one_out_is_uniform_over_a_users_ratings():
    """n = 3,000 seeds over 3 ratings: each within 4.4 sd of 1,000 (false alarm below 3·10⁻⁵)."""
    whole = handmade(times=None)
    picked = [split(whole, "leave-one-out", seed=seed).test.row(0)[0][0] for seed in range(3000)]
    assert np.all(np.abs(np.bincount(picked) - 1000) < 4.4 * np.sqrt(3000 * 2 / 9))


@pytest.mark.parametrize(
    ("times", "test", "held"),
    [
        ([1, 2, 3, 4, 5, 6], 1 / 3, 2),
        ([1, 1, 1, 1, 1, 2], 0.5, 1),  # either 1 or all are possible: the moment cannot be cut
        ([1, 2, 2, 2, 2, 2], 0.1, 5),
        ([1, 2, 3, 4, 5, 6], 0.999, 5),
    ],
)
def test_temporal_never_cuts_through_a_moment(times, test, held):
    train, tested = split(handmade(times), "temporal", test)
    assert tested.n_ratings == held
    assert train.times.max() < tested.times.min()


@pytest.mark.parametrize("by", ["latest", "temporal"])
def test_without_timestamps_there_is_no_split_by_time(by):
    with pytest.raises(DataError, match="needs timestamps, and handmade has none"):
        split(handmade(None), by)


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


@pytest.mark.parametrize("test", [0, 1, -0.1, 1.5, float("nan"), float("inf")])
def test_a_fraction_outside_zero_and_one_and_an_unknown_kind_are_refused(test):
    with pytest.raises(UsageError, match="between 0 and 1"):
        split(WHOLE, test=test)
    with pytest.raises(UsageError, match='Did you mean "leave-one-out"'):
        split(WHOLE, "leave_one_out")
