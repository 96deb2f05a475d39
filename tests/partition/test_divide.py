"""Sizes, settings, labels, refusals and skew of the ways to divide."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tacit.data.synthetic import demo, synthesize
from tacit.errors import DataError, UsageError
from tacit.partition import Setting, partition
from tacit.partition.skew import sizes, taste


@pytest.fixture(scope="module")
def ratings():
    return demo(users=200, items=80, ratings=3000)


def with_columns(ratings, users=None, items=None):
    return replace(
        ratings,
        user_attributes=None if users is None else pa.table(users),
        item_attributes=None if items is None else pa.table(items),
    )


# -- settings and sizes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "setting"),
    [
        ("user", Setting.HORIZONTAL),
        ("item", Setting.VERTICAL),
        ("device", Setting.DEVICE),
        ("group", Setting.HORIZONTAL),
        ("zip1", Setting.HORIZONTAL),
        ("genre", Setting.VERTICAL),
        ("genres", Setting.VERTICAL),
        ("year", Setting.VERTICAL),
    ],
)
def test_the_setting_follows_from_what_is_divided(ratings, by, setting):
    assert partition(ratings, by=by).setting is setting


@pytest.mark.parametrize("by", ["user", "item"])
def test_as_many_parties_as_members_are_possible_and_one_more_is_not(ratings, by):
    n = ratings.n_users if by == "user" else ratings.n_items
    assert len(partition(ratings, into=n, by=by)) == n
    with pytest.raises(UsageError, match=f"cannot be divided among {n + 1} parties"):
        partition(ratings, into=n + 1, by=by)


def test_a_user_keeps_to_the_key_of_the_id_when_others_leave():
    """Who is dealt before whom depends on (seed, id) alone."""
    whole = demo(users=60, items=20, ratings=300)
    part = whole.select_users(np.arange(0, 60, 2))
    first = {u for s in partition(whole, into=2)[:1] for u in s.ratings.user_ids.ids}
    alone = {u for s in partition(part, into=2)[:1] for u in s.ratings.user_ids.ids}
    together = {u for u in part.user_ids.ids if u in first}
    assert alone <= together or together <= alone


# -- groups ------------------------------------------------------------------------------------------------


def test_the_number_of_groups_can_be_asked_for_within_reason():
    whole = demo(users=60, items=5, ratings=120)
    for users in (3, 5, 31, 500):
        assert {len(s.users) for s in partition(demo(users, 5, users), by="group")} <= set(range(3, 31))
    for into in (2, 7, 20):
        parties = partition(whole, into=into, by="group")
        assert len(parties) == into
        assert {len(s.users) for s in parties} <= set(range(3, 31))
    for into in (1, 21):
        with pytest.raises(UsageError, match="60 users make 2 to 20 groups, not"):
            partition(whole, into=into, by="group")
    with pytest.raises(UsageError, match="2 users are too few for one"):
        partition(demo(2, 5, 4), by="group")


# -- attributes --------------------------------------------------------------------------------------------


def test_one_party_per_value_the_largest_first(ratings):
    parties = partition(ratings, by="zip1")
    zip1 = ratings.user_attributes["zip1"].to_numpy()
    assert sorted(s.label for s in parties) == sorted(set(zip1))
    size = [len(s.users) for s in parties]
    assert size == sorted(size, reverse=True)
    for share in parties:
        assert set(zip1[share.users]) == {share.label}


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "b", "", "a", "b"]),
        pa.array(["a", None, "b", None, "a", "b"]).dictionary_encode(),
        pa.array([1.5, None, 2.0, float("nan"), 1.5, 2.0]),
        pa.array([1, None, 2, None, 1, 2]),
    ],
)
def test_what_is_missing_goes_to_a_party_called_unknown(column):
    whole = with_columns(demo(6, 4, 12), users={"ward": column})
    parties = partition(whole, by="ward")
    unknown = next(s for s in parties if s.label == "unknown")
    assert unknown.users.tolist() == [1, 3]
    assert len(parties) == 3


def test_a_film_goes_to_its_rarest_genre():
    genres = ["Drama", "Drama|War", "Drama", "War|Drama", "Drama|Noir|War", None, "Alpha|Beta"]
    listed = pa.array([None if cell is None else cell.split("|") for cell in genres])
    as_list = partition(with_columns(demo(5, 7, 20), items={"genre": listed}), by="genres")
    whole = with_columns(demo(5, 7, 20), items={"genres": genres})
    found = {s.label: s.items.tolist() for s in partition(whole, by="genre")}
    assert found == {"Drama": [0, 2], "War": [1, 3], "Noir": [4], "unknown": [5], "Alpha": [6]}
    assert {s.label: s.items.tolist() for s in as_list} == found
    assert "rarest" in partition(whole, by="genre").description


def test_the_smallest_values_merge_when_fewer_parties_are_asked_for():
    wards = ["a"] * 8 + ["b"] * 5 + ["c"] * 3 + ["d"] * 2 + ["e"]
    whole = with_columns(demo(19, 4, 30), users={"ward": wards})
    parties = partition(whole, into=3, by="ward")
    assert {s.label: len(s.users) for s in parties} == {"a": 8, "c + d + e": 6, "b": 5}
    assert "merged" in parties.description
    assert "merged" not in partition(whole, by="ward").description
    with pytest.raises(UsageError, match="5 values, too few for 6"):
        partition(whole, into=6, by="ward")


def test_an_unknown_attribute_names_the_columns_and_the_nearest(ratings):
    with pytest.raises(UsageError, match=r'by "ocupation".*zip1.*Did you mean "occupation"'):
        partition(ratings, by="ocupation")
    with pytest.raises(UsageError, match="user, item, device, group"):
        partition(with_columns(ratings), by="hospital")


# -- refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        *(({"into": into}, "into =") for into in (0, 2.0, True, "3")),
        *(({"size_skew": skew}, "between 0 and 1") for skew in (-0.1, 1.1, float("nan"))),
        *(({"by": by, "taste_skew": 0.5}, "leave it out") for by in ("device", "group", "zip1")),
    ],
)
def test_impossible_options_are_refused(ratings, options, words):
    with pytest.raises(UsageError, match=words):
        partition(ratings, **options)


def test_an_empty_roster_is_bad_data():
    whole = demo(3, 3, 5)
    with pytest.raises(DataError, match="nothing to divide"):
        partition(whole.select_users(np.array([], dtype=int)))


# -- skew --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "into"), [(1, 1), (10, 10), (11, 10), (1000, 7), (5000, 4000)])
@pytest.mark.parametrize("skew", [0.0, 0.3, 1.0])
def test_sizes_sum_up_fall_and_leave_nobody_empty(n, into, skew):
    size = sizes(n, into, skew)
    assert size.sum() == n
    assert len(size) == into
    assert size.min() >= 1
    assert np.all(np.diff(size) <= 0)


@pytest.mark.parametrize("feedback", ["explicit", "implicit", "count"])
@pytest.mark.parametrize("by", ["user", "item"])
def test_taste_skew_puts_like_with_like(feedback, by):
    """Sorted by one direction of five, silos hold about 1/5 of the variance between them; by chance 1/size."""
    world = synthesize(400, 200, 16_000, feedback=feedback)
    factors = world.user_factors if by == "user" else world.item_factors

    def between(skew):
        parties = partition(world.ratings, into=8, by=by, taste_skew=skew)
        means = np.array([factors[s.users if by == "user" else s.items].mean(axis=0) for s in parties])
        return means.var(axis=0).sum() / factors.var(axis=0).sum()

    none, some, much = between(0.0), between(0.6), between(1.0)
    assert none < 0.08
    assert none < some < much
    assert much > 0.12


def test_taste_is_finite_where_nobody_rated_and_where_all_agree():
    whole = demo(users=20, items=10, ratings=60)
    silent = whole.keep(whole.users > 3).keep(whole.keep(whole.users > 3).items > 2)
    agreed = replace(whole, values=np.full(whole.n_ratings, 3, dtype=np.float32))
    for ratings in (silent, agreed, silent.keep(np.zeros(silent.n_ratings, dtype=bool))):
        users, items = taste(ratings, seed=7)
        assert np.all(np.isfinite(users))
        assert np.all(np.isfinite(items))
        assert users[0] == 0 or ratings is agreed


@pytest.mark.parametrize("times", [True, False])
def test_a_share_of_items_is_what_selecting_them_gives(ratings, times):
    whole = ratings if times else replace(ratings, times=None)
    for share in partition(whole, into=6, by="item"):
        plain = whole.select_items(share.items)
        for name in ("indptr", "items", "values", "times"):
            np.testing.assert_array_equal(getattr(share.ratings, name), getattr(plain, name))
        assert share.ratings.items.dtype == plain.items.dtype
        assert share.ratings.item_ids == plain.item_ids
        assert share.ratings.item_attributes == plain.item_attributes
