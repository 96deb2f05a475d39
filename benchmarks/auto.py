"""Private `auto` at MovieLens 1M's size: `tacit run` from command to report, and what a device is sent in a step.

The set itself is used where TACIT_DATA has it, else made-up ratings of its shape, which have genres and a year, too;
the lines say which. A run is beside `tacit run` of `bias` on the same file: both read, split, plan, evaluate and write
the same things. Seconds are the best of some runs; those of CPU, over all threads, do not count what else the machine
does. What a device is sent is beside what the item factors themselves would take, V of m × k in float32: a device makes
them of public features, a number or two per item, and small matrices.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.common.result import Missing, Result
from benchmarks.common.shapes import ML_1M
from benchmarks.private import as_toml, of_children
from tacit.config import RunFile
from tacit.data.named_sets import known_sets
from tacit.prepare.run_file import check, plan

SILOS, EPSILONS, MOST, REPETITIONS = 10, (1.0, 8.0), 15.0, 2
#: "Tens of kilobytes": bytes that a device may be sent in one step.
MOST_SENT = 100.0


def measure() -> list[Result]:
    """Seconds, and kilobytes."""
    tacit = Path(sys.executable).with_name("tacit")
    if not tacit.exists():
        raise Missing(f'There is no "tacit" beside {sys.executable}; install the project with: pip install -e .')
    data = "MovieLens 1M" if "ml-1m" in known_sets() else "made-up ratings of MovieLens 1M's shape"
    results = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ours, beside = (best_run(tacit, run_file(name), place / name) for name in ("auto", "bias"))
        results += [
            Result(f"{SILOS} silos, {data}, ε = 1", ours["wall"], "s", "`bias`", beside["wall"], most=MOST),
            Result("· CPU of the whole run", ours["cpu"], "s", "`bias`, CPU", beside["cpu"]),
        ]
        for epsilon in EPSILONS:
            file = run_file("auto", epsilon, by="device")
            ran(tacit, file, place / f"devices-{epsilon:g}")
            results.append(of_messages(file, place / f"devices-{epsilon:g}", epsilon))
    return results


def run_file(method: str, epsilon: float = 1.0, by: str = "user") -> dict[str, Any]:
    """The tables of one private run."""
    made = {"source": "demo", **ML_1M._asdict()}
    return {
        "seed": 7,
        "data": {"source": "ml-1m"} if "ml-1m" in known_sets() else made,
        "public": {"features": ["genres", "year"]},
        "partition": {"by": "device"} if by == "device" else {"by": by, "into": SILOS},
        "method": {"name": method},
        "privacy": {"epsilon": epsilon, "delta": 1e-6, "unit": "user"},
        "aggregation": {"name": "secagg"},
    }


def best_run(tacit: Path, file: dict[str, Any], folder: Path) -> dict[str, float]:
    """The shortest of some whole runs, in processes of their own; the first fills the caches of kernels."""
    took = [ran(tacit, file, folder.with_name(f"{folder.name}-{n}")) for n in range(1 + REPETITIONS)]
    return {name: min(one[name] for one in took[1:]) for name in took[0]}


def ran(tacit: Path, file: dict[str, Any], folder: Path) -> dict[str, float]:
    """Seconds of `tacit run`, by the clock and of CPU."""
    path = folder.with_suffix(".toml")
    path.write_text(as_toml(file))
    began, cpu = perf_counter(), of_children()
    subprocess.run([str(tacit), "run", str(path), "--out", str(folder), "--quiet"], check=True, capture_output=True)
    return {"wall": perf_counter() - began, "cpu": of_children() - cpu}


def of_messages(tables: dict[str, Any], folder: Path, epsilon: float) -> Result:
    """The largest message that a device got, beside item factors of as many columns as there are tastes."""
    file = RunFile.model_validate(tables)
    made = plan(file, *check(file))
    rows = pq.read_table(folder / "transcript" / "messages.parquet")
    down = rows.filter(pc.and_(pc.equal(rows["direction"], "down"), pc.not_equal(rows["kind"], "protocol")))
    largest = pc.max(down["bytes"]).as_py() / made.context.facts.users
    factors = made.context.facts.items * made.parameters.dimensions["tastes"] * 4
    what = f"sent to a device in a step, at most; ε = {epsilon:g}"
    return Result(
        what, largest / 1e3, "kB", f"V, {made.parameters.dimensions['tastes']} columns", factors / 1e3, most=MOST_SENT
    )
