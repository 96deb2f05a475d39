"""Kill a private run at random moments, resume it until it is done, and look at what was left."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from tacit.boundary.ledger import Ledger

TACIT = Path(sys.executable).with_name("tacit")


def finish(folder: Path, run_toml: Path, name: str) -> dict:
    """Run to the end, or resume, in a process of its own; returns the summary."""
    done = subprocess.run(
        [TACIT, "run", run_toml, "--quiet", "--json", "--resume", name],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def kill_at(folder: Path, run_toml: Path, name: str, seconds: float) -> bool:
    """Start or resume, and kill -9 after some seconds; False if it was done before."""
    process = subprocess.Popen(
        [TACIT, "run", run_toml, "--quiet", "--json", "--resume", name],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True


def kill_many(folder: Path, run_toml: Path, times: int, seed: int) -> tuple[dict, list[dict], int]:
    """An uninterrupted run, and runs that are killed `times` times in all and resumed; how many kills hit."""
    began = time.monotonic()
    whole = finish(folder, run_toml, "whole")
    length = time.monotonic() - began
    moments, hits, resumed, run = random.Random(seed), 0, [], 0
    while hits < times:
        run += 1
        for _ in range(3):
            hits += kill_at(folder, run_toml, f"cut-{run}", moments.uniform(0.25 * length, 1.1 * length))
        resumed.append(finish(folder, run_toml, f"cut-{run}"))
        assert run < 10 * times
    return whole, resumed, hits


def check_resumed(folder: Path, whole: dict, resumed: list[dict]) -> None:
    """Digest, guarantee and metrics as uninterrupted; ledgers never below what left; no torn file."""
    for summary in resumed:
        assert summary["digest"] == whole["digest"]
        assert summary["guarantee"] == whole["guarantee"]
        assert summary["metrics"] == whole["metrics"]
        run = folder / summary["run"]
        assert not list(run.rglob("*.part"))
        check_ledgers(run)


def check_ledgers(run: Path) -> None:
    """Every message that left has its row, once; the chain holds, and ends at the head that travelled last."""
    sent: dict[str, list[dict]] = {}
    for message in pq.read_table(run / "transcript" / "messages.parquet").to_pylist():
        if message["direction"] == "up" and message["status"] == "ok" and message["party"] != "sum":
            sent.setdefault(message["party"], []).append(message)
    assert sent
    for party, messages in sent.items():
        ledger = Ledger(run / "ledger" / f"{party}.sqlite", party)
        rows = ledger.rows()
        assert ledger.verify(messages[-1]["head"]) == len(rows)
        assert [(row.round, row.step) for row in rows] == [(m["round"], m["step"]) for m in messages]
        assert [row.head for row in rows] == [m["head"] for m in messages]
        ledger.close()
