"""A site's own ratings, from wherever they lie, and its files: what was written is what is read."""

import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from one_site import DATA, Sites, mode, offer_of, run_file, write_csv

from tacit.boundary.release import Kind
from tacit.boundary.wire import decode, encode
from tacit.data.ratings import Scale
from tacit.data.vocabulary import Vocabulary
from tacit.deploy.align import align_sites
from tacit.deploy.deployment import _roster
from tacit.deploy.site_data import Source, StoredShare, fit_ratings
from tacit.deploy.site_files import read_predictor, read_share, write_predictor, write_share
from tacit.deploy.site_service import own_identity
from tacit.engine.serve import Memory
from tacit.errors import DataError, PrivacyRefused, TamperingFound, UsageError
from tacit.federation.messages import Answer
from tacit.model import Fitted, Linear
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


FACTORS = np.arange(6, dtype=np.float32).reshape(3, 2)
TWO = np.arange(2, dtype=np.float32)
ANSWER = Answer("party-1", "ok", Kind.SUM, b"\x00bytes\xff", 1, "event", "a" * 64, "b" * 64, "")


def damaged(path, read) -> None:
    """Whatever is cut off or replaced, reading gives one sentence that names the file, or what was written."""
    whole = path.read_bytes()
    for size in (0, 4, 8, len(whole) // 3, len(whole) - 1):
        path.write_bytes(whole[:size])
        _named(path, read)
    for other in (b"junk", whole + b"x", encode({}), encode({"about": "{}"}), encode({"about": 7, "": "Factors"})):
        path.write_bytes(other)
        _named(path, read)


def _named(path, read) -> None:
    with pytest.raises(TamperingFound) as found:
        read()
    text = str(found.value)
    assert str(path) in text
    assert "\n" not in text
    assert text.endswith(".")


@pytest.mark.parametrize(("by", "into"), [("user", 3), ("item", 3), ("device", None)])
def test_a_share_is_the_same_after_its_way(tmp_path, by, into):
    share = partition(DATA, by=by, into=into)[0]
    path = tmp_path / "run-1.share"
    write_share(path, share)
    read = read_share(path)
    assert mode(path) == 0o600
    assert (read.name, read.label, read.devices) == (share.name, share.label, share.devices)
    for part in ("indptr", "items", "values"):
        np.testing.assert_array_equal(getattr(read.ratings, part), getattr(share.ratings, part))
    for part in ("user_ids", "item_ids", "scale", "feedback", "name"):
        assert getattr(read.ratings, part) == getattr(share.ratings, part)
    assert read.ratings.item_ids.listed == share.ratings.item_ids.listed
    np.testing.assert_array_equal(read.users, share.users)
    np.testing.assert_array_equal(read.items, share.items)


def test_a_damaged_share_is_named(tmp_path):
    path = tmp_path / "run-1.share"
    write_share(path, partition(DATA, into=3)[0])
    damaged(path, lambda: read_share(path))


def test_a_damaged_predictor_is_named(tmp_path):
    path = tmp_path / "predictor.tct"
    levels = Linear.levels(TWO, Scale(1, 5), 5.0)
    write_predictor(path, Fitted(levels, np.arange(3, dtype=np.float32)[:, None]))
    assert mode(path) == 0o600
    whole = decode(path.read_bytes())
    damaged(path, lambda: read_predictor(path))
    for changes in (
        {"states": np.zeros((3, 2), dtype=np.float32)},
        {"states": np.full((3, 1), np.nan, dtype=np.float32)},
        {"form/base": np.zeros(3, dtype=np.float32)},
        {"form/base": np.zeros(2)},
        {"form/more": np.zeros(2, dtype=np.float32)},
        {"about": '{"form": "linear", "numbers": {"low": "1", "high": 5, "personal": 0, "rates": true}}'},
        {"about": '{"form": "linear", "numbers": {"low": 1, "high": 5, "base": 0}}'},
        {"about": '{"form": "linear", "numbers": {"low": 1}}'},
        {"about": '{"form": ["linear"], "numbers": {}}'},
    ):
        path.write_bytes(encode({**whole, **changes}))
        _named(path, lambda: read_predictor(path))


def test_a_form_that_is_not_installed_is_named(tmp_path):
    path = tmp_path / "predictor.tct"
    path.write_bytes(encode({"about": '{"form": "os.system", "numbers": {}}', "states": FACTORS}))
    with pytest.raises(DataError, match=r'no model form "os\.system"'):
        read_predictor(path)


@pytest.fixture
def memory(tmp_path) -> Memory:
    kept = Memory(tmp_path / "memory.tct", "run-1")
    kept.save("request-1", ANSWER, {"users": FACTORS, "count": np.int64(3), "rate": 0.5})
    return kept


def test_an_answer_and_what_was_at_home_are_there_after_a_restart(tmp_path, memory):
    assert mode(tmp_path / "memory.tct") == 0o600
    anew, home = Memory(tmp_path / "memory.tct", "run-1"), {"other": 1}
    assert anew.answered("request-1") is None
    anew.recall(home)
    assert anew.answered("request-1") == ANSWER == memory.answered("request-1")
    assert anew.answered("request-2") is None
    assert home.keys() == {"other", "users", "count", "rate"}
    np.testing.assert_array_equal(home["users"], FACTORS)
    assert home["users"].flags.writeable
    assert (int(home["count"]), float(home["rate"])) == (3, 0.5)


def test_another_run_remembers_nothing(tmp_path, memory):
    other, home = Memory(tmp_path / "memory.tct", "run-2"), {}
    other.recall(home)
    assert home == {}
    assert other.answered("request-1") is None
    Memory(tmp_path / "none.tct", "run-1").recall(home)
    assert home == {}


def test_a_damaged_memory_is_named(tmp_path, memory):
    path = tmp_path / "memory.tct"
    assert "home/users" in decode(path.read_bytes())
    damaged(path, lambda: Memory(path, "run-1").recall({}))


def test_an_answer_is_remembered_only_once_it_is_on_disk(tmp_path, memory, monkeypatch):
    def full(*_args):
        raise OSError("the disk is full")

    monkeypatch.setattr("tacit.files.write_private", full)
    with pytest.raises(OSError, match="disk is full"):
        memory.save("request-2", ANSWER, {})
    anew = Memory(tmp_path / "memory.tct", "run-1")
    anew.recall({})
    assert anew.answered("request-1") == ANSWER


FILES = {
    "transcript/roster.json": _roster,
    "transcript/aligned.tct": lambda folder: align_sites(OFFER, {}, None, folder / "transcript" / "aligned.tct"),
    "identity.key": own_identity,
    "party-1/ledger/runs.json": lambda folder: Sites(folder, OFFER).begin(),
}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{", b"5", b"null"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_tampering(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(TamperingFound, match=path.name):
        FILES[name](tmp_path)
