"""Damage to a ledger or a log is found as tampering, whatever it hit; a kill while one is begun is no damage."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pytest
from killpoints import states_of
from stated import record

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.sealed_database import mark_path
from tacit.cli.verified_ledgers import verified
from tacit.engine.call_log import CallLog
from tacit.errors import TamperingFound, UsageError
from tacit.federation.calls import Logged
from tacit.federation.transcript import Entry
from tacit.report.folder import RunFolder


def kept_ledger(path: Path) -> Path:
    with closing(Ledger(path, "party-1")) as ledger:
        ledger.note("unit", "user, zero-out", "is another")
        for number in (1, 2, 3):
            record(ledger, number, body=bytes(2000), present=b"\1", state=f"state {number}".encode() * 50)
        ledger.refuse("run", 1, "tell", "ab", "asked for too much")
    return path


def kept_log(path: Path) -> Path:
    with closing(CallLog(path)) as log:
        for k in range(3):
            entry = Entry(k, 1, "tell", "party-1", "up", "sum", 10, 1, "ab", "ok", "cd")
            log.keep(f"{k}/1/tell/ask", "request", Logged(bytes(3000), (entry,), {"party-1": "head"}))
        log.finish({"summary": {}, "files": {}})
    return path


def read_ledger(path: Path, opened=Ledger.open) -> object:
    with closing(opened(path)) as ledger:
        ledger.verify()
        return ledger.rows(), ledger.state(), ledger.body(), ledger.refusals(), ledger.relation


def write_ledger(path: Path) -> object:
    return read_ledger(path, lambda path: Ledger(path, "party-1"))


def read_log(path: Path, opened=CallLog.open) -> object:
    with closing(opened(path)) as log:
        return log.entries(), log.finished(), [log.recall(f"{k}/1/tell/ask", "request") for k in range(3)]


def write_log(path: Path) -> object:
    return read_log(path, CallLog)


KINDS = {"ledger": (kept_ledger, (read_ledger, write_ledger)), "log": (kept_log, (read_log, write_log))}


def outcome(path: Path, whole: bytes, content: bytes, reader) -> object:
    """What reading damaged bytes gives: what was kept, or the one error; anything else is raised."""
    for beside in ("-wal", "-shm", "-journal"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
    path.write_bytes(content)
    try:
        return reader(path)
    except TamperingFound:
        return "found"
    except UsageError:
        if content[18:20] == whole[18:20]:  # a header that says "for reading alone" looks like a disk that is
            raise
        return "found"
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_is_found_or_changes_nothing(tmp_path, kind):
    make, readers = KINDS[kind]
    path = make(tmp_path / f"{kind}.sqlite")
    whole = path.read_bytes()
    used = np.flatnonzero(np.frombuffer(whole, dtype=np.uint8))  # what is not empty space
    draw = np.random.default_rng(5)
    places = {*range(0, 100, 3), 18, 19, *draw.choice(used, 70).tolist(), *draw.integers(len(whole), size=15).tolist()}
    for reader in readers:
        kept, found = reader(path), 0
        for place in sorted(places):
            content = bytearray(whole)
            content[place] ^= 0xFF
            result = outcome(path, whole, bytes(content), reader)
            assert result in ("found", kept), place
            found += result == "found"
        assert found > 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_cut_or_overwritten_is_found(tmp_path, kind):
    make, readers = KINDS[kind]
    path = make(tmp_path / f"{kind}.sqlite")
    whole = path.read_bytes()
    for reader in readers:
        for size in (0, 1, 99, 100, 512, 4096, 16384, 20000, len(whole) - 16384, len(whole) - 1):
            assert outcome(path, whole, whole[:size], reader) == "found", size
        assert outcome(path, whole, os.urandom(len(whole)), reader) == "found"


ODD = "cast(x'61ff62' as text)"
TEXTS = ("moment", "run", "step", "kind", "request", "event", "payload", "state", "head")
FACTS = ("format", "party", "begun", "unit", "refusals", "seal")
NOT_UTF8 = [
    *((f"update releases set {column} = {ODD} where number = 2", "release 2 was changed") for column in TEXTS),
    *((f"update about set name = {ODD} where name = '{name}'", "first page") for name in FACTS),
    *((f"update about set value = {ODD} where name = '{name}'", "first page") for name in FACTS),
]


@pytest.mark.parametrize(("statement", "message"), NOT_UTF8)
def test_bytes_that_are_not_utf8_are_tampering(tmp_path, statement, message):
    path = kept_ledger(tmp_path / "ledger.sqlite")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute(statement).rowcount
        database.commit()
    for reader in (read_ledger, write_ledger):
        with pytest.raises(TamperingFound, match=message):
            reader(path)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"0" * 31, b"z" * 32])
def test_a_damaged_run_id_is_tampering(tmp_path, content):
    (tmp_path / "transcript").mkdir()
    folder = RunFolder(tmp_path)
    assert folder.run_id == folder.run_id
    (tmp_path / "transcript" / "run.id").write_bytes(content)
    with pytest.raises(TamperingFound, match=r"run\.id"):
        _ = folder.run_id


# -- a kill while a ledger or a log is begun --------------------------------------------------------------------


def test_a_ledger_whose_beginning_was_cut_short_is_begun_again(tmp_path, monkeypatch):
    made = tmp_path / "made"
    states = states_of(made, tmp_path, monkeypatch, lambda: Ledger(made / "party-1.sqlite", "party-1").close())
    assert len(states) > 6
    empty = 0
    for state in states:
        path = state / "party-1.sqlite"
        with suppress(UsageError):  # "holds no ledger", and not: is gone, is damaged
            verified(state)
        if path.exists() and not list(ledgers_in(state)):
            empty += 1
            with pytest.raises(UsageError, match="holds nothing yet"):
                Ledger.open(path)
        with closing(Ledger(path, "party-1")) as ledger:
            assert ledger.verify() == 0
            record(ledger, 1)
        assert not mark_path(path).exists()
        assert len(verified(state)[1]) == 1
    assert empty


def test_a_log_whose_beginning_was_cut_short_is_begun_again(tmp_path, monkeypatch):
    made = tmp_path / "made"
    states = states_of(made, tmp_path, monkeypatch, lambda: CallLog(made / "transcript" / "log.sqlite").close())
    assert len(states) > 6
    for state in states:
        (state / "run.toml").write_text("")
        verified(state)
        kept_log(state / "transcript" / "log.sqlite")
        assert read_log(state / "transcript" / "log.sqlite")[1] is not None


@pytest.mark.parametrize("lost", ["emptied", "removed"])
def test_a_ledger_that_is_lost_is_not_begun_again_beside_its_key(tmp_path, lost):
    path = kept_ledger(tmp_path / "party-1.sqlite")
    path.write_bytes(b"") if lost == "emptied" else path.unlink()
    for _ in range(2):
        with pytest.raises(TamperingFound, match="gone or was emptied"):
            Ledger(path, "party-1")
