"""A fresh process, for what can be measured only once: start-up and peak memory."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common.result import Missing

ROOT = Path(__file__).parents[2]


def call(module: str, function: str, *arguments: object) -> Any:
    """What benchmarks.`module`.`function`(*arguments) returns in a process of its own; all of it goes by JSON."""
    code = (
        "import json, sys; from importlib import import_module; "
        "module, function, arguments = json.loads(sys.argv[1]); "
        "print(json.dumps(getattr(import_module(module), function)(*arguments)))"
    )
    told = json.dumps([f"benchmarks.{module}", function, arguments])
    done = subprocess.run([sys.executable, "-c", code, told], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"benchmarks.{module}.{function} failed in its own process:\n{done.stderr.strip()}")
    return json.loads(done.stdout.splitlines()[-1])


class Memory:
    """This process's resident memory, in bytes; peaks since the last `mark`. Linux only."""

    _STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")

    def __init__(self) -> None:
        if not self._STATUS.exists() or not self._CLEAR.exists():
            raise Missing("Peak memory by phase is read from /proc, which only Linux has.")

    def mark(self) -> None:
        """Forget the peak so far."""
        self._CLEAR.write_text("5")

    @property
    def now(self) -> int:
        return self._field("VmRSS")

    @property
    def peak(self) -> int:
        return self._field("VmHWM")

    def _field(self, name: str) -> int:
        line = next(line for line in self._STATUS.read_text().splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024


def peak_of_life() -> int:
    """The peak of this process since it started, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
