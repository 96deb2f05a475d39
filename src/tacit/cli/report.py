"""`tacit report`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import typer

from tacit.cli.options import print_json
from tacit.cli.verified_ledgers import check_finished
from tacit.report.folder import RunFolder
from tacit.report.record import PARTS
from tacit.report.run_page import write_card, write_report


def report(run: Path, as_json: bool = False) -> None:
    """Write a run's report and privacy card again, and print where they are; a run that was changed gets none."""
    with RunFolder(run) if (run / "summary.json").exists() else nullcontext():
        if all((run / part).is_file() for part in PARTS):
            check_finished(run)
        page, card = write_report(run), write_card(run)
    if as_json:
        print_json({"run": str(run), "report": str(page), "card": str(card)})
    else:
        typer.echo(f"Report: {page}\nPrivacy card: {card}")
