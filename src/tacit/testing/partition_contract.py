"""What every partition must do, as tests to inherit."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tacit.data.ratings import Ratings
from tacit.data.synthetic import demo
from tacit.partition import Parties, Setting, Share
from tacit.rng import derive


class PartitionContract:
    """Subclass it under a name that starts with Test and define `make`; pytest finds the rest.

    class TestByUser(PartitionContract):
        def make(self, ratings, seed):
            return partition(ratings, into=5, by="user", seed=seed)

    Attributes
    ----------
    seeded : False where the data alone decide, so that another seed changes nothing
    """

    seeded = True

    def make(self, ratings: Ratings, seed: int) -> Parties:
        raise NotImplementedError

    def examples(self) -> Iterator[Ratings]:
        """Ordinary ratings; then some without times, with silent users and unrated items."""
        yield demo(users=90, items=60, ratings=1500)
        sparse = demo(users=75, items=80, ratings=900, feedback="implicit")
        yield replace(sparse.keep((sparse.users % 5 > 0) & (sparse.items % 4 > 0)), times=None)

    def made(self) -> Iterator[tuple[Ratings, Parties]]:
        """Every example, and its partition."""
        for whole in self.examples():
            yield whole, self.make(whole, seed=7)

    def shares(self) -> Iterator[tuple[Ratings, Share]]:
        """Every share of every example, with the whole."""
        for whole, parties in self.made():
            for share in parties:
                yield whole, share

    def test_every_rating_is_in_exactly_one_share(self) -> None:
        for whole, parties in self.made():
            parts = [_rows(s.ratings, s.users[s.ratings.users], s.items[s.ratings.items]) for s in parties.shares]
            found = np.concatenate(parts)
            found = found[np.lexsort((found[:, 1], found[:, 0]))]
            np.testing.assert_array_equal(found, _rows(whole, whole.users, whole.items))
            assert parties.n_ratings == whole.n_ratings

    def test_rows_and_columns_map_back_to_the_ids_of_the_whole(self) -> None:
        for whole, share in self.shares():
            assert share.users.dtype == share.items.dtype == np.int64
            np.testing.assert_array_equal(share.ratings.user_ids.ids, whole.user_ids[share.users])
            np.testing.assert_array_equal(share.ratings.item_ids.ids, whole.item_ids[share.items])

    def test_attributes_follow_their_users_and_items(self) -> None:
        for whole, share in self.shares():
            assert whole.user_attributes is not None
            assert whole.item_attributes is not None
            assert share.ratings.user_attributes == whole.user_attributes.take(share.users)
            assert share.ratings.item_attributes == whole.item_attributes.take(share.items)

    def test_one_side_is_shared_and_the_other_divided(self) -> None:
        for whole, parties in self.made():
            vertical = parties.setting is Setting.VERTICAL
            divided = np.concatenate([s.items if vertical else s.users for s in parties])
            np.testing.assert_array_equal(np.sort(divided), np.arange(whole.n_items if vertical else whole.n_users))
            for share in parties:
                if vertical:
                    assert share.ratings.user_ids == whole.user_ids
                else:
                    assert share.ratings.item_ids == whole.item_ids

    def test_no_party_is_without_users_and_items(self) -> None:
        for _whole, share in self.shares():
            assert len(share.users) >= 1
            assert len(share.items) >= 1

    def test_shares_are_well_formed_ratings(self) -> None:
        for whole, share in self.shares():
            r = share.ratings
            assert r.indptr.dtype == np.int64
            assert r.items.dtype == np.int32
            assert r.values.dtype == np.float32
            assert (r.times is None) == (whole.times is None)
            assert len(r.indptr) == r.n_users + 1
            assert r.indptr[0] == 0
            assert r.indptr[-1] == r.n_ratings
            key = r.users.astype(np.int64) * r.n_items + r.items
            assert np.all(np.diff(key) > 0), "rows or columns are out of order"
            assert (r.scale, r.feedback) == (whole.scale, whole.feedback)

    def test_the_whole_is_described(self) -> None:
        for whole, parties in self.made():
            assert (parties.n_users, parties.n_items) == (whole.n_users, whole.n_items)
            assert (parties.scale, parties.feedback) == (whole.scale, whole.feedback)
            assert parties.user_ids == whole.user_ids
            assert parties.item_ids == whole.item_ids
            assert parties.description.endswith(".")

    def test_parties_are_named_in_order(self) -> None:
        for _whole, parties in self.made():
            assert list(parties.names) == [f"party-{k}" for k in range(1, len(parties) + 1)]
            assert all(share.label for share in parties)

    def test_only_cohorts_have_devices(self) -> None:
        for _whole, parties in self.made():
            for share in parties:
                assert share.devices == (len(share.users) if parties.setting is Setting.DEVICE else 0)

    def test_the_same_seed_gives_the_same_partition(self) -> None:
        for whole in self.examples():
            assert _layout(self.make(whole, seed=7)) == _layout(self.make(whole, seed=7))

    def test_the_order_of_the_input_does_not_matter(self) -> None:
        for whole in self.examples():
            table = whole.to_arrow()
            table = table.take(derive(1, "turned").permutation(len(table)))
            shuffled = Ratings.from_columns(
                *(table[name].to_numpy() for name in table.column_names),
                scale=whole.scale,
                user_ids=whole.user_ids,
                item_ids=whole.item_ids,
                feedback=whole.feedback,
                user_attributes=whole.user_attributes,
                item_attributes=whole.item_attributes,
            )
            assert _layout(self.make(whole, seed=7)) == _layout(self.make(shuffled, seed=7))

    def test_another_seed_matters_where_chance_decides(self) -> None:
        for whole in self.examples():
            same = _layout(self.make(whole, seed=7)) == _layout(self.make(whole, seed=8))
            assert same is not self.seeded

    def test_the_input_is_left_as_it_was(self) -> None:
        for whole in self.examples():
            before = _rows(whole, whole.users, whole.items).copy()
            self.make(whole, seed=7)
            np.testing.assert_array_equal(_rows(whole, whole.users, whole.items), before)


def _rows(r: Ratings, users: np.ndarray, items: np.ndarray) -> np.ndarray:
    """One row (user, item, value, time) per rating; exact in float64."""
    times = np.zeros(r.n_ratings) if r.times is None else r.times
    return np.column_stack((users, items, r.values, times)).astype(np.float64)


def _layout(parties: Parties) -> list[tuple[str, list[int], list[int]]]:
    return [(share.label, share.users.tolist(), share.items.tolist()) for share in parties]
