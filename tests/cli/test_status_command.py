"""`tacit status`: what a person and a script are told about services, and the exit code that fits."""

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


def tell(*args):
    return CliRunner().invoke(app, ["status", *map(str, args)])


def service(folder, role="party-1", federation="hearts", **changes):
    """A service that lives in this process."""
    one = Status(folder, role, federation)
    one.set(**{"state": "serving", "run": "4f2a", "round": 3, **changes})
    one.close()
    return folder


def change(folder, **changes):
    table = json.loads((folder / NAME).read_text()) | changes
    (folder / NAME).write_text(json.dumps(table))
    return folder


def killed(folder, **changes):
    """A service whose process ended without a word."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return change(service(folder, **changes), pid=process.pid)


def ago(seconds):
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def test_a_site_is_told_in_one_row(tmp_path):
    answer = tell(service(tmp_path, epsilon=0.4, budget=1))
    head, row = answer.stdout.splitlines()
    assert answer.exit_code == 0, answer.output
    assert " ".join(head.split()) == "role state run round ε of budget peers age alive"
    assert row.split()[:7] == ["party-1", "serving", "4f2a", "3", "0.40", "of", "1"]
    assert row.split()[-1] == "yes"


def test_a_folder_of_several_is_told_coordinator_first(tmp_path):
    service(tmp_path, role="coordinator", peers={"party-2": "connected", "party-10": "connected"})
    service(tmp_path / "sites" / "a", role="party-10")
    service(tmp_path / "sites" / "b", role="party-2", state="done")
    answer = tell(tmp_path)
    rows = answer.stdout.splitlines()[1:]
    assert [row.split()[0] for row in rows] == ["coordinator", "party-2", "party-10"]
    assert "2 connected" in rows[0]
    assert rows[1].split()[-1] == "ended"
    assert answer.exit_code == 0


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
    answer = tell(service(tmp_path, **changes))
    assert answer.exit_code == code
    said = "\n".join(answer.stdout.splitlines()[2:])
    assert (words in said) if words else (said == "")


def test_a_dead_service_is_told(tmp_path):
    answer = tell(killed(tmp_path))
    assert answer.exit_code == 5
    assert answer.stdout.splitlines()[1].split()[-1] == "no"
    assert "party-1 stopped without reporting it" in answer.stdout


def test_a_silent_service_is_told_with_its_age(tmp_path):
    answer = tell(change(service(tmp_path), updated=ago(200)))
    assert answer.exit_code == 5
    assert "3 min 20 s ago, while serving" in answer.stdout


def test_a_death_weighs_more_than_a_refusal(tmp_path):
    service(tmp_path / "a", state="refused")
    assert tell(tmp_path).exit_code == 4
    killed(tmp_path / "b", role="party-2")
    assert tell(tmp_path).exit_code == 5


def test_json_is_one_object(tmp_path):
    service(tmp_path / "a", epsilon=0.4, budget=1)
    killed(tmp_path / "b", role="party-2")
    answer = tell(tmp_path, "--json")
    told = json.loads(answer.stdout)
    assert answer.exit_code == 5
    assert list(told) == ["services"]
    first, second = told["services"]
    assert (first["role"], first["alive"], first["problems"], first["epsilon"]) == ("party-1", True, [], 0.4)
    assert (second["role"], second["alive"], len(second["problems"])) == ("party-2", False, 1)
    assert second["folder"] == str(tmp_path / "b")


# -- where it looks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "words"), [("", "has no service in it"), ("nowhere", "is not a folder")])
def test_nothing_there_is_bad_usage(tmp_path, name, words):
    answer = tell(tmp_path / name)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert words in answer.stderr


def test_nothing_in_the_working_folder_is_bad_usage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "simulated").mkdir(parents=True)
    answer = tell()
    assert answer.exit_code == 2
    assert "No service has run" in answer.stderr


def test_a_damaged_file_is_one_sentence(tmp_path):
    (tmp_path / NAME).write_text("{")
    answer = tell(tmp_path)
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.stderr.count("\n") == 1


def test_by_default_the_newest_run_and_its_sites(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    change(service(tmp_path / "runs" / "old", role="coordinator"), updated=ago(500))
    service(tmp_path / "runs" / "new", role="coordinator")
    service(tmp_path / "site-1", role="party-1")
    service(tmp_path / "site-2", role="party-2")
    change(service(tmp_path / "site-other", role="party-9", federation="lungs"), updated=ago(900))
    answer = tell("--json")
    assert answer.exit_code == 0
    told = json.loads(answer.stdout)["services"]
    assert [one["folder"] for one in told] == ["runs/new", "site-1", "site-2"]


def test_by_default_a_site_alone_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    killed(tmp_path / "site-1")
    answer = tell("--json")
    assert answer.exit_code == 5
    assert len(json.loads(answer.stdout)["services"]) == 1


# -- what is shown --------------------------------------------------------------------------------------------


def test_nothing_in_a_file_reaches_the_terminal_as_a_command(tmp_path):
    change(service(tmp_path), message="x\x1b[2Jy\n", state="failed", role="[bold]party\x1b]0;t\x07")
    answer = tell(tmp_path)
    assert answer.exit_code == 5
    assert "\x1b" not in answer.stdout
    assert "[bold]party" in answer.stdout


def test_looking_changes_nothing(tmp_path):
    service(tmp_path)
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*")}
    tell(tmp_path)
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize(("kind", "code"), [(UsageError, 2), (RuntimeError, 1)])
def test_an_error_does_not_command_the_terminal(kind, code, monkeypatch):
    def fail():
        raise kind("look \x1b]0;owned\x07\x9b2J\u202e\nhere")

    monkeypatch.setattr(import_module("tacit.cli.status"), "_newest", fail)
    done = tell()
    assert done.exit_code == code
    assert "look ]0;owned 2J here" in done.stderr
    assert done.stderr.rstrip("\n").isprintable()
