"""Options that several commands have, and the two things that most do: read a run file, print one JSON object."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.config import RunFile
from tacit.prepare.run_file import read

Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress line.")]
Changes = Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change one value of the run file.")]
Seed = Annotated[int | None, typer.Option("--seed", min=0, help="Use another seed than the run file's.")]
File = Annotated[Path, typer.Argument(help="The run file.")]
Out = Annotated[Path | None, typer.Option("--out", help="The run folder; default: a new one under ./runs.")]
Resume = Annotated[
    Path | None,
    typer.Option("--resume", metavar="RUN", help="Resume this run folder; start it if missing, print it if finished."),
]
Wait = Annotated[float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the others.")]
Health = Annotated[
    int | None, typer.Option("--health", metavar="PORT", min=0, max=65535, help="Serve /health and /status here.")
]


def read_run_file(file: Path, changes: Sequence[str] | None, seed: int | None = None) -> RunFile:
    """The run file with `--set` and `--seed` applied; a note on stderr lists keys that this removed."""
    run_file, note = read(file, changes or [], seed)
    if note is not None:
        typer.echo(f"tacit: {note}", err=True)
    return run_file


def print_json(value: Any) -> None:
    """One JSON object on stdout."""
    typer.echo(json.dumps(value, ensure_ascii=False, allow_nan=False))
