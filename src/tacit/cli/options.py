"""What most commands do: read a run file with its options, and print one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from tacit.config import RunFile
from tacit.prepare.run_file import read


def read_run_file(file: Path, changes: Sequence[str] | None, seed: int | None = None) -> RunFile:
    """The run file with `--set` and `--seed` applied; a note on stderr lists keys that this removed."""
    run_file, note = read(file, changes or [], seed)
    if note is not None:
        typer.echo(f"tacit: {note}", err=True)
    return run_file


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))
