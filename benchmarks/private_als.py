"""Three private sweeps of `als` in MovieLens 10M's shape, 32 factors, ten silos: seconds to train, and peak memory.

It is beside the same sweeps without noise, which add the same sums in floats; what privacy adds is scaling and rounding
every user's part, integer noise, and the ledger. Each is a process of its own, whose peak holds the ratings too.
"""

from __future__ import annotations

from time import perf_counter

from benchmarks.common.fresh import call, peak_of_life
from benchmarks.common.result import Result
from benchmarks.common.shapes import ML_10M

SILOS, FACTORS, SWEEPS = 10, 32, 3
MOST_SECONDS, MOST_MEGABYTES = 60.0, 3_000.0


def measure() -> list[Result]:
    """Seconds, and megabytes."""
    private, plain = (call("private_als", "trained", epsilon) for epsilon in (8.0, None))
    what = f"{SWEEPS} private sweeps, {FACTORS} factors, {ML_10M.ratings:,} ratings, {SILOS} silos"
    return [
        Result(what, private["seconds"], "s", "the same without noise", plain["seconds"], most=MOST_SECONDS),
        Result("· the process at its peak", private["peak"], "MB", "without noise", plain["peak"], most=MOST_MEGABYTES),
    ]


def trained(epsilon: float | None) -> dict[str, float]:
    """One training, kernels compiled by a small one before."""
    import tacit
    from tacit.data.synthetic import demo
    from tacit.partition import partition

    def als() -> tacit.ALS:
        how = {} if epsilon is None else {"privacy": tacit.DP(epsilon, 1e-6), "aggregation": "ideal"}
        return tacit.ALS(factors=FACTORS, sweeps=SWEEPS, seed=7, **how)

    als().fit(partition(demo(users=300, items=50, ratings=9_000), into=3))
    silos = partition(ML_10M.made(), into=SILOS)
    began = perf_counter()
    als().fit(silos)
    return {"seconds": perf_counter() - began, "peak": peak_of_life() / 1e6}
