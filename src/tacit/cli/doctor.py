"""`tacit doctor`: what this machine has, and what to do about what it lacks."""

from __future__ import annotations

import importlib.util
import os
import platform
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape

from tacit.cli.display import print_json

CORE = ("numpy", "scipy", "numba", "pyarrow", "duckdb", "pydantic", "typer", "rich")
DRIVERS = {"adbc_driver_sqlite": "SQLite", "adbc_driver_postgresql": "PostgreSQL"}


def doctor(as_json: bool) -> None:
    """Check this machine: versions, drivers, data, kernels."""
    checks: list[tuple[str, Callable[[], str], bool]] = [
        ("python", _python, True),
        ("packages", _packages, True),
        ("kernels", _kernels, True),
        ("kernel cache", _cache, False),
        ("working folder", _writable, True),
        ("databases", _drivers, False),
        ("services", _services, False),
        ("data", _data, False),
    ]
    results, broken = [], 0
    for name, check, essential in checks:
        try:
            state, words = "ok", check()
        except Exception as error:
            state, words = ("broken" if essential else "missing"), str(error) or type(error).__name__
            broken += essential
        results.append({"check": name, "state": state, "words": words})
    if as_json:
        print_json({"checks": results, "ok": not broken})
    else:
        console = Console(highlight=False)
        colours = {"ok": "green", "missing": "yellow", "broken": "red"}
        for result in results:
            state = f"[{colours[result['state']]}]{result['state']:8}[/]"
            console.print(f"{state} {result['check']:15} {escape(result['words'])}", soft_wrap=True)
    if broken:
        raise typer.Exit(1)


def _python() -> str:
    return f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores"


def _packages() -> str:
    missing = [name for name in CORE if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"{', '.join(missing)} not installed; run: pip install tacit")
    return "tacit " + ", ".join([version("tacit"), *(f"{name} {version(name)}" for name in CORE)])


def _kernels() -> str:
    import numpy as np

    from tacit.kernels.embed import descend_and_embed, descend_and_embed_numpy
    from tacit.rng import derive

    stream = derive(0, "doctor")
    x, gradient = (stream.standard_normal((50, 20)).astype(np.float32) for _ in range(2))
    twin = descend_and_embed_numpy(x, gradient, 0.1, 4.0)
    if not np.allclose(descend_and_embed(x.copy(), gradient, 0.1, 4.0), twin, atol=1e-5):
        raise RuntimeError("a compiled kernel differs from its NumPy twin; reinstall numba")
    return "compiled kernels agree with their NumPy twins"


def _cache() -> str:
    from tacit.kernels import embed

    place = Path(embed.__file__).parent / "__pycache__"
    if not os.access(place.parent, os.W_OK):
        place = Path(os.environ.get("NUMBA_CACHE_DIR", Path.home() / ".cache"))
    if not os.access(place if place.exists() else place.parent, os.W_OK):
        raise RuntimeError(
            "compiled kernels cannot be cached, so every start compiles them; set NUMBA_CACHE_DIR to a writable folder"
        )
    return "compiled kernels are cached between runs"


def _writable() -> str:
    try:
        with tempfile.TemporaryDirectory(dir="."):
            return "runs can be written here"
    except OSError as error:
        raise RuntimeError(
            f"nothing can be written here ({error.strerror}); change to another folder or use --out"
        ) from None


def _drivers() -> str:
    missing = [words for name, words in DRIVERS.items() if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f'no driver for {" and ".join(missing)}; run: pip install "tacit[sql]"')
    try:
        manager = version("adbc-driver-manager")
    except PackageNotFoundError:
        raise RuntimeError('no ADBC driver manager; run: pip install "tacit[sql]"') from None
    return f"DuckDB, {', '.join(DRIVERS.values())} (ADBC {manager})"


def _services() -> str:
    try:
        return f"up and join can be used (NVIDIA FLARE {version('nvflare')})"
    except PackageNotFoundError:
        raise RuntimeError('up and join need one more package; run: pip install "tacit[deploy]"') from None


def _data() -> str:
    folder = os.environ.get("TACIT_DATA")
    if not folder:
        raise RuntimeError("TACIT_DATA is not set; point it at a folder of data sets to use them by name")
    if not Path(folder).is_dir():
        raise RuntimeError(f'TACIT_DATA names "{folder}", which is not a folder')
    names = sorted(p.name for p in Path(folder).iterdir() if p.is_dir())
    return f"TACIT_DATA has {', '.join(names) or 'no sets'}"
