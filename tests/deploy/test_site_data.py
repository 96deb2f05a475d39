"""A site's own ratings: from wherever they lie, held to the public list, the scale and the sizes."""

import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from one_site import DATA, offer_of, run_file, write_csv

from tacit.data.vocabulary import Vocabulary
from tacit.deploy.site_data import Source, StoredShare, fit_ratings
from tacit.deploy.site_files import write_share
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.partition import partition

OFFER = offer_of(run_file())
TABLE = DATA.to_arrow().select(["user", "item", "rating"])
QUERY = "select who as user, what as item, stars as rating from seen where stars > 0"


def csv_file(folder) -> Source:
    return Source(write_csv(folder / "ratings.csv", DATA))


def parquet(folder) -> Source:
    pq.write_table(TABLE.rename_columns(["who", "what", "stars"]), folder / "ratings.parquet")
    return Source(str(folder / "ratings.parquet"), columns={"user": "who", "item": "what", "rating": "stars"})


def sqlite(folder) -> Source:
    with sqlite3.connect(folder / "ratings.db") as database:
        database.execute("create table seen (who text, what integer, stars real)")
        rows = zip(*(TABLE[name].to_pylist() for name in ("user", "item", "rating")), strict=True)
        database.executemany("insert into seen values (?, ?, ?)", rows)
    database.close()
    return Source(f"sqlite://{folder / 'ratings.db'}", QUERY)


@pytest.mark.parametrize("made", [csv_file, parquet, sqlite])
def test_the_same_ratings_from_wherever_they_lie(tmp_path, made):
    held = made(tmp_path).for_run(OFFER, "party-1", tmp_path)
    plain = csv_file(tmp_path).for_run(OFFER, "party-1", tmp_path)
    train, test = held.share.ratings, held.test
    assert train.n_ratings + test.n_ratings == DATA.n_ratings
    assert train.item_ids == DATA.item_ids
    for one, other in ((train, plain.share.ratings), (test, plain.test)):
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.items, other.items)
    assert held.people == plain.people == tuple(map(str, DATA.user_ids.ids))
    assert held.share.devices == 0


def test_without_privacy_counts_are_told_and_items_where_there_is_no_list(tmp_path):
    free = run_file(privacy=None)
    held = csv_file(tmp_path).for_run(offer_of(free), "party-1", tmp_path)
    told = held.sizes(offer_of(free))
    assert told.ratings == held.share.ratings.n_ratings
    assert told.items is None
    union = offer_of(free, items=None)
    held = csv_file(tmp_path).for_run(union, "party-1", tmp_path)
    assert held.sizes(union).items == held.share.ratings.item_ids


def test_an_item_that_is_not_listed_is_left_out(tmp_path):
    fewer = offer_of(run_file(), items=Vocabulary(DATA.item_ids.ids[2:], "item"))
    held = csv_file(tmp_path).for_run(fewer, "party-1", tmp_path)
    assert held.unfit == int(DATA.item_counts[:2].sum())
    assert held.share.ratings.n_users == DATA.n_users
    kept = held.share.ratings.n_ratings + (0 if held.test is None else held.test.n_ratings)
    assert kept == DATA.n_ratings - held.unfit


def test_ratings_stay_with_their_items_on_a_list_in_another_order(tmp_path):
    texts = Vocabulary(np.array(sorted(map(str, DATA.item_ids.ids)), dtype=object), "item")
    placed, unfit = fit_ratings(DATA, texts, DATA.scale)
    assert unfit == 0
    for user in range(DATA.n_users):
        before = dict(zip(map(str, DATA.item_ids[DATA.row(user)[0]]), DATA.row(user)[1], strict=True))
        after = dict(zip(texts[placed.row(user)[0]], placed.row(user)[1], strict=True))
        assert before == after


def test_a_rating_beyond_the_scale_is_clipped(tmp_path):
    held = csv_file(tmp_path).for_run(offer_of(run_file(public={"scale": [1, 3], "users": 48})), "party-1", tmp_path)
    assert held.unfit == int(np.sum(DATA.values > 3))
    assert held.share.ratings.values.max() == 3


@pytest.mark.parametrize("listed", [DATA.item_ids.ids, np.array([9999])], ids=["rated", "by nobody"])
def test_data_without_times_is_refused_whatever_the_list_holds(tmp_path, listed):
    """A latest rating can be held out of nothing, so that it would be told whether anybody rated what is listed."""
    path = tmp_path / "ratings.csv"
    csv.write_csv(TABLE, path)
    offer = offer_of(run_file(split={"by": "latest"}), items=Vocabulary(listed, "item"))
    with pytest.raises(UsageError, match="has no times"):
        Source(str(path)).for_run(offer, "party-1", tmp_path)


def test_with_privacy_a_device_is_one_user(tmp_path):
    devices = {"by": "device", "into": 3}
    with pytest.raises(PrivacyRefused, match="one device's"):
        csv_file(tmp_path).for_run(offer_of(run_file(partition=devices)), "party-1", tmp_path)
    free = offer_of(run_file(partition=devices, privacy=None))
    assert csv_file(tmp_path).for_run(free, "party-1", tmp_path).share.devices == 48


def test_with_privacy_a_vertical_site_lists_its_items(tmp_path):
    vertical = {"by": "item", "into": 3}
    private, free = (offer_of(run_file(partition=vertical, **more)) for more in ({}, {"privacy": None}))
    with pytest.raises(UsageError, match="--items"):
        csv_file(tmp_path).for_run(private, "party-1", tmp_path)
    assert csv_file(tmp_path).for_run(free, "party-1", tmp_path).sizes(free).items is not None
    pq.write_table(pa.table({"item": DATA.item_ids.ids}), tmp_path / "mine.parquet")
    source = Source(write_csv(tmp_path / "ratings.csv", DATA), items=tmp_path / "mine.parquet")
    assert source.for_run(private, "party-1", tmp_path).sizes(private).items == DATA.item_ids


def test_a_share_that_was_laid_ready_is_found_by_its_run(tmp_path):
    share = partition(DATA, into=3)[1]
    write_share(tmp_path / "run-1.share", share)
    held = StoredShare().for_run(offer_of(run_file(), local=True), "party-2", tmp_path)
    np.testing.assert_array_equal(held.share.ratings.values, share.ratings.values)
    assert held.people == tuple(map(str, share.ratings.user_ids.ids))
    assert held.test is None
    with pytest.raises(DataError, match="no share of this run for party-2"):
        StoredShare().for_run(offer_of(run_file(), run="run-2", local=True), "party-2", tmp_path)
