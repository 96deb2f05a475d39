"""`tacit demo`: the same demo data learned centrally, together, privately and alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tacit.cli.run import execute
from tacit.config import RunFile
from tacit.report.comparison import write_comparison
from tacit.report.folder import unused
from tacit.report.words import seconds, size

#: The runs by folder: what each is, its method, and what its run file adds.
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "central": ("central: all ratings in one place", "central", {}),
    "federated": ("federated: four silos, ratings stay at home", "auto", {}),
    "private": (
        "federated and private: ε = 2 per user",
        "auto",
        {"privacy": {"epsilon": 2}, "aggregation": {"name": "secagg"}, "public": {"features": ["genres", "year"]}},
    ),
    "local": ("local only: every silo alone", "local", {}),
}


def demo(out: Path | None, seed: int, quiet: bool) -> None:
    """Train on demo data together, privately, centrally and alone, and compare."""
    console, folder = Console(highlight=False), out or unused(Path("runs"), "demo")
    table = Table("", box=None, pad_edge=False)
    for title in ("test MSE", "HR@10", "bytes up", "time"):
        table.add_column(title, justify="right")
    for name, (words, method, sections) in RUNS.items():
        file = RunFile(seed=seed, partition={"by": "user", "into": 4}, method={"name": method}, **sections)
        summary = execute(file, folder / name, quiet)
        scores = [f"{summary['metrics'][metric]:.3f}" for metric in ("mse", "hr@10")]
        table.add_row(words, *scores, size(summary["bytes_up"]), seconds(summary["seconds"]))
    page = write_comparison([folder / name for name in RUNS], folder / "comparison.html")
    console.print("Demo data: 1,000 users × 500 items, 50,000 ratings; a tenth is held out for testing.\n")
    console.print(table)
    console.print(
        "\nTogether the silos learn what all ratings in one place would teach, and no rating leaves its silo. "
        "All but the private run are [bold red]NON-PRIVATE[/bold red]: what they sent carries no guarantee. "
        "The private run is SIMULATED: its noise comes from the seed.",
        soft_wrap=False,
    )
    console.print(f"\nReport: {page}", soft_wrap=True)
