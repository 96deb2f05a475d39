"""The ledger: durable, chained, every change to it is found, and one process a folder."""

import os
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest
from stated import record

from tacit.boundary import sealed_database
from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import START, Ledger, next_head
from tacit.boundary.lock import exclusive
from tacit.boundary.wire import digest
from tacit.deploy.site_service import own_identity
from tacit.errors import PeerFailed, PrivacyRefused, TamperingFound, UsageError


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for number in range(1, 5):
        record(ledger, number)
    yield ledger
    ledger.close()


def tamper(ledger, statement, *values):
    ledger.close()
    with sqlite3.connect(ledger.path) as database:
        assert database.execute(statement, values).rowcount > 0
    database.close()
    return Ledger(ledger.path, "party-1")


def test_a_row_is_synced_before_its_bytes_leave(ledger):
    """SQLite's `full`: a commit returns once it is on the disk, so that no loss of power brings a budget back."""
    assert ledger._database.execute("pragma synchronous").fetchone() == (2,)


def test_it_outlives_the_process(ledger):
    ledger.close()
    again = Ledger(ledger.path, "party-1")
    assert [row.round for row in again.rows()] == [1, 2, 3, 4]
    assert again.events() == [Gaussian(2.0)] * 4
    assert again.state() == b"state 4"
    assert again.verify() == 4


def test_the_head_binds_previous_head_event_request_and_payload(ledger):
    before = START
    for row in ledger.rows():
        assert row.head == next_head(before, row.event, row.request, row.payload)
        before = row.head
    parts = ("a", "b", "c", "d")
    changed = [(*parts[:i], "x", *parts[i + 1 :]) for i in range(4)]
    assert len({next_head(*p) for p in [parts, *changed]}) == 5


def test_what_another_connection_wrote_is_known(ledger):
    other = Ledger(ledger.path, "party-1")
    assert ledger.answered("request 5") is other.answered("request 5") is None
    record(other, 5)
    assert ledger.answered("request 5")[1] == b"payload 5"
    record(ledger, 6)
    assert other.answered_otherwise("run-1", 6, "tell", 0, "another")
    reader = Ledger.open(ledger.path)
    assert reader.answered("request 6") is not None
    assert reader.answered("request 7") is None


@pytest.mark.parametrize("failing", ["an unknown event", "a veto"])
def test_a_row_is_all_or_nothing(ledger, failing):
    class Unknown(Gaussian):
        pass

    def veto():
        raise PrivacyRefused("not an event that I allow")

    changes = {"event": Unknown(1.0)} if failing == "an unknown event" else {"admit": veto}
    with pytest.raises(PrivacyRefused, match="not an event"):
        record(ledger, 5, **changes)
    assert ledger.answered("request 5") is None
    assert len(ledger.rows()) == ledger.verify() == ledger.written == 4


def test_a_disk_that_is_full_is_no_tampering(ledger):
    """What was recorded is complete, what was not did not leave, and with room again it goes on."""
    pages = ledger._database.execute("pragma page_count").fetchone()[0]
    ledger._database.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(UsageError, match="full; free the disk"):
        all(record(ledger, number) for number in range(100, 200))
    before = ledger.verify()
    ledger._database.execute("pragma max_page_count = 1000000")
    record(ledger, 300)
    assert ledger.verify() == before + 1 >= 5


#: What `tacit ledger verify` is not tested with: every column of every table is changed there.
TAMPERINGS = {
    "bytes gone": ("update releases set body = null where number = 4", ()),
    "bytes of an older answer": ("update releases set body = ? where number = 2", (b"payload 2",)),
    "no state": ("delete from home", ()),
    "another format": ("update about set value = 'x' where name = 'format'", ()),
    "the first row removed": ("delete from releases where number = 1", ()),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_every_change_is_found(ledger, tampering):
    statement, values = TAMPERINGS[tampering]
    changed = tamper(ledger, statement, *values)
    with pytest.raises(TamperingFound, match="party-1"):
        changed.verify()


def test_an_old_ledger_put_back_is_found_by_the_head_that_travelled(ledger, tmp_path):
    ledger.close()
    shutil.copy(ledger.path, tmp_path / "old")
    ledger = Ledger(ledger.path, "party-1")
    head = record(ledger, 5).head
    ledger.close()
    shutil.copy(tmp_path / "old", ledger.path)
    restored = Ledger(ledger.path, "party-1")
    assert restored.verify() == 4  # by itself it is sound …
    with pytest.raises(TamperingFound, match="put back"):
        restored.verify(head)  # … but something left that it does not hold


def test_a_sealed_body_is_bound_by_a_keyed_hash(tmp_path):
    first, second = (record(Ledger(tmp_path / f"{name}.sqlite", name), sealed=True) for name in ("a", "b"))
    assert len({first.payload, second.payload, digest(b"payload 1")}) == 3


@pytest.mark.parametrize("states", [b"aab", b"aba", b" a ", b"abb"])
def test_a_state_that_stays_the_same_is_as_sealed_as_one_that_changes(tmp_path, states):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for number, state in enumerate(states, start=1):
        if number == 3:  # also over restarts
            ledger.close()
            ledger = Ledger(ledger.path, "party-1")
        record(ledger, number, state=bytes([state]).strip())
        assert ledger.state() == bytes([state]).strip()
        assert ledger.verify() == number
    assert len({row.state for row in ledger.rows()}) == len(set(states))
    with pytest.raises(TamperingFound, match="state"):
        tamper(ledger, "update home set state = ?", b"other").verify()


def test_it_belongs_to_one_party_and_needs_its_key(ledger):
    ledger.close()
    with pytest.raises(PrivacyRefused, match="belongs to party-1"):
        Ledger(ledger.path, "party-2")
    ledger.path.with_suffix(".key").unlink()
    with pytest.raises(TamperingFound, match=r"key .* is gone"):
        Ledger(ledger.path, "party-1")


def test_people_may_join_and_leave_but_not_all_be_others(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for first, last in ((0, 100), (15, 110), (60, 160)):
        ledger.bind_people([f"u{k}" for k in range(first, last)])
    with pytest.raises(PrivacyRefused, match="other people"):
        ledger.bind_people([f"u{k}" for k in range(160, 260)])
    assert ledger.known_people(["u0", "u159", "u160"]) == {"u0", "u159"}
    assert "u15" not in ledger._about()["people"]


def test_a_second_opener_at_the_worst_moment_gets_the_first_ones_key(tmp_path, monkeypatch):
    """The second comes when the first has found no key, and before it has put its own there."""
    path, second, replace = tmp_path / "party-1.sqlite", [], os.replace

    def late(source, target):
        monkeypatch.setattr(os, "replace", replace)
        second.append(pool.submit(sealed_database.key_of, path, True))
        wait(second, timeout=0.2)  # one that does not wait is done by then
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    with ThreadPoolExecutor(1) as pool:
        first = sealed_database.key_of(path, True)
        assert second[0].result(30) == first
        assert len(first) == 32
    assert sealed_database.key_of(path, False) == first


def test_half_a_key_from_a_killed_process_is_not_the_key(tmp_path):
    (tmp_path / "party-1.key.part").write_text("abc" * 40)
    assert len(sealed_database.key_of(tmp_path / "party-1.sqlite", True)) == 32


STATE = "the state of party-1"


def test_a_second_service_in_one_folder_is_refused(tmp_path):
    folder = tmp_path / "new" / "site"
    with exclusive(folder, STATE, "name another --state"):
        with pytest.raises(PeerFailed, match="party-1") as found, exclusive(folder, STATE, "name another --state"):
            raise AssertionError("two were let in")
        assert str(folder) in str(found.value)
        with exclusive(tmp_path / "other", STATE, "name another --state"):
            pass
    with exclusive(folder, STATE, "name another --state"):
        assert (folder / "lock").stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_service_that_fails_lets_go(tmp_path):
    with pytest.raises(ZeroDivisionError), exclusive(tmp_path, STATE, "name another --state"):
        raise ZeroDivisionError
    with exclusive(tmp_path, STATE, "name another --state"):
        pass


def test_a_lock_that_a_dead_service_left_is_no_lock(tmp_path):
    (tmp_path / "lock").write_text("")
    with exclusive(tmp_path, STATE, "name another --state"):
        assert (tmp_path / "lock").exists()


@pytest.mark.parametrize("what", ["a plain file", "below a plain file", "where nothing can be made"])
def test_a_folder_that_cannot_be_is_one_sentence(tmp_path, what):
    (tmp_path / "file").write_text("")
    places = {"a plain file": tmp_path / "file", "below a plain file": tmp_path / "file" / "x"}
    folder = places.get(what, Path("/proc/x"))
    with (
        pytest.raises(UsageError, match="name another --state") as found,
        exclusive(folder, STATE, "name another --state"),
    ):
        raise AssertionError("it was let in")
    assert str(found.value).startswith(f'The state of party-1 cannot be stored in "{folder}": ')
    with pytest.raises(UsageError, match="name another --state"):
        own_identity(folder)
