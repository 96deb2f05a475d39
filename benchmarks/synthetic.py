"""Making up ratings in the shapes of MovieLens 1M and 10M, beside drawing as many plain random numbers."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from benchmarks.common.fresh import call, peak_of_life
from benchmarks.common.result import Result
from benchmarks.common.shapes import ML_1M, ML_10M, Shape
from tacit.rng import derive

SHAPES = {"MovieLens 1M": (ML_1M, 3.0), "MovieLens 10M": (ML_10M, 30.0)}
MOST_GIGABYTES = 2.0


def measure() -> list[Result]:
    """Seconds, and for the larger shape gigabytes."""
    results = []
    for name, (shape, most) in SHAPES.items():
        made = call("synthetic", "make", *shape)
        cells = f"{shape.users * shape.items / 1e6:,.0f} million uniform numbers, one a cell"
        results.append(Result(f"making up {name}'s shape", made["seconds"], "s", cells, made["uniform"], most=most))
    ratings = f"its {made['bytes'] / 1e9:.2g} GB of ratings"
    peak = Result(f"peak memory, {name}'s shape", made["peak"] / 1e9, "GB", ratings, made["bytes"] / 1e9)
    return [*results, replace(peak, most=MOST_GIGABYTES)]


def make(users: int, items: int, ratings: int) -> dict[str, float]:
    """Once, in a process that has done nothing else."""
    shape = Shape(users, items, ratings)
    began = perf_counter()
    made = shape.made()
    seconds, peak = perf_counter() - began, peak_of_life()
    stream, block = derive(7, "benchmarks", "uniform"), np.empty(1 << 20, dtype=np.float32)
    began = perf_counter()
    for _ in range(0, users * items, len(block)):
        stream.random(out=block, dtype=np.float32)
    return {"seconds": seconds, "peak": peak, "bytes": made.nbytes, "uniform": perf_counter() - began}
