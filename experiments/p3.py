"""What is varied for P3's Figures 2 to 5, corrected: hit rates beside the ε that is claimed and the one that holds.

    python -m experiments.p3 grid --data 1000x1000 --out docs/results/p3.csv

A sweep goes on where it stopped. MovieLens 20M is not at hand: synthetic worlds stand for its subsets, and MovieLens 1M
for the whole.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.sweep import Sweep, read
from tacit.config import RunFile
from tacit.experiment import run

COLUMNS = (
    *("sweep", "data", "variant", "epsilon", "reports", "rounds", "seed"),
    *("hr@2", "hr@5", "hr@10", "hr_full@10", "claimed", "holds", "bytes_up", "seconds"),
)
#: Interactions of a user in a synthetic world; the paper's have 230 on 9,781 items, and at least 60.
EACH = 100


def world(users: int, items: int) -> tuple[str, ...]:
    """A synthetic set of that size."""
    return (
        "data.source=demo",
        f"data.users={users}",
        f"data.items={items}",
        f"data.ratings={users * min(EACH, items // 4)}",
    )


GRID = {f"{n}x{m}": world(n, m) for n in (1_000, 10_000, 50_000) for m in (1_000, 5_000, 9_781)}
TINY = {"tiny": world(200, 40)}
ML_1M = {"ml-1m": ("data.source=ml-1m",), **TINY}

#: The same central ε that a shuffle leaves, spent on sums that carry one noise, and methods without a guarantee.
PLAIN = ("privacy=none", "aggregation={name='plain'}")
OPEN = {
    "mf": ("method={name='implicit'}", *PLAIN),
    "popularity": ("method={name='popularity'}", *PLAIN),
    "random": ("method={name='random'}", *PLAIN),
}


def reported(k: int, *more: str) -> tuple[str, ...]:
    """k reports a device, by the paper's one bit unless `more` says otherwise."""
    return f"method.reports={k}", *(more or ("method.mechanism=one-bit",))


def summed(epsilon: float) -> tuple[str, ...]:
    """Sums at a central ε, accounted for soundly."""
    return (
        "method={name='implicit'}",
        f"privacy={{epsilon={epsilon}, delta=1e-6}}",
        "aggregation={name='ideal'}",
    )


BITS = {"one-bit": reported(100), "piecewise": reported(100, "method.mechanism=piecewise")}
SWEEPS: Mapping[str, Sweep] = {
    "grid": Sweep("p3-grid", {**BITS, **OPEN}, data={**GRID, **TINY}),
    "budget": Sweep(
        "p3-budget",
        {f"k={k}": reported(k, "method.mechanism=one-bit") for k in (1, 10, 50, 100, 250)},
        {"privacy.epsilon": (0.5, 1, 2.5, 5)},
        {name: GRID[name] for name in ("1000x1000", "10000x1000", "50000x1000")} | TINY,
    ),
    "learning": Sweep(
        "p3-learning",
        {f"k={k}": reported(k) for k in (50, 100)},
        {"method.rounds": (2, 5, 10, 20, 30)},
        {name: GRID[name] for name in ("10000x1000", "50000x1000")} | TINY,
    ),
    "methods": Sweep(
        "p3-methods",
        {
            **{f"reports, k={k}": reported(k) for k in (100, 250)},
            "reports, k=100, piecewise": BITS["piecewise"],
            **{f"sums, ε={epsilon}": summed(epsilon) for epsilon in (1, 4, 8)},
            "dplcf": (
                "method={name='dplcf'}",
                "privacy={epsilon=2.5, delta=1e-6, unit='rating'}",
                "aggregation={name='plain'}",
            ),
            **OPEN,
        },
        data={**ML_1M, **{name: GRID[name] for name in ("10000x1000",)}},
    ),
}


def described(name: str, data: str, variant: str, file: RunFile) -> dict[str, str]:
    """What makes a run the one it is."""
    epsilon = "" if file.privacy is None else f"{file.privacy.epsilon:g}"
    k, rounds = (str(file.method.get(key, "")) for key in ("reports", "rounds"))
    return dict(zip(COLUMNS, (name, data, variant, epsilon, k, rounds, str(file.seed)), strict=False))


def measured(file: RunFile) -> dict[str, Any]:
    """One run: its hit rates, and what it claims and keeps."""
    with tempfile.TemporaryDirectory() as folder:
        summary = run(file, Path(folder) / "run")
    guarantee = summary["guarantee"] or {}
    rates = {name: f"{value:.4f}" for name, value in summary["metrics"].items() if name in COLUMNS}
    costs = {"claimed": guarantee.get("claimed_epsilon", ""), "holds": guarantee.get("epsilon", "")}
    return {**rates, **costs, "bytes_up": summary["bytes_up"], "seconds": summary["seconds"]}


def run_sweep(name: str, data: str, seeds: Sequence[int], table: Path) -> None:
    """Run what is missing in the table, and add it."""
    done = {tuple(row[column] for column in COLUMNS[:7]) for row in read(table)}
    for variant, file in SWEEPS[name].points(data, seeds):
        row = described(name, data, variant, file)
        if tuple(row.values()) in done:
            continue
        found = {**row, **measured(file)}
        new = not table.exists()
        with table.open("a", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, COLUMNS, restval="", extrasaction="ignore", lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow(found)
        print(
            f"{name} {data} {variant} ε={row['epsilon']}: HR@10 {found.get('hr@10')} ({found['seconds']} s)", flush=True
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=sorted(SWEEPS), help="which figures")
    parser.add_argument("--data", required=True, help="a set of the sweep, such as 1000x1000, ml-1m or tiny")
    parser.add_argument("--seeds", nargs="+", type=int, default=[7, 8, 9])
    parser.add_argument("--out", type=Path, default=Path("docs/results/p3.csv"), help="the table, which is added to")
    given = parser.parse_args()
    for name in given.names:
        if given.data not in SWEEPS[name].data:
            parser.error(f"{name} has no {given.data}; it has {', '.join(SWEEPS[name].data)}")
        run_sweep(name, given.data, given.seeds, given.out)


if __name__ == "__main__":
    main()
