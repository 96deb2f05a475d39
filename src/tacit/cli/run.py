"""`tacit run` and `tacit report`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from tacit.cli.display import Live, live, print_json, print_summary, read_run_file
from tacit.cli.verified_ledgers import check_finished
from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.experiment import run as run_experiment
from tacit.prepare.run_file import method_of
from tacit.report.folder import PARTS, RunFolder
from tacit.report.run_page import write_card, write_report

#: The pages of a run folder, which are written after its summary.
_PAGES = {"card.md": write_card, "report.html": write_report}


def run(
    file: Path,
    changes: list[str] | None,
    seed: int | None,
    out: Path | None,
    resume: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run a run file: data, split, partition, training, evaluation, report."""
    run_file = read_run_file(file, changes, seed)
    folder = run_folder(out, resume)
    summary = finished(resume, run_file) if resume is not None else None
    print_result(summary or execute(run_file, folder, quiet), as_json)


def run_folder(out: Path | None, resume: Path | None) -> Path | None:
    """The folder that --out or --resume names."""
    if out is not None and resume is not None:
        raise UsageError("--out and --resume both name the run folder; give one of them.")
    return resume if resume is not None else out


def print_result(summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(summary)
    else:
        print_summary(summary, Console(highlight=False))


def execute(run_file: RunFile, out: Path | None, quiet: bool) -> dict[str, Any]:
    """Run with a progress line; returns the summary."""
    method, _parameters = method_of(run_file)
    with live(method.name, quiet, run_file) as line:
        if line is not None and run_file.privacy is None and out is not None and (out / "run.toml").exists():
            line.say(
                f'Resuming "{out}" from its last checkpoint, or from the start if there is none; without [privacy] the '
                "result is the same."
            )
        return simulate(run_file, out, line)


def simulate(run_file: RunFile, out: Path | None, line: Live | None) -> dict[str, Any]:
    """Run with every party on this machine; `line` shows the progress."""
    if line is None:
        return run_experiment(run_file, out)
    return run_experiment(run_file, out, line, line.phase, line.floor)


def finished(folder: Path, run_file: RunFile) -> dict[str, Any] | None:
    """The summary of a finished run of this very file; None if there is a run to start or to resume."""
    if not RunFolder(folder).belongs_to(run_file):
        raise UsageError(
            f'"{folder}" belongs to another run file; compare it with "{folder}/run.toml", or name another folder.'
        )
    if not (folder / "summary.json").exists():
        return None
    check_finished(folder)
    missing = [write for name, write in _PAGES.items() if not (folder / name).exists()]
    with RunFolder(folder) if missing else nullcontext():
        for write in missing:
            write(folder)
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


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
