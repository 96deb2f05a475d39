"""A whole horizontal run in MovieLens 1M's shape, beside its gradient kernel alone.

The limit is what the same number of threads need for the run's gradients and nothing else: no sampling, no update, no
message, no mean.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.shapes import like_ml_1m
from benchmarks.common.stopwatch import best_of
from tacit.federation import Facts
from tacit.kernels.squared_error import factor_gradients
from tacit.methods import find
from tacit.partition import Parties, Share, partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive

SILOS, ROUNDS, LOCAL_STEPS, FACTORS = 10, 100, 10, 20
REPETITIONS = 5


def measure() -> list[Result]:
    """Seconds, for two sampling rates."""
    silos = partition(like_ml_1m(), into=SILOS)
    return [at_sampling(silos, sampling) for sampling in (0.01, 0.1)]


def at_sampling(silos: Parties, sampling: float) -> Result:
    """The run, and its limit."""
    method = find("sgdmf")
    parameters = method.parameters.model_validate(
        {"factors": FACTORS, "rounds": ROUNDS, "local_steps": LOCAL_STEPS, "sampling": sampling}
    )
    gradients = [Gradients(silo, sampling) for silo in silos]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        seconds = best_of(
            {
                "run": lambda: train(PreparedRun.of(method, parameters, Facts.of(silos, 7)), silos),
                "limit": lambda: list(pool.map(Gradients.all, gradients)),
            },
            REPETITIONS,
        )
    what = f"{SILOS} silos, {ROUNDS} × {LOCAL_STEPS} steps, {FACTORS} factors, sampling {sampling:g}"
    return Result(what, seconds["run"], "s", "its gradients alone", seconds["limit"])


class Gradients:
    """All gradients of one silo in one run; who is sampled was drawn beforehand."""

    def __init__(self, silo: Share, sampling: float) -> None:
        stream, self.ratings = derive(7, "benchmarks", silo.name), silo.ratings
        steps = range(ROUNDS * LOCAL_STEPS)
        self.samples = [np.flatnonzero(stream.random(self.ratings.n_users) < sampling) for _ in steps]
        sizes = (self.ratings.n_users, self.ratings.n_items)
        self.factors = [stream.random((size, FACTORS), dtype=np.float32) for size in sizes]

    def all(self) -> None:
        r = self.ratings
        for rows in self.samples:
            factor_gradients(r.indptr, r.items, r.values, r.scale.low, rows, *self.factors)
