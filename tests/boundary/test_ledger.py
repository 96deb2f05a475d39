"""The ledger: durable, chained, and whatever is done to it is found."""

import shutil
import sqlite3

import pytest

from tacit.boundary.events import Gaussian, Public
from tacit.boundary.ledger import START, Ledger, next_head
from tacit.boundary.sealed_database import database_error
from tacit.errors import PrivacyRefused, TamperingFound, UsageError


def write(ledger, number, event=None, body=b"payload", run="run-1", sealed=False, state=None):
    return ledger.record(
        run=run,
        round=number,
        step="improve",
        attempt=0,
        kind="sum",
        request=f"request {number}",
        event=Gaussian(2.0) if event is None else event,
        body=body + str(number).encode(),
        sealed=sealed,
        contributors=1,
        present=None,
        state=f"state {number}".encode() if state is None else state,
    )


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for number in range(1, 5):
        write(ledger, number)
    yield ledger
    ledger.close()


def tamper(ledger, statement, *values):
    ledger.close()
    with sqlite3.connect(ledger.path) as database:
        assert database.execute(statement, values).rowcount > 0
    database.close()
    return Ledger(ledger.path, "party-1")


def test_it_outlives_the_process(ledger):
    ledger.close()
    again = Ledger(ledger.path, "party-1")
    assert [row.round for row in again.rows()] == [1, 2, 3, 4]
    assert again.events() == [Gaussian(2.0)] * 4
    assert again.state() == b"state 4"
    assert again.verify() == 4


def test_the_head_binds_previous_head_event_request_and_payload(ledger):
    rows = ledger.rows()
    before = START
    for row in rows:
        assert row.head == next_head(before, row.event, row.request, row.payload)
        before = row.head
    parts = ("a", "b", "c", "d")
    changed = [(*parts[:i], "x", *parts[i + 1 :]) for i in range(4)]
    assert len({next_head(*p) for p in [parts, *changed]}) == 5


def test_the_latest_answer_is_kept_whole_and_older_ones_as_digests(ledger):
    row, body = ledger.answered("request 4")
    assert body == b"payload4"
    row, body = ledger.answered("request 2")
    assert body is None
    assert len(row.payload) == 64
    assert ledger.answered("request 9") is None


def test_the_same_round_under_other_terms_is_known(ledger):
    assert ledger.answered_otherwise("run-1", 2, "improve", 0, "another request")
    assert not ledger.answered_otherwise("run-1", 2, "improve", 0, "request 2")
    assert not ledger.answered_otherwise("run-1", 2, "improve", 1, "another request")
    assert not ledger.answered_otherwise("run-2", 2, "improve", 0, "another request")


def test_what_is_sealed_is_bound_by_a_keyed_hash(tmp_path):
    from tacit.boundary.wire import digest

    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    row = write(ledger, 1, sealed=True)
    assert row.payload != digest(b"payload1")
    assert ledger.verify() == 1
    other = Ledger(tmp_path / "party-2.sqlite", "party-2")
    assert write(other, 1, sealed=True).payload != row.payload


TAMPERINGS = {
    "an event made cheaper": ("update releases set event = replace(event, '2.0', '9.0') where number = 2", ()),
    "a request exchanged": ("update releases set request = 'another' where number = 3", ()),
    "a payload exchanged": ("update releases set payload = ? where number = 1", ("0" * 64,)),
    "another moment": ("update releases set moment = '2001-01-01T00:00:00+00:00' where number = 2", ()),
    "another round": ("update releases set round = 9 where number = 2", ()),
    "another run": ("update releases set run = 'other' where number = 4", ()),
    "fewer contributors": ("update releases set contributors = 0 where number = 4", ()),
    "fewer bytes": ("update releases set size = 1 where number = 1", ()),
    "a row removed in the middle": ("delete from releases where number = 2", ()),
    "the first row removed": ("delete from releases where number = 1", ()),
    "a head exchanged": ("update releases set head = ? where number = 4", ("0" * 64,)),
    "other bytes": ("update releases set body = ? where number = 4", (b"other",)),
    "bytes gone": ("update releases set body = null where number = 4", ()),
    "bytes of an older answer": ("update releases set body = ? where number = 2", (b"payload2",)),
    "another state": ("update home set state = ?", (b"other",)),
    "no state": ("delete from home", ()),
    "another beginning": ("update about set value = '2001' where name = 'begun'", ()),
    "another format": ("update about set value = 'x' where name = 'format'", ()),
    "another seal": ("update releases set seal = 'x' where number = 3", ()),
    "other devices": ("update releases set present = ? where number = 3", (b"\1",)),
}


@pytest.mark.parametrize("tampering", TAMPERINGS)
def test_whatever_is_changed_is_found(ledger, tampering):
    statement, values = TAMPERINGS[tampering]
    changed = tamper(ledger, statement, *values)
    with pytest.raises(TamperingFound, match="party-1"):
        changed.verify()


def test_rows_cut_off_are_found_by_the_head_that_travelled(ledger):
    head = ledger.head
    changed = tamper(ledger, "delete from releases where number = 4")
    with pytest.raises(TamperingFound):
        changed.verify(head)


def test_an_old_ledger_put_back_is_found_by_the_head_that_travelled(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    write(ledger, 1)
    ledger.close()
    shutil.copy(ledger.path, tmp_path / "old")
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    write(ledger, 2)
    head = ledger.head
    ledger.close()
    shutil.copy(tmp_path / "old", ledger.path)
    restored = Ledger(ledger.path, "party-1")
    assert restored.verify() == 1  # by itself it is sound …
    with pytest.raises(TamperingFound, match="put back"):
        restored.verify(head)  # … but something left that it does not hold


def test_a_check_that_does_not_look_is_noticed(ledger, monkeypatch):
    changed = tamper(ledger, *[TAMPERINGS["another moment"][0]])
    monkeypatch.setattr(Ledger, "_seal", lambda self, *values: "same")
    with pytest.raises(TamperingFound):
        changed.verify()  # the first page's seal does not fit any more: a broken seal never passes for a good one


def test_a_row_is_all_or_nothing(ledger):
    class Bad(Gaussian):
        pass

    with pytest.raises(PrivacyRefused, match="not an event"):
        write(ledger, 5, event=Bad(1.0))
    assert len(ledger.rows()) == 4
    assert ledger.verify() == 4


@pytest.mark.parametrize("states", [b"aab", b"aba", b" a ", b"abb"])
def test_a_state_that_stays_the_same_is_as_sealed_as_one_that_changes(tmp_path, states):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for number, state in enumerate(states, start=1):
        if number == 3:  # also over restarts
            ledger.close()
            ledger = Ledger(ledger.path, "party-1")
        write(ledger, number, state=bytes([state]).strip())
        assert ledger.state() == bytes([state]).strip()
        assert ledger.verify() == number
    assert len({row.state for row in ledger.rows()}) == len(set(states))
    with pytest.raises(TamperingFound, match="state"):
        tamper(ledger, "update home set state = ?", b"other").verify()


def test_it_belongs_to_one_party(ledger):
    ledger.close()
    with pytest.raises(PrivacyRefused, match="belongs to party-1"):
        Ledger(ledger.path, "party-2")


def test_without_its_key_nothing_is_claimed(ledger):
    ledger.close()
    ledger.path.with_suffix(".key").unlink()
    with pytest.raises(TamperingFound, match=r"key .* is gone"):
        Ledger(ledger.path, "party-1")


def test_only_the_owner_reads_it(ledger):
    for path in (ledger.path, ledger.path.with_suffix(".key")):
        assert path.stat().st_mode & 0o077 == 0


def test_public_facts_are_rows_too(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    write(ledger, 1, event=Public())
    assert ledger.head != START


def test_people_may_come_and_go_but_not_be_others(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    ledger.bind_people([f"u{k}" for k in range(100)])
    write(ledger, 1)
    ledger.bind_people([f"u{k}" for k in range(15, 110)])
    ledger.bind_people([f"u{k}" for k in range(60, 160)])  # whoever joins is charged what the ledger holds
    with pytest.raises(PrivacyRefused, match="other people"):
        ledger.bind_people([f"u{k}" for k in range(160, 260)])
    assert ledger.known_people(["u0", "u159", "u160"]) == {"u0", "u159"}
    assert ledger.verify() == 1
    assert "u15" not in ledger._about()["people"]


def fill(ledger):
    for number in range(100, 200):
        write(ledger, number)


def test_a_disk_that_is_full_is_no_tampering(ledger):
    """What was recorded is whole, what was not did not leave, and with room again it goes on."""
    pages = ledger._database.execute("pragma page_count").fetchone()[0]
    ledger._database.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(UsageError, match="full; make room"):
        fill(ledger)
    before = ledger.verify()
    assert before >= 4
    ledger._database.execute("pragma max_page_count = 1000000")
    write(ledger, 300)
    assert ledger.verify() == before + 1
    assert isinstance(database_error(ledger.path, sqlite3.DatabaseError("file is not a database")), TamperingFound)
