"""`tacit demo`: the same demo data learned centrally, together, privately and alone."""

from __future__ import annotations

from collections.abc import Mapping
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
    table, errors = Table("", box=None, pad_edge=False), {}
    for title in ("test MSE", "HR@10", "bytes up", "time"):
        table.add_column(title, justify="right")
    for name, (words, method, sections) in RUNS.items():
        file = RunFile(seed=seed, partition={"by": "user", "into": 4}, method={"name": method}, **sections)
        summary = execute(file, folder / name, quiet)
        scores = [f"{summary['metrics'][metric]:.3f}" for metric in ("mse", "hr@10")]
        errors[name] = summary["metrics"]["mse"]
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
    if remark := price_of_privacy(errors):
        console.print(remark)
    console.print(f"\nReport: {page}", soft_wrap=True)


def price_of_privacy(errors: Mapping[str, float]) -> str:
    """A sentence where noise costs more than the silos gain from each other; empty where it does not."""
    cost, gain = errors["private"] - errors["federated"], errors["local"] - errors["federated"]
    if cost <= gain:
        return ""
    return (
        f"Privacy costs more here than cooperation gains: test MSE {errors['private']:.3f} together at ε = 2, "
        f"{errors['local']:.3f} for every silo alone. 1,000 users are few to hide among; with more users, or a larger "
        "ε, the noise weighs less."
    )
