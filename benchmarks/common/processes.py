"""What processes hold at one moment, to see whether it grows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, sleep

import psutil


@dataclass(frozen=True)
class Standing:
    """One process at one moment: resident memory in MB, open descriptors, threads."""

    memory: float
    files: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> Standing:
        process = psutil.Process(pid)
        return cls(process.memory_info().rss / 1e6, process.num_fds(), process.num_threads())

    def beyond(self, earlier: Standing) -> Standing:
        """How much more than earlier."""
        now, then = asdict(self), asdict(earlier)
        return Standing(**{name: now[name] - then[name] for name in now})


def children() -> list[int]:
    """Whom this process has started and not yet seen end, and whom they have started."""
    return [child.pid for child in psutil.Process(os.getpid()).children(recursive=True)]


def busy(pids: Sequence[int], seconds: float) -> float:
    """CPU seconds that the busiest of some processes uses in a second, looked at for some seconds."""
    processes = [psutil.Process(pid) for pid in pids]
    began, before = perf_counter(), [sum(process.cpu_times()[:2]) for process in processes]
    sleep(seconds)
    after = [sum(process.cpu_times()[:2]) for process in processes]
    return max(then - now for then, now in zip(after, before, strict=True)) / (perf_counter() - began)
