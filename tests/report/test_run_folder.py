"""One process a run folder, on every command that writes there."""

import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.config import RunFile
from tacit.errors import PeerFailed, UsageError
from tacit.report.folder import RunFolder

RUN = """
[data]
source = "demo"
users = 40
items = 20
ratings = 400
[partition]
into = 2
[method]
name = "item-mean"
"""


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


def test_a_report_of_nothing_leaves_nothing(tmp_path):
    assert tacit("report", tmp_path / "nowhere")[0] == 2
    assert not list(tmp_path.iterdir())


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
    from tacit.report import folder as module

    monkeypatch.chdir(tmp_path)
    file, names = RunFile.read(made / "run.toml"), iter(["same", "same", "other"])
    monkeypatch.setattr(module, "unused", lambda parent, _name: parent / next(names))
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
