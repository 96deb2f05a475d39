"""Kill a private run at random moments or at a write, resume it until it is done, and look at what was left.

Run as a program it kills one run again and again, in children of one process: `kills.py RUN.toml WRITES MOMENTS SEED`.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pyarrow.parquet as pq

from tacit.boundary import sealed_database
from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.experiment import run

TACIT = Path(sys.executable).with_name("tacit")
#: Sums of which nobody sees a single contribution: keys and shares are written down between the exchanges.
MASKED = """
[data]
source = "demo"
users = 40
items = 15
ratings = 400
[partition]
into = 4
[method]
name = "sgdmf"
factors = 3
rounds = 2
local_steps = 1
sampling = 1.0
[privacy]
epsilon = 4.0
delta = 1e-6
[aggregation]
name = "secagg"
"""


#: Where something becomes durable: a ledger's transaction ends, a call is logged. A kill comes before it or after it.
WRITES = ((sealed_database.Transaction, "__exit__"), (CallLog, "keep"))


def kill_children(folder: Path, run_toml: Path, writes: int, moments: int, seed: int) -> tuple[dict, list[dict], int]:
    """An uninterrupted run, and runs that were killed and resumed; how many kills hit.

    Kills come at `writes` points around all writes, evenly spread, and at random `moments`.
    """
    arguments = [sys.executable, __file__, run_toml, *map(str, (writes, moments, seed))]
    done = subprocess.run(arguments, cwd=folder, capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stderr
    hits = json.loads(done.stdout)
    names = ("whole", "again", *hits)
    whole, *others = (json.loads((folder / name / "summary.json").read_text()) for name in names)
    return whole, others, len(hits)


def _child(run_toml: Path, name: str, point: int | None = None, counted: Path | None = None) -> int:
    """Start or resume the run in a child, which kills itself at a point around a write; returns its number."""
    if (child := os.fork()) != 0:
        return child
    passed = iter(range(1_000_000))
    number = 0

    def reach() -> None:
        nonlocal number
        number = next(passed)
        if number == point:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(real):
        def write(*args, **kwargs):
            reach()
            result = real(*args, **kwargs)
            reach()
            return result

        return write

    for owner, method in WRITES:
        setattr(owner, method, around(getattr(owner, method)))
    try:
        run(RunFile.read(run_toml), Path(name))
        if counted is not None:
            counted.write_text(str(number + 1))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _ended(child: int) -> bool:
    """Waits for a child; True if it was killed, False if it was done, and an error if it failed."""
    _pid, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert killed or os.waitstatus_to_exitcode(status) == 0, "a child failed"
    return killed


def _kill_at_writes_and_moments(run_toml: Path, writes: int, moments: int, seed: int) -> list[str]:
    """Every killed run is looked at before it goes on, and then resumed; returns their names."""
    run(RunFile.read(run_toml), Path("whole"))  # here, so that children find everything imported and compiled
    began, counted = time.monotonic(), Path("writes")
    assert not _ended(_child(run_toml, "again", counted=counted))
    length, points = time.monotonic() - began, int(counted.read_text())
    hit, when = [], random.Random(seed)
    for point in sorted({points * k // writes for k in range(writes)}):
        hit.append(f"write-{point}")
        assert _ended(_child(run_toml, hit[-1], point))
    for name in (f"moment-{number}" for number in range(100 * moments)):
        if moments == 0:
            break
        child = _child(run_toml, name)
        time.sleep(when.uniform(0, length))
        os.kill(child, signal.SIGKILL)  # a child that is done waits to be collected
        if _ended(child):
            hit.append(name)
            moments -= 1
    for name in hit:
        check_nothing_forgotten(Path(name))
        if not (Path(name) / "summary.json").exists():  # what is written last
            assert not _ended(_child(run_toml, name))
    return hit


def check_nothing_forgotten(run: Path) -> None:
    """After a kill, whatever the coordinator has written down as received is in the senders' ledgers."""
    if not (run / "transcript" / "log.sqlite").exists():
        return
    database = sealed_database.open_read_only(run / "transcript" / "log.sqlite")
    tables = database.execute("select name from sqlite_master where name = 'calls'").fetchall()
    logged = database.execute("select heads from calls").fetchall() if tables else []
    database.close()
    received = [(party, head) for (heads,) in logged for party, head in json.loads(heads).items()]
    for path in ledgers_in(run):
        ledger = Ledger(path, path.stem)
        mine = [head for party, head in received if party == path.stem]
        ledger.verify(mine[-1] if mine else None)
        assert set(mine) <= {row.head for row in ledger.rows()}
        ledger.close()


def check_resumed(folder: Path, whole: dict, resumed: list[dict]) -> None:
    """Digest, guarantee and metrics as uninterrupted; ledgers never below what left; no torn file."""
    for summary in resumed:
        assert summary["digest"] == whole["digest"]
        assert summary["guarantee"] == whole["guarantee"]
        assert summary["metrics"] == whole["metrics"]
        run = folder / summary["run"]
        assert not list(run.rglob("*.part"))
        check_ledgers(run)
        assert spent(run) == spent(folder / whole["run"])


def spent(run: Path) -> dict[str, list[str]]:
    """What every party's ledger was charged, in order."""
    charged = {}
    for path in ledgers_in(run):
        ledger = Ledger.open(path)
        charged[ledger.party] = [row.event for row in ledger.rows()]
        ledger.close()
    return charged


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


if __name__ == "__main__":
    at, *numbers = sys.argv[1:]
    print(json.dumps(_kill_at_writes_and_moments(Path(at), *map(int, numbers))))  # noqa: T201
