"""Damage to a ledger or a log is found; a crash where something is written down is resumed to the same end."""

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
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.errors import TamperingFound, UsageError
from tacit.experiment import run
from tacit.federation.calls import Logged
from tacit.federation.transcript import Entry
from tacit.report.folder import RunFolder

FILE = RunFile.model_validate(
    {
        "data": {"source": "demo", "users": 120, "items": 30, "ratings": 1500},
        "partition": {"into": 3},
        "method": {"name": "bias"},
        "privacy": {"epsilon": 2.0, "delta": 1e-6},
    }
)


class Crash(BaseException):
    """The power fails."""


def crash_at(monkeypatch, owner, method, number, after):
    """Make the number-th call of a method crash, before or after its work."""
    real, calls = getattr(owner, method), iter(range(1_000_000))

    def failing(self, *args, **kwargs):
        now = next(calls) == number
        if now and not after:
            raise Crash
        result = real(self, *args, **kwargs)
        if now:
            raise Crash
        return result

    monkeypatch.setattr(owner, method, failing)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    return run(FILE, folder), spent(folder)


def spent(folder):
    """What every party's ledger says it released, in order."""
    found = {}
    for party in ("party-1", "party-2", "party-3"):
        ledger = Ledger(folder / "ledger" / f"{party}.sqlite", party)
        ledger.verify()
        found[party] = [(row.step, row.event, row.payload) for row in ledger.rows()]
        ledger.close()
    return found


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "method", "number"),
    [(Ledger, "record", n) for n in range(6)] + [(CallLog, "keep", n) for n in range(2)],
    ids=lambda x: x.__name__ if isinstance(x, type) else str(x),
)
def test_a_crash_anywhere_is_resumed_to_the_same_end(tmp_path, monkeypatch, whole, owner, method, number, after):
    with monkeypatch.context() as broken:
        crash_at(broken, owner, method, number, after)
        with pytest.raises(Crash):
            run(FILE, tmp_path / "run")
    assert not (tmp_path / "run" / "summary.json").exists()
    summary = run(FILE, tmp_path / "run")
    expected, releases = whole
    assert summary["digest"] == expected["digest"]
    assert summary["guarantee"] == expected["guarantee"]
    assert summary["metrics"] == expected["metrics"]
    assert spent(tmp_path / "run") == releases


def test_a_ledger_that_forgets_what_left_is_noticed(tmp_path, monkeypatch):
    """Planted: a record that is undone, as if it had been written after the bytes left and lost in a crash."""
    real = Ledger.record

    def forgetful(self, **kwargs):
        row = real(self, **kwargs)
        self._database.execute("delete from releases where number = ?", (row.number,))
        return row

    monkeypatch.setattr(Ledger, "record", forgetful)
    with pytest.raises(TamperingFound, match="does not go on"):
        run(FILE, tmp_path / "run")


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
