"""`tacit report`."""

from __future__ import annotations

from pathlib import Path

import typer

from tacit.report.html import write_card, write_report


def report(run: Path) -> None:
    """Write a finished run's report and card anew."""
    typer.echo(f"Report: {write_report(run)}")
    typer.echo(f"Privacy card: {write_card(run)}")
