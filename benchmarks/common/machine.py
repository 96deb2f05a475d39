"""The machine and the versions that a number belongs to."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("tacit", "numpy", "numba", "llvmlite", "pyarrow")


def described() -> list[str]:
    """The machine, the versions, and how busy the machine is, a line each."""
    load = f"; load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return [
        f"{date.today()} · {os.cpu_count()} cores, {_processor()}, {platform.system()} {platform.machine()}{load}",
        f"Python {platform.python_version()} · " + " · ".join(_versions()),
    ]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or "unknown processor"


def _versions() -> Iterator[str]:
    for package in PACKAGES:
        try:
            yield f"{package} {version(package)}"
        except PackageNotFoundError:
            yield f"{package} missing"
    compiler = c_compiler()
    if compiler is not None:
        told = subprocess.run([compiler, "--version"], capture_output=True, text=True).stdout
        yield next(iter(told.splitlines()), compiler)


def c_compiler() -> str | None:
    """The one that CC names, else cc, else None."""
    return os.environ.get("CC") or shutil.which("cc")
