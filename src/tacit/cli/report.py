"""`tacit report`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import typer

from tacit.report.folder import RunFolder
from tacit.report.html import write_card, write_report


def report(run: Path) -> None:
    """Write a finished run's report and card anew."""
    with RunFolder(run) if (run / "summary.json").exists() else nullcontext():
        typer.echo(f"Report: {write_report(run)}")
        typer.echo(f"Privacy card: {write_card(run)}")
