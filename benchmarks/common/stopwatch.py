"""Contestants take turns, and the best of each counts: what else the machine does then disturbs all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter


def best_of(
    contestants: Mapping[str, Callable[[], object]], repetitions: int, warm_up: bool = True
) -> dict[str, float]:
    """The shortest wall-clock seconds of each contestant; each runs once beforehand, to compile and to fill caches."""
    if warm_up:
        for run in contestants.values():
            run()
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(repetitions):
        for name, run in contestants.items():
            began = perf_counter()
            run()
            best[name] = min(best[name], perf_counter() - began)
    return best
