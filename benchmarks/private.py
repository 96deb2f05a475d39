"""Private SGDMF at MovieLens 1M's size: whole runs, and their steps, beside the noise that they cannot do without.

The set itself is used where TACIT_DATA has it, else made-up ratings of its shape; the lines say which. Noise is timed
inside the run, where it is drawn, in CPU seconds of the threads that draw it; the limit is the same noise, block for
block, drawn by as many threads that do nothing else. A local step's share of a run is all that its rounds cost: steps,
gate, ledger on disk, messages, mean, and the experimenter's glance at the test ratings.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

from benchmarks.common.fresh import call
from benchmarks.common.result import Missing, Result
from benchmarks.common.shapes import ML_1M
from tacit.boundary import protection
from tacit.boundary.source import Seeded
from tacit.config import RunFile
from tacit.data.named import known_sets
from tacit.engine.simulate import train
from tacit.experiment import prepare, safeguards
from tacit.kernels.noise import noised_rows
from tacit.report.folder import RunFolder

SILOS, ROUNDS, LOCAL_STEPS, FACTORS = 10, 100, 10, 20
#: Seconds that a whole run may take, by what is divided among the silos.
MOST = {"user": 10.0, "item": 60.0}
#: FederatedScope's CPU seconds per 1,000 local steps, from and to: measured elsewhere, on a machine of this kind.
FEDERATED_SCOPE, FASTER = (5.8, 7.6), 15
REPETITIONS = 2


def measure() -> list[Result]:
    """Seconds, by the clock and of CPU."""
    data = "MovieLens 1M" if "ml-1m" in known_sets() else "made-up ratings of MovieLens 1M's shape"
    results = []
    for by, setting in (("user", "horizontal"), ("item", "vertical")):
        whole, inside = best_run(by), call("private", "inside", by, SILOS)
        threads = f"its noise alone, {os.cpu_count()} threads"
        results += [
            Result(f"{setting}, {SILOS} silos, {data}", whole["wall"], "s", threads, inside["limit"], most=MOST[by]),
            Result("· its training", inside["wall"], "s", threads, inside["limit"]),
            Result("· CPU of the whole run", whole["cpu"], "s", "its noise alone, CPU", inside["limit_cpu"]),
            of_rounds(inside),
            per_thousand(f"one of {SILOS} silos", inside["rounds"] / SILOS),
        ]
    alone = call("private", "inside", "user", 1)
    return [*results, of_rounds(alone), per_thousand("all of it in one silo", alone["rounds"])]


def of_rounds(inside: Mapping[str, float]) -> Result:
    share = inside["noise"] / inside["rounds"]
    return Result(
        f"· CPU of its rounds, {share:.0%} of it noise", inside["rounds"], "s", "noise, timed inside", inside["noise"]
    )


def per_thousand(whose: str, seconds: float) -> Result:
    """CPU of 1,000 local steps beside a figure that was not measured here."""
    low, high = FEDERATED_SCOPE
    seconds *= 1000 / (ROUNDS * LOCAL_STEPS)
    beside = f"FederatedScope: {low}–{high} s, measured elsewhere"
    return Result(f"· CPU per 1,000 local steps, {whose}", seconds, "s", beside, low, most_ratio=round(1 / FASTER, 3))


def run_file(by: str, silos: int, rounds: int = ROUNDS) -> dict[str, Any]:
    """The tables of one private run."""
    made = {"source": "demo", **ML_1M._asdict()}
    return {
        "seed": 7,
        "data": {"source": "ml-1m"} if "ml-1m" in known_sets() else made,
        "partition": {"by": by, "into": silos},
        "method": {"name": "sgdmf", "factors": FACTORS, "rounds": rounds, "local_steps": LOCAL_STEPS},
        "privacy": {"epsilon": 4.0, "delta": 1e-6, "unit": "user"},
    }


def best_run(by: str) -> dict[str, float]:
    """`tacit run` from start to end, in processes of their own; kernels were compiled by a short one before."""
    tacit = Path(sys.executable).with_name("tacit")
    if not tacit.exists():
        raise Missing(f'There is no "tacit" beside {sys.executable}; install the project with: pip install -e .')
    best = {"wall": float("inf"), "cpu": float("inf")}
    with tempfile.TemporaryDirectory() as folder:
        for place, rounds in enumerate([1, *[ROUNDS] * REPETITIONS]):
            file = Path(folder) / f"{rounds}.toml"
            file.write_text(as_toml(run_file(by, SILOS, rounds)))
            command = [str(tacit), "run", str(file), "--out", f"{folder}/{place}", "--quiet"]
            began, cpu = perf_counter(), of_children()
            subprocess.run(command, check=True, capture_output=True)
            if rounds > 1:
                took = {"wall": perf_counter() - began, "cpu": of_children() - cpu}
                best = {name: min(best[name], took[name]) for name in best}
    return best


def as_toml(tables: Mapping[str, Any]) -> str:
    """A run file; its values read the same in TOML as in Python."""
    lines = []
    for name, value in tables.items():
        if isinstance(value, dict):
            lines += [f"[{name}]", *(f"{key} = {told!r}" for key, told in value.items())]
        else:
            lines.append(f"{name} = {value!r}")
    return "\n".join(lines)


def of_children() -> float:
    """CPU seconds of all processes that were waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Timed(Seeded):
    """A seeded source that remembers what was drawn from it, and for how long."""

    seconds = 0.0
    drawn: ClassVar[Counter[tuple[int, int]]] = Counter()
    lock = threading.Lock()

    def noised_rows(self, n: int, rows: np.ndarray, values: np.ndarray, sigma: float) -> np.ndarray:
        began = thread_time()
        out = super().noised_rows(n, rows, values, sigma)
        took = thread_time() - began
        with Timed.lock:
            Timed.seconds += took
            Timed.drawn[out.shape] += 1
        return out


def inside(by: str, silos: int) -> dict[str, float]:
    """One run's training, its rounds, their noise, and the limit; after a short run that compiles everything."""
    with tempfile.TemporaryDirectory() as folder:
        trained(by, silos, 2, Path(folder) / "short")
        Timed.drawn.clear()
        seconds, glances = trained(by, silos, ROUNDS, Path(folder) / "long")
    (first, first_noise), (last, last_noise) = glances[0], glances[-1]
    scale = ROUNDS / (ROUNDS - 1)  # from the end of the first round to the end of the last
    limit, limit_cpu = noise_alone()
    return {
        "wall": seconds,
        "rounds": scale * (last - first),
        "noise": scale * (last_noise - first_noise),
        "limit": limit,
        "limit_cpu": limit_cpu,
    }


def trained(by: str, silos: int, rounds: int, folder: Path) -> tuple[float, list[tuple[float, float]]]:
    """Seconds of training, and after every round the CPU seconds so far, all of them and those of noise."""
    file = RunFile.model_validate(run_file(by, silos, rounds))
    prepared = prepare(file)
    glances: list[tuple[float, float]] = []
    assert prepared.plan is not None
    with patch.object(protection, "Seeded", Timed):
        done = train(
            prepared.method,
            prepared.parameters,
            prepared.parties,
            seed=file.seed,
            safeguards=safeguards(file, prepared.plan, RunFolder.make(folder, "sgdmf", file)),
            test=prepared.test,
            watch=lambda _glance: glances.append((process_time(), Timed.seconds)),
        )
    return done.seconds, glances


def noise_alone() -> tuple[float, float]:
    """Seconds, and CPU seconds, of drawing the same blocks again and nothing else."""
    blocks, threads = [shape for shape, count in Timed.drawn.items() for _ in range(count)], os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        began, cpu = perf_counter(), process_time()
        list(pool.map(draw, (blocks[start :: 4 * threads] for start in range(4 * threads))))
        return perf_counter() - began, process_time() - cpu


def draw(blocks: Sequence[tuple[int, int]]) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    for stream, (n, p) in enumerate(blocks):
        noised_rows(n, nothing, np.zeros((0, p)), 1.0, bytes(32), stream)
