"""The folder of a run: one process at a time, its owner's alone, and resumed to the same end after any kill."""

import json
import os
import signal
import stat
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest
from killpoints import states_of
from typer.testing import CliRunner

from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.cli import app
from tacit.cli.verified_ledgers import verified
from tacit.config import RunFile
from tacit.errors import PeerFailed, UsageError
from tacit.experiment import run
from tacit.report.folder import RunFolder

RUN = "[data]\nusers = 40\nitems = 20\nratings = 400\n[partition]\ninto = 2\n[method]\nname = 'item-mean'\n"
PUBLIC = {
    "data": {"source": "demo", "users": 40, "items": 12, "ratings": 300},
    "partition": {"into": 2},
    "method": {"name": "bias"},
    "evaluate": {"floor": False},
}
PRIVATE = {**PUBLIC, "privacy": {"epsilon": 2.0, "delta": 1e-6}}


def tacit(*words) -> tuple[int, str]:
    answer = CliRunner().invoke(app, [str(word) for word in words])
    return answer.exit_code, answer.output


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run.toml").write_text(RUN)
    code, said = tacit("run", folder / "run.toml", "--out", folder / "done", "--json", "--quiet")
    assert code == 0, said
    return folder


def test_a_run_that_another_process_is_at_is_not_touched(made, tmp_path):
    busy = tmp_path / "busy"
    with RunFolder.make(busy, "item-mean", RunFile.read(made / "run.toml")):
        before = {path: path.stat().st_mtime_ns for path in busy.rglob("*")}
        for name in ("--resume", "--out"):
            code, said = tacit("run", made / "run.toml", name, busy, "--quiet")
            assert code == 5
            assert f'Another process is at work on the run in "{busy}"' in " ".join(said.split())
        assert {path: path.stat().st_mtime_ns for path in busy.rglob("*")} == before
    code, said = tacit("run", made / "run.toml", "--resume", busy, "--quiet", "--json")
    assert (code, json.loads(said)["run"]) == (0, str(busy))


def test_neither_are_the_pages_of_a_finished_one(made):
    done = made / "done"
    with RunFolder(done):
        assert tacit("report", done)[0] == 5
        assert tacit("run", made / "run.toml", "--resume", done, "--json")[0] == 0  # it only reads
        (done / "card.md").rename(done / "card.md.part")
        assert tacit("run", made / "run.toml", "--resume", done)[0] == 5
    assert tacit("report", done)[0] == 0
    assert (done / "card.md").exists()


def test_a_run_that_was_finished_meanwhile_is_not_overwritten(made, tmp_path, monkeypatch):
    """The other process lets go between the first look and the lock."""
    enter = RunFolder.__enter__

    def late(folder):
        entered = enter(folder)
        (folder.path / "summary.json").write_text("{}")
        return entered

    monkeypatch.setattr(RunFolder, "__enter__", late)
    with (
        pytest.raises(UsageError, match="finished run"),
        RunFolder.make(tmp_path / "run", "x", RunFile.read(made / "run.toml")),
    ):
        raise AssertionError("it was made")
    assert not (tmp_path / "run" / "run.toml").exists()


def test_two_runs_without_a_folder_of_their_own_get_two(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file, names = RunFile.read(made / "run.toml"), iter(["same", "same", "other"])
    monkeypatch.setattr("tacit.report.folder.unused", lambda parent, _name: parent / next(names))
    with RunFolder.make(None, "x", file) as first, RunFolder.make(None, "x", file) as second:
        assert (first.path.name, second.path.name) == ("same", "other")


def test_the_kernel_lets_go_when_a_process_is_killed(tmp_path):
    hold = (
        "import sys, time; from pathlib import Path; from tacit.boundary.lock import exclusive\n"
        "with exclusive(Path(sys.argv[1]), 'the run', 'wait'): print('held', flush=True); time.sleep(600)"
    )
    other = subprocess.Popen([sys.executable, "-c", hold, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(PeerFailed), RunFolder(tmp_path):
            raise AssertionError("two were let in")
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.communicate()
    with RunFolder(tmp_path):
        pass


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_no_file_of_a_run_folder_can_be_read_by_others(tmp_path, usual_umask):
    run(RunFile.model_validate({**PRIVATE, "engine": {"transcript": "full"}}), tmp_path / "run")
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    }
    expected = ("run.toml", "summary.json", "metrics.parquet", "card.md", "report.html", "about.json")
    assert {f"run/{name}" for name in expected} <= modes.keys()
    assert any("payloads" in name for name in modes)
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}


def spent(folder: Path) -> dict[str, list[tuple[int, str, str]]]:
    """What every ledger of a run holds, once it verifies."""
    found = {}
    for path in ledgers_in(folder):
        with closing(Ledger.open(path)) as ledger:
            ledger.verify()
            found[ledger.party] = [(row.round, row.step, row.event) for row in ledger.rows()]
    return found


@pytest.mark.parametrize("sections", [PRIVATE, PUBLIC], ids=["private", "non-private"])
def test_a_run_that_was_killed_at_any_write_is_resumed_to_the_same_end(tmp_path, monkeypatch, sections):
    file, made = RunFile.model_validate(sections), tmp_path / "run"
    summaries = []
    states = states_of(made, tmp_path, monkeypatch, lambda: summaries.append(run(file, made)))
    assert len(states) > (40 if file.privacy else 20)
    whole, charged = summaries[0], spent(made)
    for state in states:
        with suppress(UsageError):  # no ledger yet; that is not tampering
            verified(state)
        before = spent(state)
        if not (state / "summary.json").exists():
            summary = run(file, state)
        else:
            summary = json.loads((state / "summary.json").read_text())
        assert (summary["digest"], summary["guarantee"]) == (whole["digest"], whole["guarantee"])
        assert summary["metrics"] == whole["metrics"]
        after = spent(state)
        assert after == charged
        assert all(after[party][: len(rows)] == rows for party, rows in before.items())  # nothing is forgotten
        verified(state)
