"""Making up ratings in the shapes of MovieLens 1M and 10M, beside one uniform number for every cell of the matrix.

Every user runs a race over all items, so a number a cell is the least that must be drawn.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from benchmarks.common.fresh import call, peak_of_life
from benchmarks.common.result import Result
from benchmarks.common.shapes import ML_1M, ML_10M, Shape
from tacit.rng import derive


def measure() -> list[Result]:
    """Seconds, and gigabytes for the larger one."""
    small, large = (call("synthetic", "make", *shape) for shape in (ML_1M, ML_10M))
    cells = "one uniform number a cell"
    return [
        Result("making up MovieLens 1M's shape", small["seconds"], "s", cells, small["uniform"], most=3.0),
        Result("making up MovieLens 10M's shape", large["seconds"], "s", cells, large["uniform"], most=30.0),
        Result("· peak memory of that process", large["peak"], "GB", "the ratings made", large["ratings"], most=2.0),
    ]


def make(users: int, items: int, ratings: int) -> dict[str, float]:
    """Once, in a process that has done nothing else."""
    began = perf_counter()
    made = Shape(users, items, ratings).made()
    seconds, peak = perf_counter() - began, peak_of_life()
    stream, block = derive(7, "benchmarks", "uniform"), np.empty(1 << 20, dtype=np.float32)
    began = perf_counter()
    for _ in range(0, users * items, len(block)):
        stream.random(out=block, dtype=np.float32)
    uniform = perf_counter() - began
    return {"seconds": seconds, "uniform": uniform, "peak": peak / 1e9, "ratings": made.nbytes / 1e9}
