"""`tacit compare`: runs on their common users, with intervals and paired tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tacit.cli.display import print_json
from tacit.cli.frontier import frontier
from tacit.cli.run import execute
from tacit.cli.verified_ledgers import check_finished
from tacit.config import RunFile
from tacit.errors import UsageError
from tacit.evaluate import Paired
from tacit.report.comparison import compare_users, labels, mean_over, write_comparison
from tacit.report.floor_verdict import verdicts
from tacit.report.folder import RunRecord
from tacit.report.guarantee_words import brief

#: Metrics whose paired comparison is printed as a sentence; --json has all.
PRINTED = ("mse", "ndcg@")


def compare(runs: list[Path] | None, out: Path, as_json: bool, quiet: bool, sweep: Path | None = None) -> None:
    """Compare runs on their common users, with intervals and paired tests; or the methods of a sweep."""
    if sweep is not None:
        if runs:
            raise UsageError("compare takes runs, or --frontier with a sweep; leave one of them out.")
        frontier(sweep, out, as_json, quiet)
        return
    if runs is None or len(runs) < 2:
        raise UsageError("compare takes two or more run files or run folders; name another one.")
    for path in runs:
        if not path.exists():
            raise UsageError(f'There is no run folder or run file "{path}"; make one with: tacit run FILE --out {path}')
    files = {path: RunFile.read(path) for path in runs if not path.is_dir()}
    folders = [Path(execute(files[path], None, quiet)["run"]) if path in files else path for path in runs]
    records = [RunRecord.read(folder) for folder in folders]
    for folder in folders:
        check_finished(folder)
    same_test(records)
    names = labels(records)
    pairs = [paired(records, names, place) for place in range(1, len(records))]
    page = write_comparison(folders, out)
    if as_json:
        print_json(as_table(records, names, pairs, page))
        return
    console = Console(highlight=False, markup=False)
    console.print(side_by_side(records, names))
    console.print(f"\nUser by user, {_quoted(names[0])} against each other run; means over users, each counting once:")
    for results in pairs:
        for metric in [name for name in results if name.startswith(PRINTED)]:
            console.print(str(results[metric]))
    for name, words in verdicts(records, names):
        console.print(f"{name}: {words}")
    console.print(f"\nComparison: {page}", soft_wrap=True)


def same_test(records: list[RunRecord]) -> None:
    """Refuse to compare runs that have different test sets."""
    first, *others = records
    for other in others:
        for key in ("seed", "data", "split"):
            if getattr(first.run_file, key) != getattr(other.run_file, key):
                raise UsageError(
                    f'"{first.folder}" and "{other.folder}" differ in {key}, so they have different test sets; '
                    f"compare runs with the same seed, [data] and [split]."
                )


def paired(records: list[RunRecord], names: list[str], place: int) -> dict[str, Paired]:
    """The first run compared with the one at `place`, for each metric that both have per user."""
    a, b = records[0], records[place]
    called = (_quoted(names[0]), _quoted(names[place]))
    theirs = set(b.scope_metrics("user"))
    results = {name: compare_users(a, b, name, names=called) for name in a.scope_metrics("user") if name in theirs}
    return {name: result for name, result in results.items() if result is not None}


def _quoted(name: str) -> str:
    return f"“{name}”" if "," in name else name


def side_by_side(records: list[RunRecord], names: list[str]) -> Table:
    """Metrics in rows, runs in columns."""
    table = Table("", "mean per", box=None, pad_edge=False)
    for name in names:
        table.add_column(name, justify="right")
    for name in dict.fromkeys(name for record in records for name in record.summary.metrics):
        values = (record.summary.metrics.get(name) for record in records)
        cells = ("–" if value is None else f"{value:.4f}" for value in values)
        table.add_row(name, mean_over(name).removeprefix("mean per "), *cells)
    table.add_row("guarantee", "", *(brief(record.guarantee, record.about.hidden) for record in records))
    return table


def as_table(records: list[RunRecord], names: list[str], pairs: list[dict[str, Paired]], page: Path) -> dict[str, Any]:
    """The comparison as one JSON object."""
    return {
        "runs": [record.summary.model_dump() for record in records],
        "labels": names,
        "paired": [
            {
                "first": records[0].name,
                "second": other.name,
                "metric": metric,
                "difference": result.difference,
                "interval": list(result.interval),
                "p_value": result.p_value,
                "users": result.users,
            }
            for other, results in zip(records[1:], pairs, strict=True)
            for metric, result in results.items()
        ],
        "report": str(page),
    }
