"""`tacit compare`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from tacit.cli.run import execute
from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.evaluate import Paired
from tacit.report.compare import write_comparison
from tacit.report.paired import compare_users
from tacit.report.record import RunRecord

#: Metrics whose paired comparison is put into a sentence; --json has all.
SAID = ("mse", "ndcg@")


def compare(runs: list[Path], out: Path, as_json: bool, quiet: bool) -> None:
    """Run what is a file, read what is a folder, and put all side by side."""
    if len(runs) < 2:
        raise UsageError("compare takes two or more run files or run folders; name another one.")
    files = {path: RunFile.read(path) for path in runs if not path.is_dir()}
    folders = [Path(execute(files[path], None, quiet)["run"]) if path in files else path for path in runs]
    records = [RunRecord.read(folder) for folder in folders]
    same_test(records)
    first, *others = records
    pairs = {(first.name, other.name): paired(first, other) for other in others}
    page = write_comparison(folders, out)
    if as_json:
        typer.echo(json.dumps(as_table(records, pairs, page), ensure_ascii=False, allow_nan=False))
        return
    console = Console(highlight=False)
    console.print(side_by_side(records))
    console.print()
    for results in pairs.values():
        for metric in [name for name in results if name.startswith(SAID)]:
            console.print(str(results[metric]))
    console.print(f"\nComparison: {page}", soft_wrap=True)


def same_test(records: list[RunRecord]) -> None:
    """Refuse to compare runs that were not judged by the same test set."""
    first, *others = records
    for other in others:
        for key in ("seed", "data", "split"):
            if getattr(first.run_file, key) != getattr(other.run_file, key):
                raise UsageError(
                    f'"{first.folder}" and "{other.folder}" differ in {key}, so they have different test sets; '
                    f"compare runs with the same seed, [data] and [split]."
                )


def paired(a: RunRecord, b: RunRecord) -> dict[str, Paired]:
    """The paired comparison of two runs, for each metric that both have per user."""
    theirs = set(b.scope_metrics("user"))
    results = {name: compare_users(a, b, name) for name in a.scope_metrics("user") if name in theirs}
    return {name: result for name, result in results.items() if result is not None}


def side_by_side(records: list[RunRecord]) -> Table:
    """Metrics in rows, runs in columns."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for record in records:
        table.add_column(record.name, justify="right")
    names = dict.fromkeys(name for record in records for name in record.summary.metrics)
    for name in names:
        values = (record.summary.metrics.get(name) for record in records)
        table.add_row(name, *("" if value is None else f"{value:.4f}" for value in values))
    table.add_row("stamp", *("NON-PRIVATE" if r.guarantee is None else "private" for r in records))
    return table


def as_table(records: list[RunRecord], pairs: dict[tuple[str, str], dict[str, Paired]], page: Path) -> dict[str, Any]:
    """Everything, for a program."""
    return {
        "runs": [record.summary.model_dump() for record in records],
        "paired": [
            {
                "first": first,
                "second": second,
                "metric": metric,
                "difference": result.difference,
                "interval": list(result.interval),
                "p_value": result.p_value,
                "users": result.users,
            }
            for (first, second), results in pairs.items()
            for metric, result in results.items()
        ],
        "report": str(page),
    }
