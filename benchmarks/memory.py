"""Peak memory of a run in MovieLens 10M's shape, as a multiple of its ratings in compressed rows.

One process makes the ratings up and writes them to a Parquet file, each user's in order of time, as MovieLens has them.
Two others, which have imported and compiled everything on a small example, read the file, divide it among ten silos,
train three rounds and evaluate: one as `tacit run` does, the other phase by phase. What they hold at their peak above
what they held before is counted.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.fresh import Memory, call
from benchmarks.common.result import Result
from benchmarks.common.shapes import ML_10M

MOST_RATIO = 3.0
METHOD = {"name": "sgdmf", "rounds": 3}
SILOS = 10


def measure() -> list[Result]:
    """Megabytes."""
    Memory()
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "ratings.parquet")
        ratings = call("memory", "write", file)
        peaks = {"tacit run": call("memory", "whole", file, folder), **call("memory", "phases", file)}
    beside = "compressed rows of MovieLens 10M's shape"
    return [
        Result(f"peak memory of {what}", peak / 1e6, "MB", beside, ratings / 1e6, most_ratio=MOST_RATIO)
        for what, peak in peaks.items()
    ]


def write(file: str) -> int:
    """Made-up ratings as the public files have them; returns their bytes in compressed rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    made = ML_10M.made()
    users, times = made.users, np.asarray(made.times)
    order = np.lexsort((times, users))
    columns = {"user": users + 1, "item": made.items + 1, "rating": made.values, "timestamp": times}
    pq.write_table(pa.table({name: column[order] for name, column in columns.items()}), file, compression="zstd")
    return made.nbytes


def whole(file: str, folder: str) -> int:
    """The peak of a run from file to folder, in bytes."""
    from tacit.config import RunFile
    from tacit.experiment import run

    def one(source: str, out: str) -> None:
        tables = {"data": {"source": source}, "partition": {"into": SILOS}, "method": METHOD}
        run(RunFile.model_validate(tables), Path(folder) / out)

    one("demo", "small")
    memory = Memory()
    memory.mark()
    before = memory.now
    one(file, "large")
    return memory.peak - before


def phases(file: str) -> dict[str, int]:
    """The peak of each phase in bytes, above what the process held before the first."""
    peaks: dict[str, int] = {}
    one_by_one("demo", lambda _name, function, *arguments: function(*arguments))
    memory = Memory()
    before = memory.now

    def watched(name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        memory.mark()
        done = function(*arguments)
        peaks[f"· {name}"] = memory.peak - before
        return done

    one_by_one(file, watched)
    return peaks


def one_by_one(source: str, do: Callable[..., Any]) -> None:
    """A run as `tacit.experiment` has it, without its folder."""
    from tacit.data.load import load
    from tacit.data.split import split
    from tacit.evaluate import evaluate
    from tacit.federation import Facts
    from tacit.methods import chosen
    from tacit.partition import partition
    from tacit.prepare.prepared import PreparedRun
    from tacit.prepare.simulate import train

    method, parameters = chosen(METHOD)
    ratings = do("load", load, source)
    parts = do("split", split, ratings)
    del ratings
    silos = do("partition", partial(partition, into=SILOS), parts.train)
    run = PreparedRun.of(method, parameters, Facts.of(silos, 7))
    trained = do("train", partial(train, test=parts.test), run, silos)
    do("evaluate", partial(evaluate, seen=parts.train), trained.predictor, parts.test)
