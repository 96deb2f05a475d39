"""Contestants take turns, and the best of each counts: what else the machine does then disturbs all alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter


def best_of(contestants: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """The shortest wall-clock seconds of each contestant; each runs once beforehand, to compile and to warm up."""
    for run in contestants.values():
        run()
    return best_of_cold(contestants, repetitions)


def best_of_cold(contestants: Mapping[str, Callable[[], object]], repetitions: int) -> dict[str, float]:
    """The same for contestants that need no warming up."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(repetitions):
        for name, run in contestants.items():
            began = perf_counter()
            run()
            best[name] = min(best[name], perf_counter() - began)
    return best
