"""What a site keeps in files of its own: what was written is what is read, and damage is one sentence."""

from dataclasses import replace

import numpy as np
import pytest
from one_site import DATA, Sites, mode, offer_of, run_file

from tacit.boundary.release import Kind
from tacit.boundary.wire import decode, encode
from tacit.data.ratings import Scale
from tacit.deploy.align import align_sites
from tacit.deploy.deployment import _roster
from tacit.deploy.site_files import read_predictor, read_share, write_predictor, write_share
from tacit.deploy.site_service import own_identity
from tacit.engine.serve import Memory
from tacit.errors import DataError, TamperingFound
from tacit.federation.messages import Answer
from tacit.model import Fitted, Hashed, Implicit, Linear, NonNegative, forms
from tacit.partition import partition

FACTORS = np.arange(6, dtype=np.float32).reshape(3, 2)
SCALE = Scale(1, 5)
TWO = np.arange(2, dtype=np.float32)
PREDICTORS = {
    "non-negative": Fitted(NonNegative(1.0, 5.0, FACTORS[:2]), FACTORS),
    "factors": Fitted(Linear.factors(FACTORS[:2], SCALE), FACTORS),
    "implicit": Fitted(Implicit(FACTORS), FACTORS),
    "item scores": Fitted.same_for_all(Linear.scores(TWO, SCALE), 3),
    "popularity": Fitted.same_for_all(Linear.scores(TWO, SCALE, rates=False), 3),
    "bias": Fitted(Linear.levels(TWO, SCALE, 5.0), np.arange(3, dtype=np.float32)[:, None]),
    "an order": Fitted(replace(Linear.levels(TWO, SCALE, 5.0), order=-TWO, personal=0.5), FACTORS[:, :1]),
    "random": Fitted(Hashed(np.arange(2, dtype=np.uint64)), np.arange(3, dtype=np.uint64)[:, None]),
}
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


@pytest.mark.parametrize("kind", PREDICTORS)
def test_a_predictor_is_the_same_after_its_way(tmp_path, kind):
    predictor = PREDICTORS[kind]
    path = tmp_path / "home" / "predictor.tct"
    write_predictor(path, predictor)
    read = read_predictor(path)
    assert mode(path) == 0o600
    assert forms.same(read.form, predictor.form)
    assert read.rates is predictor.rates
    users, items = np.array([0, 1, 1]), np.array([1, 0, 1])
    np.testing.assert_array_equal(read.predict(users, items), predictor.predict(users, items))
    np.testing.assert_array_equal(read.scores(users), predictor.scores(users))


def test_a_damaged_predictor_is_named(tmp_path):
    path = tmp_path / "predictor.tct"
    write_predictor(path, PREDICTORS["bias"])
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


def roster(folder):
    _roster(folder)


def aligned(folder):
    align_sites(offer_of(run_file()), {}, lambda *_sent: {}, folder / "transcript" / "aligned.tct")


def signing_key(folder):
    own_identity(folder)


def run_notes(folder):
    Sites(folder, offer_of(run_file())).begin()


FILES = {
    "transcript/roster.json": roster,
    "transcript/aligned.tct": aligned,
    "identity.key": signing_key,
    "party-1/ledger/runs.json": run_notes,
}


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"{", b"5", b"null"])
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_is_tampering(tmp_path, name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(TamperingFound, match=path.name):
        FILES[name](tmp_path)
