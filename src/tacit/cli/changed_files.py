"""Run files as commands read them: changed by `--set` and `--seed`, with a note on stderr of what that left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from tacit.config import RunFile
from tacit.prepare.run_file import read


def read_changed(file: Path, changes: Sequence[str], seed: int | None = None) -> RunFile:
    """The run file, changed."""
    run_file, note = read(file, changes, seed)
    if note is not None:
        typer.echo(f"tacit: {note}", err=True)
    return run_file
