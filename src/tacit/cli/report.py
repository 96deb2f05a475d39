"""`tacit report`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import typer

from tacit.cli.verified import check_finished
from tacit.report.folder import RunFolder
from tacit.report.html import write_card, write_report
from tacit.report.record import PARTS


def report(run: Path) -> None:
    """Write a finished run's report and card anew; one that does not verify gets none."""
    with RunFolder(run) if (run / "summary.json").exists() else nullcontext():
        if all((run / part).is_file() for part in PARTS):
            check_finished(run)
        typer.echo(f"Report: {write_report(run)}")
        typer.echo(f"Privacy card: {write_card(run)}")
