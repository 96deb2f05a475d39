"""`tacit up FILE --local N`: the same run as in one process, with real processes, and nothing left of them."""

import json
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from services import PATIENCE, Service

from tacit.config import RunFile
from tacit.experiment import run

DATA = """
seed = 7
[data]
source = "demo"
users = 60
items = 24
ratings = 900
[partition]
by = "{by}"
into = 3
"""
PRIVATE = (
    DATA.format(by="user")
    + """
[method]
name = "sgdmf"
factors = 3
rounds = 12
local_steps = 1
sampling = 1.0
[privacy]
epsilon = 4.0
delta = 1e-6
[aggregation]
name = "secagg"
"""
)
SEEDED = PRIVATE + "[engine]\nseeded = true\n"
SGDMF = '[method]\nname = "sgdmf"\nfactors = 3\nrounds = 2\nlocal_steps = 2\n'
#: Runs whose every message is the same in one process and apart.
SAME = {
    "private": SEEDED,
    "horizontal": DATA.format(by="user") + SGDMF,
    "vertical": DATA.format(by="item") + SGDMF,
    "device": DATA.format(by="device") + SGDMF.replace("local_steps = 2\n", ""),
}


def started(folder: Path, name: str, *arguments: str) -> Service:
    return Service([*arguments, "--json"], folder, name).start()


def finished(folder: Path, name: str, *arguments: str, code: int = 0) -> Service:
    service = started(folder, name, *arguments)
    try:
        assert service.wait() == code, service.err
    finally:
        if service.process.poll() is None:
            service.kill()
    return service


def processes(folder: Path) -> list[int]:
    """The numbers of this machine's processes that were started with a path in a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in place.read_bytes():
                found.append(int(place.parent.name))
        except OSError:  # it has ended meanwhile
            continue
    return found


def gone(folder: Path, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while processes(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not processes(folder)


def left(folder: Path) -> set[str]:
    """The names of what lies in the folders of the sites."""
    return {path.name for path in (folder / "sites").rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def in_one_process(tmp_path_factory) -> Callable[[str], dict]:
    """By name, the summary of the same run in one process; each is run once."""

    @cache
    def summary(name: str) -> dict:
        folder = tmp_path_factory.mktemp("one")
        (folder / "run.toml").write_text(SAME[name])
        return run(RunFile.read(folder / "run.toml"), folder / "run")

    return summary


@pytest.mark.parametrize("name", SAME)
def test_a_run_with_processes_is_the_run_of_one_process(in_one_process, tmp_path, name):
    (tmp_path / "run.toml").write_text(SAME[name])
    one = in_one_process(name)
    apart = finished(tmp_path, "apart", "up", "run.toml", "--local", "3", "--out", str(tmp_path / "apart-run")).summary
    assert apart["digest"] == one["digest"]
    for part in ("metrics", "guarantee", "bytes_up", "bytes_down", "rounds", "intervals"):
        assert apart[part] == one[part]
    assert left(tmp_path / "apart-run") <= {"log.jsonl", "status.json", "lock"}
    assert processes(tmp_path / "apart-run") == []
    card = (tmp_path / "apart-run" / "card.md").read_text()
    assert "its own process on this machine" in card
    assert ("SIMULATED" in card) is (name == "private")


def test_another_number_of_sites_than_the_run_file_has_is_refused(tmp_path):
    (tmp_path / "run.toml").write_text(SEEDED)
    refused = finished(tmp_path, "up", "up", "run.toml", "--local", "2", "--out", "run", code=2)
    assert "--local 2 and [partition] into = 3 differ" in refused.err
    assert not (tmp_path / "run").exists()


def test_a_killed_run_leaves_no_processes_and_resumes_to_the_same_end(in_one_process, tmp_path):
    (tmp_path / "run.toml").write_text(SEEDED)
    whole, folder = in_one_process("private"), tmp_path / "run"
    killed_midway(tmp_path, folder)
    done = finished(tmp_path, "again", "up", "run.toml", "--local", "3", "--resume", str(folder)).summary
    assert (done["digest"], done["metrics"]) == (whole["digest"], whole["metrics"])
    assert left(folder) <= {"log.jsonl", "status.json", "lock"}
    whole_ledgers = finished(tmp_path, "verified", "ledger", "verify", str(folder)).summary["ledgers"]
    assert [ledger["party"] for ledger in whole_ledgers] == ["party-1", "party-2", "party-3"]


def test_noise_of_the_operating_system_is_not_called_simulated_and_the_experimenter_is_named(tmp_path):
    """It is killed in the middle too: ledgers make up for noise that cannot be drawn again."""
    (tmp_path / "run.toml").write_text(PRIVATE)
    folder = tmp_path / "run"
    killed_midway(tmp_path, folder)
    done = finished(tmp_path, "again", "up", "run.toml", "--local", "3", "--resume", str(folder)).summary
    assert done["guarantee"]["simulated"] is False
    assert done["guarantee"]["epsilon"] <= 4.0
    assert done["metrics"]["mse"] > 0
    card = (folder / "card.md").read_text()
    assert "SIMULATED" not in card
    assert "the experimenter computed the metrics" in card


def killed_midway(tmp_path: Path, folder: Path) -> None:
    """Start the run and kill its process alone once two rounds are over; the sites must notice by themselves."""
    service = started(tmp_path, "killed", "up", "run.toml", "--local", "3", "--resume", str(folder))
    status, deadline = folder / "sites" / "coordinator" / "status.json", time.monotonic() + PATIENCE
    while not status.exists() or (json.loads(status.read_text()).get("round") or 0) < 2:
        assert service.process.poll() is None, service.err
        assert time.monotonic() < deadline, service.err
        time.sleep(0.01)
    assert len(processes(folder / "sites")) == 3  # one a site: what is looked for below is there now
    service.process.kill()
    service.process.wait()
    assert not (folder / "summary.json").exists()
    assert gone(folder / "sites", 15)
