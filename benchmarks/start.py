"""How soon the command line answers, beside the interpreter alone and the interpreter with typer."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks.common.result import Missing, Result
from benchmarks.common.stopwatch import best_of

REPETITIONS = 10


def measure() -> list[Result]:
    """Seconds; the demo is the second of two, so that its kernels are compiled and kept."""
    tacit = Path(sys.executable).with_name("tacit")
    if not tacit.exists():
        raise Missing(f'There is no "tacit" beside {sys.executable}; install the project with: pip install -e .')
    help_, empty, typer = "tacit --help", "python -c pass", "python -c 'import typer'"
    with tempfile.TemporaryDirectory() as folder:
        starts = {
            help_: command(folder, str(tacit), "--help"),
            empty: command(folder, sys.executable, "-c", "pass"),
            typer: command(folder, sys.executable, "-c", "import typer"),
        }
        seconds = best_of(starts, REPETITIONS)
        demo = best_of({"demo": command(folder, str(tacit), "demo", "--quiet")}, 1)["demo"]
    return [
        *(Result(help_, seconds[help_], "s", peer, seconds[peer], most=0.5) for peer in (empty, typer)),
        Result("tacit demo, the second time", demo, "s", help_, seconds[help_], most=20.0),
    ]


def command(folder: str, *words: str) -> Callable[[], object]:
    return lambda: subprocess.run(words, cwd=folder, check=True, capture_output=True)
