"""Coordinator and sites as processes of their own on this machine, under mutual TLS: rounds, start, runs, load.

A round asks parties that only echo, through the whole federation; beside it the same question to the same parties in
one process, and the same bytes between the same processes: pushed over FLARE's cells and back, and over TLS sockets.
Contestants take turns; medians count, with the shortest and longest in brackets. Starts and runs are private ones of
SGDMF, each in a fresh process; deployed and in process they must end at the same digest. Whether anything leaks is seen
from what every process holds after the second round and after the last.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.common.fresh import ROOT, call
from benchmarks.common.result import Missing, Result, quantity
from benchmarks.common.shapes import ML_1M
from benchmarks.private import as_toml
from tacit.config import RunFile
from tacit.data.named_sets import known_sets
from tacit.rng import derive

SITES, PARTIES = 3, 20
#: By size, how many numbers of four bytes are sent, how often, and seconds at most.
ROUNDS = {"40 bytes": (10, 200, 0.2), "20 MB": (5_000_000, 15, 1.5)}
STARTS, RUNS, MOST_START = 3, 3, 10.0
#: FLARE's own tasks need this many seconds a round with three sites: measured elsewhere, on a machine of this kind.
FLARE_TASKS = 0.124
#: By what a process holds, how much more of it after the last round than after the second is no leak. Pools of threads
#: fill up by and by, to a bound of their own.
GROWTH = {"memory": 8.0, "files": 1, "threads": 16}
_SMALL = {"users": 300, "items": 100, "ratings": 5_000}
#: What a site imports before it does anything.
_IMPORTS = "import tacit.deploy.process; from nvflare.fuel.f3.cellnet.core_cell import CoreCell"
#: In order, what must have happened before the first request is sent.
_STEPS = ("coordinator listens", "all have said hello", "the offer is checked", "all have begun", "the first request")


def measure() -> list[Result]:
    """Seconds, megabytes, and counts."""
    if find_spec("nvflare") is None:
        raise Missing("NVIDIA FLARE is not installed; install it with: pip install 'tacit[deploy]'")
    results = []
    for size, (numbers, repetitions, most) in ROUNDS.items():
        results += of_rounds(size, call("deploy", "rounds", SITES, numbers, repetitions), most)
    results += of_starts([call("deploy", "start", SITES) for _ in range(STARTS)], call("deploy", "imports", SITES))
    results += of_commands(call("deploy", "commands", SITES, STARTS))
    for silos, aggregation, large in ((3, "plain", True), (10, "plain", True), (5, "secagg", False)):
        results += of_runs(silos, aggregation, large, call("deploy", "runs", silos, aggregation, large, 100, RUNS))
    results += of_load(call("deploy", "load", PARTIES, 20), PARTIES, 20)
    idle = call("deploy", "waiting", SITES, 20.0)
    return [*results, Result("CPU of a site that waits, a second", 1e3 * idle, "ms", "a core", 1e3)]


def spread(
    what: str, samples: Sequence[float], beside: str, others: Sequence[float], most: float | None = None
) -> Result:
    """Medians of seconds, with the shortest and the longest in words."""
    words = f"{what} ({quantity(min(samples), 's')} … {quantity(max(samples), 's')})"
    return Result(words, median(samples), "s", beside, median(others), most=most)


def loaded(what: str) -> str:
    return f"{what}, load {os.getloadavg()[0]:.1f}"


# -- rounds ------------------------------------------------------------------------------------------------------------


def rounds(sites: int, numbers: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds of every round, by way."""
    from benchmarks.common.far import Far, echoes
    from benchmarks.message import Echo, nothing_stated
    from tacit.boundary.wire import encode
    from tacit.engine import InProcess
    from tacit.federation import Federation

    block = derive(7, "benchmarks", "deploy").random(numbers, dtype=np.float32)
    body = encode({"block": block})
    members, facts = echoes(sites)

    def asked(federation: Federation) -> None:
        for _ in federation.rounds(1):  # the same question in the same round is answered from memory
            federation.ask("echo", block=block)

    with tempfile.TemporaryDirectory() as folder, Far(Path(folder), sites) as far:
        home = Federation(InProcess(members), facts, Echo.steps, **nothing_stated(facts))
        ways: dict[str, Callable[[], None]] = {
            "engine": lambda: asked(far.federation),
            "cells": lambda: far.bare(body),
            "sockets": lambda: far.raw(body),
            "in process": lambda: asked(home),
        }
        return by_turns(ways, repetitions)


def by_turns(ways: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """All seconds of every contestant; each runs once beforehand."""
    took: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(repetitions + 1):
        for name, run in ways.items():
            began = perf_counter()
            run()
            if turn:
                took[name].append(perf_counter() - began)
    return took


def of_rounds(size: str, took: Mapping[str, Sequence[float]], most: float) -> list[Result]:
    here = took["engine"]
    results = [
        spread(
            loaded(f"a round of {size} out and back, {SITES} sites"), here, "raw TLS sockets", took["sockets"], most
        ),
        spread("· the same", here, "bare pushes of FLARE's cells", took["cells"]),
        spread("· the same", here, "in process", took["in process"]),
    ]
    if size == next(iter(ROUNDS)):
        results.append(spread("· the same", here, "FLARE's own tasks, measured elsewhere", [FLARE_TASKS]))
    return results


# -- start -------------------------------------------------------------------------------------------------------------


def start(sites: int) -> dict[str, float]:
    """Seconds from `LocalSites.start_all` until each step before the first request is done."""
    stamps: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        for (owner, name), what in zip(functions_of_a_start(), ("start", *_STEPS), strict=True):
            before = what in ("start", _STEPS[-1])
            patches.enter_context(stamping(owner, name, stamps, what, before))
        apart(tables(sites, 2), Path(folder))
    return {what: stamps[what] - stamps["start"] for what in _STEPS}


def functions_of_a_start() -> list[tuple[Any, str]]:
    """Where a start begins, and in the order of `_STEPS` the functions whose end, or start, they are."""
    from tacit.deploy import local_sites as local
    from tacit.deploy.coordinator_service import Coordinator
    from tacit.engine.coordinator_channel import Flare

    return [
        (local.LocalSites, "start_all"),
        (Coordinator, "open"),
        (local, "_wait_for_sites"),
        (Coordinator, "offered"),
        (Coordinator, "begin"),
        (Flare, "deliver"),
    ]


@contextmanager
def stamping(owner: Any, name: str, stamps: dict[str, float], what: str, before: bool = False) -> Iterator[None]:
    """While it lasts: the moment at which a function was first called, or was first done."""
    real = getattr(owner, name)

    def stamped(*arguments: Any, **options: Any) -> Any:
        if before:
            stamps.setdefault(what, perf_counter())
        done = real(*arguments, **options)
        stamps.setdefault(what, perf_counter())
        return done

    with patch.object(owner, name, stamped):
        yield


def imports(sites: int) -> list[float]:
    """Seconds until as many fresh processes, started at once, have imported what a site needs; several times."""
    took = []
    for _ in range(STARTS + 1):
        began = perf_counter()
        started = [subprocess.Popen([sys.executable, "-c", _IMPORTS], cwd=ROOT) for _ in range(sites)]
        for process in started:
            process.wait()
        took.append(perf_counter() - began)
    return took[1:]


def of_starts(starts: Sequence[Mapping[str, float]], imported: Sequence[float]) -> list[Result]:
    whole = [one[_STEPS[-1]] for one in starts]
    beside = f"{SITES} processes' imports alone"
    results = [spread(loaded(f"from start to first request, {SITES} sites"), whole, beside, imported, MOST_START)]
    for earlier, later in pairwise(("", *_STEPS)):
        part = [one[later] - one.get(earlier, 0.0) for one in starts]
        results.append(spread(f"· until {later}", part, "the whole start", whole))
    return results


def commands(sites: int, repetitions: int) -> dict[str, list[float]]:
    """`tacit up --local` and `tacit run` of the same small run, by the clock."""
    tacit = Path(sys.executable).with_name("tacit")
    with tempfile.TemporaryDirectory() as folder:
        file, count = Path(folder) / "run.toml", iter(range(1_000))
        file.write_text(as_toml(tables(sites, 5)))

        def command(*words: str) -> Callable[[], object]:
            whole = [str(tacit), *words, "--quiet", "--out"]
            return lambda: subprocess.run([*whole, f"{folder}/{next(count)}"], check=True, capture_output=True)

        up, run = command("up", str(file), "--local", str(sites)), command("run", str(file))
        return by_turns({"up": up, "run": run}, repetitions)


def of_commands(took: Mapping[str, Sequence[float]]) -> list[Result]:
    what = f"tacit up --local {SITES}, a small private run from start to end"
    return [spread(loaded(what), took["up"], "tacit run", took["run"])]


# -- runs --------------------------------------------------------------------------------------------------------------


def tables(silos: int, rounds: int, aggregation: str = "plain", large: bool = False) -> dict[str, Any]:
    """The run file of one private run: MovieLens 1M, or of its shape, or small."""
    real = {"source": "ml-1m"} if "ml-1m" in known_sets() else {"source": "demo", **ML_1M._asdict()}
    return {
        "seed": 7,
        "data": real if large else {"source": "demo", **_SMALL},
        "partition": {"by": "user", "into": silos},
        "method": {"name": "sgdmf", "factors": 20, "rounds": rounds, "local_steps": 10},
        "privacy": {"epsilon": 4.0, "delta": 1e-6, "unit": "user"},
        "aggregation": {"name": aggregation},
    }


def apart(run: Mapping[str, Any], folder: Path, **options: Any) -> tuple[float, float, str]:
    """One run with every party in a process of its own: seconds of the conversation, and of all; the digest."""
    return trained({**run, "engine": {"name": "flare", "seeded": True}}, folder, **options)


def trained(run: Mapping[str, Any], folder: Path, watch: Any = None) -> tuple[float, float, str]:
    """The training of one run, as `tacit.experiment` has it, without a glance at test ratings."""
    from tacit.experiment import recorded, train_prepared
    from tacit.prepare.loaded import prepare
    from tacit.report.folder import RunFolder

    file = RunFile.model_validate(run)
    prepared = prepare(file)
    with RunFolder.make(folder / str(len(list(folder.iterdir()))), "sgdmf", file) as place:
        prepared = dataclasses.replace(prepared, run=prepared.run.named(place.run_id))
        records = recorded(prepared, place)
        began = perf_counter()
        done = train_prepared(prepared, place, records, None, watch)
        return done.seconds, perf_counter() - began, done.transcript.digest


def runs(silos: int, aggregation: str, large: bool, rounds: int, repetitions: int) -> dict[str, list[float]]:
    """Seconds of a run's conversation in process and deployed, and of the deployed one with start and stop."""
    run = tables(silos, rounds, aggregation, large)
    took: dict[str, list[float]] = {"in process": [], "deployed": [], "whole": []}
    with tempfile.TemporaryDirectory() as folder:
        trained(tables(silos, 2, aggregation, large), Path(folder))
        for _ in range(repetitions):
            here, _all, digest = trained(run, Path(folder))
            there, whole, other = apart(run, Path(folder))
            if digest != other:
                raise AssertionError("Deployed and in process do not end at the same digest.")
            for name, seconds in zip(took, (here, there, whole), strict=True):
                took[name].append(seconds)
    return took


def of_runs(silos: int, aggregation: str, large: bool, took: Mapping[str, Sequence[float]]) -> list[Result]:
    real = "MovieLens 1M" if "ml-1m" in known_sets() else "MovieLens 1M's shape"
    what = f"100 private rounds, {silos} silos, {aggregation}, {real if large else '300 × 100'}"
    return [
        spread(loaded(what), took["deployed"], "in process", took["in process"]),
        spread("· with start and stop of the sites", took["whole"], "in process", took["in process"]),
    ]


# -- load --------------------------------------------------------------------------------------------------------------


def load(parties: int, rounds: int) -> dict[str, Any]:
    """What the coordinator and every site hold after round 2 and after the last; processes before and afterwards."""
    from dataclasses import asdict

    from benchmarks.common.processes import Standing, children

    seen: dict[int, list[Standing]] = {}

    def look(glance: Any) -> None:
        if glance.round in (2, rounds):
            seen[glance.round] = [Standing.of(pid) for pid in (os.getpid(), *children())]

    before = 1 + len(children())
    with tempfile.TemporaryDirectory() as folder:
        apart(tables(parties, rounds), Path(folder), watch=look)
    held = {str(round): [asdict(one) for one in standings] for round, standings in seen.items()}
    return {"processes": [before, 1 + len(children())], "held": held}


def leaks(found: Mapping[str, Any]) -> list[str]:
    """What grew more than it may, in words; nothing where nothing did."""
    first, last = found["held"].values()
    grown = [
        f"{what} of {'the coordinator' if place == 0 else f'site {place}'}: {then[what]:g} → {now[what]:g}"
        for place, (then, now) in enumerate(zip(first, last, strict=True))
        for what, most in GROWTH.items()
        if now[what] - then[what] > most
    ]
    before, after = found["processes"]
    return grown + ([f"processes: {before} → {after}"] if after > before else [])


def of_load(found: Mapping[str, Any], parties: int, rounds: int) -> list[Result]:
    first, last = found["held"].values()
    grown = leaks(found)
    told = "none" if not grown else f"{grown[-1]}, and {len(grown) - 1} more"
    before, after = found["processes"]
    results = [
        Result(loaded(f"{parties} parties, {rounds} rounds, leak: {told}"), after, "processes", "before", before)
    ]
    for what, unit in (("memory", "MB"), ("files", "descriptors"), ("threads", "threads")):
        worst = max(range(1, len(last)), key=lambda place: last[place][what] - first[place][what])
        for whose, place in (("the coordinator", 0), ("the site that grew most", worst)):
            words = f"· {what} of {whose} after round {rounds}"
            results.append(Result(words, last[place][what], unit, "after round 2", first[place][what]))
    return results


def waiting(sites: int, seconds: float) -> float:
    """CPU seconds a second of a site that has joined and is asked nothing, the busiest of them."""
    from benchmarks.common.processes import busy, children
    from tacit.deploy.local_sites import STARTING, LocalSites

    names = tuple(f"party-{number}" for number in range(1, sites + 1))
    with tempfile.TemporaryDirectory() as folder:
        local = LocalSites(Path(folder), names)
        try:
            local.start_all()
            local.coordinator("waiting").gather(names, STARTING)
            sleep(1)  # until all have written down that they are there
            return busy(children(), seconds)
        finally:
            local.stop()
