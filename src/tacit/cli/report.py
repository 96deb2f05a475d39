"""`tacit report`."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from tacit.report.html import write_card, write_report


def report(run: Path, as_json: bool = False) -> None:
    """Write a finished run's report and card anew."""
    page, card = write_report(run), write_card(run)
    if as_json:
        typer.echo(json.dumps({"run": str(run), "report": str(page), "card": str(card)}, ensure_ascii=False))
        return
    typer.echo(f"Report: {page}")
    typer.echo(f"Privacy card: {card}")
