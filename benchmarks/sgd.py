"""One epoch of stochastic gradient descent, beside a plain C loop over the same ratings in the same order.

The C loop is compiled here and now. A compiler's widest vectors are not always its fastest for rows of 20 numbers, so
there are two builds, and the kernel stands beside each.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common.result import Missing, Result
from benchmarks.common.shapes import like_ml_1m
from benchmarks.common.stopwatch import best_of
from tacit.kernels.sgd import sgd_epoch
from tacit.rng import derive

FACTORS, RATE, REGULARIZATION = 20, 0.08, 0.05
REPETITIONS = 15
SOURCE = Path(__file__).with_name("sgd.c")
BUILDS = {
    "native": ("-O3", "-march=native", "-ffast-math"),
    "generic": ("-O3", "-ffast-math"),
    "AVX2": ("-O3", "-march=x86-64-v3", "-ffast-math"),
}


def measure() -> list[Result]:
    """Milliseconds per million ratings."""
    ratings, stream = like_ml_1m(), derive(7, "benchmarks", "sgd")
    order = stream.permutation(ratings.n_ratings)
    start = [stream.random((n, FACTORS), dtype=np.float32) * np.float32(0.6) for n in (ratings.n_users, ratings.n_items)]
    u, v = (np.empty_like(block) for block in start)
    data = (ratings.users, ratings.items, ratings.values, ratings.scale.low, order)

    def from_the_start(epoch: Callable[..., None]) -> tuple[np.ndarray, np.ndarray]:
        u[:], v[:] = start
        epoch(*data, u, v, RATE, REGULARIZATION, ratings.scale.span)
        return u, v

    with tempfile.TemporaryDirectory() as folder:
        peers = {name: compiled(Path(folder), name, flags) for name, flags in BUILDS.items()}
        epochs = {"here": sgd_epoch} | {name: peer for name, peer in peers.items() if peer is not None}
        for name, epoch in epochs.items():
            check_equal(from_the_start(sgd_epoch), from_the_start(epoch), name)
        seconds = best_of({name: partial(from_the_start, epoch) for name, epoch in epochs.items()}, REPETITIONS)
    here, *others = (time * 1e9 / ratings.n_ratings for time in seconds.values())
    return [
        Result(
            f"one epoch per million ratings, {FACTORS} factors",
            here,
            "ms",
            f"C, {' '.join(BUILDS[name])}",
            there,
            most_ratio=1.5,
        )
        for name, there in zip(list(epochs)[1:], others, strict=True)
    ]


def compiled(folder: Path, name: str, flags: tuple[str, ...]) -> Callable[..., None] | None:
    """The C loop as a function with `sgd_epoch`'s parameters; None where this machine has no such instructions."""
    compiler = os.environ.get("CC") or shutil.which("cc")
    if compiler is None:
        raise Missing("There is no C compiler; install one (on Debian: apt install gcc), or name one in CC.")
    library = folder / f"{name}.so"
    command = [compiler, *flags, "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-lm"]
    if subprocess.run(command, capture_output=True).returncode:
        return None
    function = ctypes.CDLL(str(library)).sgd_epoch
    array, real, whole = ctypes.c_void_p, ctypes.c_float, ctypes.c_int64
    function.argtypes = [array, array, array, real, array, whole, array, array, whole, real, real, real]
    function.restype = None

    def epoch(users, items, values, shift, order, u, v, rate, regularization, span):  # type: ignore[no-untyped-def]
        at = [a.ctypes.data for a in (users, items, values, order, u, v)]
        function(*at[:3], shift, at[3], len(order), *at[4:], u.shape[1], rate, regularization, span)

    return epoch


def check_equal(ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray], name: str) -> None:
    """Both ran the same algorithm: float32 sums in another order drift apart a little, and no more."""
    ...
