"""`tacit run`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from tacit.cli.changed_files import read_changed
from tacit.cli.display import live, print_summary
from tacit.cli.verified_ledgers import check_finished
from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.experiment import run as run_experiment
from tacit.prepare.run_file import check, setting_in_data
from tacit.report.folder import RunFolder
from tacit.report.run_page import write_card, write_report

#: What a run writes last, after its summary.
_PAGES = {"card.md": write_card, "report.html": write_report}


def run(
    file: Path,
    changes: list[str],
    seed: int | None,
    out: Path | None,
    resume: Path | None,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run a run file, or print what a finished run left."""
    run_file = read_changed(file, changes, seed)
    if out is not None and resume is not None:
        raise UsageError("--out and --resume both name the run folder; give one of them.")
    summary = finished(resume, run_file) if resume is not None else None
    if summary is None:
        summary = execute(run_file, resume if resume is not None else out, quiet)
    if as_json:
        typer.echo(json.dumps(summary, ensure_ascii=False, allow_nan=False))
    else:
        print_summary(summary, Console(highlight=False))


def execute(run_file: RunFile, out: Path | None, quiet: bool) -> dict[str, Any]:
    """Run with a live line."""
    method, _parameters = check(run_file, setting=setting_in_data(run_file))
    budget = None if run_file.privacy is None else run_file.privacy.budget or run_file.privacy.epsilon
    with live(method.name, quiet, budget) as watch:
        if watch is not None and run_file.privacy is None and out is not None and (out / "run.toml").exists():
            watch.say(
                f'Going on with "{out}" from the state that it saved last, or from the start if it saved none; '
                "without [privacy] the result is the same."
            )
        phase, beside = (None, None) if watch is None else (watch.phase, watch.beside)
        return run_experiment(run_file, out, watch, phase, beside)


def finished(folder: Path, run_file: RunFile) -> dict[str, Any] | None:
    """The summary of a finished run of this very file; None for one to start, or to start over.

    A run without privacy is a function of its file: one that was cut short goes on from what it saved, or from the
    start, with the same result.
    """
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
