"""`tacit status`: what services do, for people and for scripts, and the exit code that fits."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from typer.testing import CliRunner

from tacit.cli import app
from tacit.deploy.service_status import NAME, Status
from tacit.errors import UsageError


def status(*args):
    return CliRunner().invoke(app, ["status", *map(str, args)])


def service(folder, role="party-1", federation="hearts", **changes):
    """A service of this process."""
    one = Status(folder, role, federation)
    one.set(**{"state": "serving", "run": "4f2a", "round": 3, **changes})
    one.close()
    return folder


def change(folder, **changes):
    table = json.loads((folder / NAME).read_text()) | changes
    (folder / NAME).write_text(json.dumps(table))
    return folder


def killed(folder, **changes):
    """A service whose process ended without reporting it."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return change(service(folder, **changes), pid=process.pid)


def ago(seconds):
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def test_services_have_a_row_each_coordinator_first(tmp_path):
    service(tmp_path, role="coordinator", peers={"party-2": "connected", "party-10": "connected"})
    service(tmp_path / "sites" / "a", role="party-10", epsilon=0.4, budget=1)
    service(tmp_path / "sites" / "b", role="party-2", state="done")
    answer = status(tmp_path)
    head, *rows = (line.split() for line in answer.stdout.splitlines())
    assert answer.exit_code == 0, answer.output
    assert " ".join(head) == "role state run round ε of budget peers age alive"
    assert [row[0] for row in rows] == ["coordinator", "party-2", "party-10"]
    assert "2 connected" in answer.stdout
    assert rows[1][-1] == "ended"
    assert rows[2][1:7] == ["serving", "4f2a", "3", "0.40", "of", "1"]
    assert rows[2][-1] == "yes"


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"state": "starting"}, 0, ""),
        ({"state": "waiting", "peers": {"party-2": "connected"}}, 0, ""),
        ({"state": "done", "peers": {"party-2": "absent"}}, 0, ""),
        ({"state": "failed", "message": "The disk is full."}, 5, "party-1 failed: The disk is full."),
        ({"state": "failed"}, 5, "see its log"),
        ({"state": "refused", "message": "the budget is spent"}, 4, "party-1 refused: the budget is spent."),
        ({"peers": {"party-2": "absent", "party-3": "absent"}}, 5, "misses party-2 (for"),
        ({"peers": {"party-2": "refused"}}, 4, "was refused by party-2"),
        ({"peers": {"party-2": "refused", "party-3": "absent"}}, 5, "was refused by party-2"),
    ],
)
def test_the_exit_code_and_the_sentence_fit(tmp_path, changes, code, words):
    answer = status(service(tmp_path, **changes))
    assert answer.exit_code == code
    problems = "\n".join(answer.stdout.splitlines()[2:])
    assert (words in problems) if words else (problems == "")


def test_a_dead_or_silent_service_is_a_failure(tmp_path):
    dead = status(killed(tmp_path / "dead"))
    assert dead.stdout.splitlines()[1].split()[-1] == "no"
    assert "party-1 stopped without reporting it" in dead.stdout
    silent = status(change(service(tmp_path / "silent"), updated=ago(200)))
    assert "3 min 20 s ago, while serving" in silent.stdout
    service(tmp_path / "refused", state="refused")
    assert status(tmp_path / "refused").exit_code == 4
    assert dead.exit_code == silent.exit_code == status(tmp_path).exit_code == 5  # a death outweighs a refusal


def test_json_is_one_object(tmp_path):
    service(tmp_path / "a", epsilon=0.4, budget=1)
    killed(tmp_path / "b", role="party-2")
    answer = status(tmp_path, "--json")
    assert answer.exit_code == 5
    first, second = json.loads(answer.stdout)["services"]
    assert (first["role"], first["alive"], first["problems"], first["epsilon"]) == ("party-1", True, [], 0.4)
    assert (second["role"], second["alive"], len(second["problems"])) == ("party-2", False, 1)
    assert second["folder"] == str(tmp_path / "b")


@pytest.mark.parametrize(
    ("place", "words"), [(["."], "has no service in it"), (["nowhere"], "is not a folder"), ([], "No service has run")]
)
def test_nothing_there_is_bad_usage(tmp_path, monkeypatch, place, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "simulated").mkdir(parents=True)
    answer = status(*place)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_by_default_the_newest_run_and_its_sites(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    service(tmp_path / "site-1", role="party-1")
    assert len(json.loads(status("--json").stdout)["services"]) == 1
    change(service(tmp_path / "runs" / "old", role="coordinator"), updated=ago(500))
    service(tmp_path / "runs" / "new", role="coordinator")
    change(service(tmp_path / "site-other", role="party-9", federation="lungs"), updated=ago(900))
    answer = status("--json")
    assert answer.exit_code == 0
    assert [one["folder"] for one in json.loads(answer.stdout)["services"]] == ["runs/new", "site-1"]


def test_nothing_in_a_file_reaches_the_terminal_as_a_command_and_looking_changes_nothing(tmp_path):
    change(service(tmp_path), message="x\x1b[2Jy\n", state="failed", role="[bold]party\x1b]0;t\x07")
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*")}
    answer = status(tmp_path)
    assert answer.exit_code == 5
    assert "\x1b" not in answer.stdout
    assert "[bold]party" in answer.stdout
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("kind", "code"), [(UsageError, 2), (RuntimeError, 1)])
def test_an_error_does_not_command_the_terminal(kind, code, monkeypatch):
    def fail():
        raise kind("look \x1b]0;owned\x07\x9b2J\u202e\nhere")

    monkeypatch.setattr(import_module("tacit.cli.status"), "_newest", fail)
    done = status()
    assert done.exit_code == code
    assert "look ]0;owned 2J here" in done.stderr
    assert done.stderr.rstrip("\n").isprintable()
