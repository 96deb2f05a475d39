"""Private SGDMF at MovieLens 1M's size: whole runs, and their steps, beside the noise that they cannot do without.

The set itself is used where TACIT_DATA has it, else made-up ratings of its shape; the lines say which. Noise is timed
inside the run, where it is drawn, in CPU seconds of the threads that draw it; the limit is the same noise, block for
block, drawn by as many threads that do nothing else. Rounds are all that happens in them, the coordinator's work, the
log and the experimenter's glance at the test ratings included. Local steps are what the parties do: the request's
check, the steps, the gate, and the ledger on disk. Rounds are alike, so that the tenth of them that cost least stands
for all: what else the machine does makes CPU seconds longer, too.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, process_time, thread_time
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common.fresh import call
from benchmarks.common.result import Missing, Result
from benchmarks.common.shapes import ML_1M
from tacit.boundary import Release, base_gate
from tacit.boundary.randomness import Seeded
from tacit.config import RunFile
from tacit.data.named_sets import known_sets
from tacit.experiment import recorded
from tacit.federation import Party
from tacit.federation.messages import Request
from tacit.kernels.noise import noised_rows
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train
from tacit.report.folder import RunFolder

SILOS, ROUNDS, LOCAL_STEPS, FACTORS = 10, 100, 10, 20
#: Seconds that a whole run may take, by what is divided among the silos.
MOST = {"user": 10.0, "item": 60.0}
#: How many times the CPU of their own noise a run's rounds may take.
MOST_ROUNDS = {"user": 3.0, "item": None}
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
            of_rounds(inside, MOST_ROUNDS[by]),
            per_thousand(f"one of {SILOS} silos", inside["steps"] / SILOS),
        ]
    alone = call("private", "inside", "user", 1)
    return [*results, per_thousand(f"{data} in one silo", alone["steps"])]


def of_rounds(inside: Mapping[str, float], most: float | None = None) -> Result:
    """The rounds beside their own noise; `most` is how many times as much CPU they may take."""
    rounds, noise = inside["rounds"], inside["noise"]
    what = f"· CPU of its rounds, {noise / rounds:.0%} of it noise"
    return Result(what, rounds, "s", "noise, timed inside", noise, most_ratio=most)


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


class Clock:
    """CPU seconds of all threads, by what they were spent on, and the blocks of noise that were drawn."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.drawn: Counter[tuple[int, int]] = Counter()
        self._lock = threading.Lock()

    def spent(self, what: str, since: float) -> None:
        """This thread has been at it since then, by its own CPU clock."""
        took = thread_time() - since
        with self._lock:
            self.seconds[what] += took

    def started(self) -> ExitStack:
        """While it runs: seeded noise counts as "noise", and a party's answers as the steps that they answer."""
        clock, real = self, Party.answer

        class Timed(Seeded):
            def noised_rows(self, n: int, rows: np.ndarray, values: np.ndarray, sigma: float) -> np.ndarray:
                began = thread_time()
                out = super().noised_rows(n, rows, values, sigma)
                clock.spent("noise", began)
                clock.drawn[out.shape] += 1
                return out

        def answer(party: Party, request: Request, present: np.ndarray | None = None) -> Release:
            began = thread_time()
            release = real(party, request, present)
            clock.spent(request.step, began)
            return release

        patches = ExitStack()
        patches.enter_context(patch.object(base_gate, "Seeded", Timed))
        patches.enter_context(patch.object(Party, "answer", answer))
        return patches


def inside(by: str, silos: int) -> dict[str, float]:
    """One run's training, its rounds and steps, their noise, and the limit; a short run before compiles everything."""
    with tempfile.TemporaryDirectory() as folder:
        trained(by, silos, 2, Path(folder) / "short", Clock())
        clock = Clock()
        seconds, glances = trained(by, silos, ROUNDS, Path(folder) / "long", clock)
    each = np.diff(glances, axis=0)
    least = each[np.argsort(each[:, 0])[: ROUNDS // 10]].mean(axis=0)
    rounds, noise, steps = (ROUNDS * least).tolist()
    limit, limit_cpu = noise_alone(clock.drawn)
    return {
        "wall": seconds,
        "rounds": rounds,
        "noise": noise,
        "steps": steps,
        "limit": limit,
        "limit_cpu": limit_cpu,
    }


def trained(by: str, silos: int, rounds: int, folder: Path, clock: Clock) -> tuple[float, list[tuple[float, ...]]]:
    """Seconds of training, and after every round the CPU seconds so far: all of them, those of noise, and of steps."""
    file = RunFile.model_validate(run_file(by, silos, rounds))
    prepared = prepare(file)
    glances: list[tuple[float, ...]] = []
    with clock.started(), RunFolder.make(folder, "sgdmf", file) as place:
        done = train(
            prepared.run.named(place.run_id),
            prepared.parties,
            records=recorded(prepared, place),
            test=prepared.test,
            watch=lambda _glance: glances.append((process_time(), clock.seconds["noise"], clock.seconds["improve"])),
        )
    return done.seconds, glances


def noise_alone(drawn: Mapping[tuple[int, int], int]) -> tuple[float, float]:
    """Seconds, and CPU seconds, of drawing the same blocks again and nothing else."""
    blocks, threads = [shape for shape, count in drawn.items() for _ in range(count)], os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        began, cpu = perf_counter(), process_time()
        list(pool.map(draw, (blocks[start :: 4 * threads] for start in range(4 * threads))))
        return perf_counter() - began, process_time() - cpu


def draw(blocks: Sequence[tuple[int, int]]) -> None:
    nothing = np.zeros(0, dtype=np.int64)
    for stream, (n, p) in enumerate(blocks):
        noised_rows(n, nothing, np.zeros((0, p)), 1.0, bytes(32), stream)
