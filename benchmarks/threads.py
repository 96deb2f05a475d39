"""Parties that compute side by side with one thread of BLAS each, beside the same with as many as there are cores.

Each party makes and solves the normal equations of 100 factors over 2,000 ratings, again and again, as alternating
least squares does: products that BLAS hands out to threads, though they take less than a millisecond. One party on its
own is measured too: that is what one thread costs where there is nobody beside it.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.stopwatch import best_of
from benchmarks.message import nothing_stated
from tacit.boundary import Gate, Release
from tacit.boundary.release import Kind
from tacit.data.synthetic import demo
from tacit.engine import InProcess
from tacit.federation import Facts, Federation, Party, Schema, step
from tacit.kernels.blas import one_blas_thread
from tacit.methods import Parameters
from tacit.partition import partition
from tacit.rng import derive

FACTORS, RATINGS, SOLUTIONS = 100, 2_000, 5
REPETITIONS = 3


class Solver(Party):
    """Solves the same small problem many times."""

    @step(Kind.PUBLIC, takes=Schema(), what="the word that it is done")
    def solve(self) -> Release:
        u = derive(7, "benchmarks", "threads").random((RATINGS, FACTORS))
        for _ in range(SOLUTIONS):
            np.linalg.solve(u.T @ u + np.eye(FACTORS), u.T @ u[:, :1])
        return self.gate.public("done")


def measure() -> list[Result]:
    """Seconds, for ten parties and for one."""
    return [one(parties) for parties in (10, 1)]


def one(count: int) -> Result:
    """One step of `count` parties."""
    shares = partition(demo(users=100, items=50), into=count)
    facts = Facts.of(shares, seed=7)
    members = [Solver(share, Parameters(), facts, Gate(share.name, facts.seed, {})) for share in shares]
    engine = InProcess(members)
    federation = Federation(engine, facts, Solver.steps, **nothing_stated(facts))

    def limited() -> None:
        with one_blas_thread():
            federation.ask("solve")

    seconds = best_of({"limited": limited, "free": lambda: federation.ask("solve")}, REPETITIONS)
    engine.close()
    what = f"{SOLUTIONS} small systems each, {count} {'party' if count == 1 else 'parties'}"
    beside = "a BLAS thread per core"
    return Result(what, seconds["limited"], "s", beside, seconds["free"], most_ratio=1.0 if count > 1 else None)
