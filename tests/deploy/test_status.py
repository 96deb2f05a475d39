"""What a service says of itself: never half a file, and a death that nobody announced is seen."""

import json
import os
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest

from tacit import __version__
from tacit.deploy import service_status as module
from tacit.deploy.service_status import FINAL, NAME, State, Status
from tacit.errors import DuplicatePair, PeerFailed, PrivacyRefused, UsageError


def on_disk(folder):
    return json.loads((folder / NAME).read_text(encoding="utf-8"))


def change(folder, **changes):
    """The file, as if another service had written it."""
    (folder / NAME).write_text(json.dumps(on_disk(folder) | changes), encoding="utf-8")


def ago(seconds):
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture
def served(tmp_path):
    """A service that is at work."""
    status = Status(tmp_path, "party-1", "hearts")
    status.set(state="serving", run="r1", round=3, step="improve", epsilon=0.4, budget=1, bytes_up=10, bytes_down=20)
    return status


def test_what_was_set_is_read(tmp_path, served):
    told = Status.read(tmp_path)
    assert (told["role"], told["federation"], told["run"], told["state"]) == ("party-1", "hearts", "r1", "serving")
    assert (told["round"], told["step"], told["epsilon"], told["budget"]) == (3, "improve", 0.4, 1.0)
    assert (told["bytes_up"], told["bytes_down"], told["version"]) == (10, 20, __version__)
    assert told["pid"] == os.getpid()
    assert told["alive"] is True
    assert told["started"] <= told["updated"]


def test_only_the_owner_reads_it_whatever_lay_there_before(tmp_path):
    (tmp_path / f"{NAME}.part").write_text("left by a crash")
    (tmp_path / f"{NAME}.part").chmod(0o644)
    Status(tmp_path / "new", "coordinator", "hearts").set()
    Status(tmp_path, "coordinator", "hearts").set()
    for folder in (tmp_path, tmp_path / "new"):
        assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700


def test_writes_are_held_back_but_a_new_state_never(tmp_path, served, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 600.0)
    served.set(round=4)
    assert on_disk(tmp_path)["round"] == 3
    assert served.now()["round"] == 4
    served.set(state=State.PAUSED)
    assert (on_disk(tmp_path)["state"], on_disk(tmp_path)["round"]) == ("paused", 4)
    monkeypatch.setattr(module, "EVERY", 0.0)
    served.set(round=5)
    assert on_disk(tmp_path)["round"] == 5


def test_a_waiting_service_gives_signs_of_life(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BEAT", 0.1)
    others = set(threading.enumerate())
    with Status(tmp_path, "party-1", "hearts"):
        assert any(thread.name == "tacit status" for thread in set(threading.enumerate()) - others)
        before = on_disk(tmp_path)["updated"]
        until = time.monotonic() + 120
        while on_disk(tmp_path)["updated"] == before and time.monotonic() < until:
            time.sleep(0.02)
        assert on_disk(tmp_path)["updated"] > before
    assert not any(thread.name == "tacit status" for thread in set(threading.enumerate()) - others)


def readers_failures(folder, write):
    """How often a reader met something else than one whole status while four threads wrote."""
    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    failures = reads = 0
    while any(writer.is_alive() for writer in writers):
        try:
            reads += 1
            told = on_disk(folder)
            failures += told["step"] != f"step-{told['round']}" * 8
        except (ValueError, OSError):
            failures += 1
    for writer in writers:
        writer.join()
    assert reads > 10
    return failures


def test_concurrent_changes_never_tear_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "EVERY", 0.0)
    status = Status(tmp_path, "coordinator", "hearts")
    status.set(round=0, step="step-0" * 8)

    def write(number):
        for n in range(number, 800, 4):
            status.set(round=n, step=f"step-{n}" * 8, message="x" * (n % 300))

    assert readers_failures(tmp_path, write) == 0
    assert not (tmp_path / f"{NAME}.part").exists()


def test_a_file_that_is_written_in_place_is_seen_torn(tmp_path):
    """The planted bug: what the test above would find."""

    def write(number):
        for n in range(number, 800, 4):
            (tmp_path / NAME).write_text(json.dumps({"round": n, "step": f"step-{n}" * 8, "message": "x" * 300}))

    (tmp_path / NAME).write_text("{}")
    assert readers_failures(tmp_path, write) > 0


def test_peers_keep_since_when(tmp_path):
    status = Status(tmp_path, "coordinator", "hearts")
    status.set(peers={"party-1": "connected", "party-2": "absent"})
    first = status.now()["peers"]
    time.sleep(0.01)
    status.set(peers={"party-1": "connected", "party-2": "connected"})
    then = status.now()["peers"]
    assert then["party-1"] == first["party-1"]
    assert then["party-2"]["state"] == "connected"
    assert then["party-2"]["since"] > first["party-2"]["since"]


@pytest.mark.parametrize("pid", ["dead", 0, -1, 2**70])
def test_a_service_whose_process_is_gone_is_dead(tmp_path, served, pid):
    change(tmp_path, pid=dead_process() if pid == "dead" else pid)
    assert Status.read(tmp_path)["alive"] is False
    change(tmp_path, host="elsewhere")  # a process of another machine cannot be looked up
    assert Status.read(tmp_path)["alive"] is True


@pytest.mark.parametrize("host", [None, "elsewhere"])
def test_silence_is_death_though_the_number_is_in_use(tmp_path, served, host):
    change(tmp_path, updated=ago(module.SILENCE + 5), **({} if host is None else {"host": host}))
    told = Status.read(tmp_path)
    assert told["alive"] is False
    assert told["age"] > module.SILENCE


@pytest.mark.parametrize("state", sorted(FINAL))
def test_who_said_how_it_ended_is_not_dead(tmp_path, served, state):
    served.set(state=state)
    change(tmp_path, pid=dead_process(), updated=ago(9999))
    assert Status.read(tmp_path)["alive"] is None


@pytest.mark.parametrize(
    ("error", "state", "words"),
    [
        (PrivacyRefused("The budget of party-1 is spent."), "refused", "The budget of party-1 is spent."),
        (PeerFailed("The coordinator is gone."), "failed", "The coordinator is gone."),
        (KeyboardInterrupt(), "stopped", "goes on"),
        (RuntimeError("rating of u42"), "failed", "RuntimeError"),
        (DuplicatePair("u42 rated i7 twice", first=0, second=1, user="u42", item="i7"), "failed", "DuplicatePair"),
    ],
)
def test_an_error_is_told_without_anybodys_data(tmp_path, error, state, words):
    with pytest.raises(type(error)), Status(tmp_path, "party-1", "hearts"):
        raise error
    told = Status.read(tmp_path)
    assert told["state"] == state
    assert words in told["message"]
    assert "u42" not in told["message"]


def test_what_the_service_said_itself_stays(tmp_path):
    with suppress(PeerFailed), Status(tmp_path, "party-1", "hearts") as status:
        status.set(state="refused", message="My budget is spent.")
        raise PeerFailed("And so the run ended.")
    assert (on_disk(tmp_path)["state"], on_disk(tmp_path)["message"]) == ("refused", "My budget is spent.")


def test_a_disk_that_fills_up_does_not_end_the_service(tmp_path, served, monkeypatch):
    def full(*_args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.os, "replace", full)
    served.set(state="paused")
    assert on_disk(tmp_path)["state"] == "serving"
    monkeypatch.undo()
    served.close()
    assert on_disk(tmp_path)["state"] == "paused"


@pytest.mark.parametrize(
    "changes",
    [
        {"user": "u42"},
        {"pid": 1},
        {"state": "sleeping"},
        {"round": -1},
        {"epsilon": float("nan")},
        {"peers": {"party-1": "sulking"}},
    ],
)
def test_what_has_no_place_is_refused_and_changes_nothing(tmp_path, served, changes):
    before = on_disk(tmp_path)
    with pytest.raises(UsageError):
        served.set(message="never", **changes)
    served.close()
    assert on_disk(tmp_path) == before


def test_words_stay_on_one_line_and_short(tmp_path, served):
    served.set(state="paused", message="gone\n\x1b[2Jand\u202eback " + "x" * 1000, peers={"a\nb": "absent"})
    told = Status.read(tmp_path)
    assert told["message"].isprintable()
    assert len(told["message"]) <= module.LONGEST_MESSAGE
    assert list(told["peers"]) == ["a b"]


@pytest.mark.parametrize(
    "harm",
    [
        *(lambda folder, text=text: (folder / NAME).write_bytes(text) for text in (b"", b"null", b"{}", b"\xff")),
        *(lambda folder, said=said: change(folder, updated=said) for said in ("soon", "2026-01-01")),
        lambda folder: change(folder, peers=[]),
        lambda folder: change(folder, pid=None),
    ],
)
def test_a_foreign_or_changed_file_is_one_sentence(tmp_path, served, harm):
    harm(tmp_path)
    with pytest.raises(UsageError, match="is not what a service writes"):
        Status.read(tmp_path)


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        Status(tmp_path / "file", "party-1", "hearts").set()
