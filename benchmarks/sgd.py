"""One epoch of stochastic gradient descent, beside a plain C loop over the same ratings in the same order.

The C loop is compiled here and now, twice: a compiler's widest vectors are not its fastest for rows of 20 numbers.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.common.machine import c_compiler
from benchmarks.common.result import Missing, Result
from benchmarks.common.shapes import like_ml_1m
from benchmarks.common.stopwatch import best_of
from tacit.kernels.sgd import sgd_epoch
from tacit.rng import derive

FACTORS, RATE, REGULARIZATION = 20, 0.08, 0.05
REPETITIONS = 25
SOURCE = Path(__file__).with_name("sgd.c")
BUILDS = ("-O3 -march=native -ffast-math", "-O3 -march=native -mno-avx512f -ffast-math")


def measure() -> list[Result]:
    """Milliseconds per million ratings."""
    ratings, stream = like_ml_1m(), derive(7, "benchmarks", "sgd")
    data = (ratings.users, ratings.items, ratings.values, ratings.scale.low, stream.permutation(ratings.n_ratings))
    sizes = (ratings.n_users, ratings.n_items)
    start = [stream.random((size, FACTORS), dtype=np.float32) * np.float32(0.6) for size in sizes]

    def one(epoch: Callable[..., None]) -> tuple[np.ndarray, ...]:
        u, v = (block.copy() for block in start)
        epoch(*data, u, v, RATE, REGULARIZATION, ratings.scale.span)
        return u, v

    with tempfile.TemporaryDirectory() as folder:
        peers = {flags: compiled(flags, Path(folder) / f"{k}.so") for k, flags in enumerate(BUILDS)}
        for flags, peer in peers.items():
            check_same(one(sgd_epoch), one(peer), flags)
        epochs = {"here": sgd_epoch, **peers}
        seconds = best_of({name: partial(one, epoch) for name, epoch in epochs.items()}, REPETITIONS)
    milliseconds = {name: 1e9 * time / ratings.n_ratings for name, time in seconds.items()}
    what = f"one epoch per million ratings, {FACTORS} factors"
    return [
        Result(what, milliseconds["here"], "ms", f"C, {flags}", milliseconds[flags], most_ratio=1.5) for flags in BUILDS
    ]


def compiled(flags: str, library: Path) -> Callable[..., None]:
    """The C loop, as a function with `sgd_epoch`'s parameters."""
    compiler = c_compiler()
    if compiler is None:
        raise Missing("There is no C compiler; install one (on Debian: apt install gcc), or name one in CC.")
    command = [compiler, *flags.split(), "-shared", "-fPIC", str(SOURCE), "-o", str(library), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{' '.join(command)} failed: {done.stderr.strip()[:200]}")
    function = ctypes.CDLL(str(library)).sgd_epoch
    array, real, whole = ctypes.c_void_p, ctypes.c_float, ctypes.c_int64
    function.argtypes = [array, array, array, real, array, whole, array, array, whole, real, real, real]
    function.restype = None

    def epoch(
        users: np.ndarray,
        items: np.ndarray,
        values: np.ndarray,
        shift: float,
        order: np.ndarray,
        u: np.ndarray,
        v: np.ndarray,
        *constants: float,
    ) -> None:
        at = [a.ctypes.data for a in (users, items, values, order, u, v)]
        function(*at[:3], shift, at[3], len(order), *at[4:], u.shape[1], *constants)

    return epoch


def check_same(ours: tuple[np.ndarray, ...], theirs: tuple[np.ndarray, ...], flags: str) -> None:
    """Sums in another order differ in float32's last digits, and no more; otherwise the race would not be one."""
    for mine, other in zip(ours, theirs, strict=True):
        worst = float(np.abs(mine - other).max())
        if not worst < 1e-3:
            raise RuntimeError(f"The C loop ({flags}) ends {worst:g} away from the kernel; they are not the same.")
