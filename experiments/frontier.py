"""The tables of docs/results/frontier.md, from the runs that `tacit compare --frontier` left.

    tacit compare --frontier experiments/frontier/ml-1m.toml --out FOLDER/ml-1m.html
    python -m experiments.frontier FOLDER

The first makes the runs of one sweep under FOLDER/ml-1m; the second adds all that are there to
docs/results/frontier.csv and writes the tables between the page's marks. Without FOLDER it only writes the tables.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from experiments.results import Cell
from experiments.tables import filled, markdown
from tacit.report.words import metric

PAGE, TABLE = Path("docs/results/frontier.md"), Path("docs/results/frontier.csv")
KEYS, NUMBERS = ("sweep", "method", "epsilon", "seed"), ("mse", "hr_full@10", "ndcg@10", "hr@10", "bytes_up", "seconds")
#: Of each metric, its name in the tables.
NAMES = {"mse": "MSE", "hr_full@10": "HR@10, all items", "ndcg@10": "NDCG@10", "hr@10": "HR@10 among 99"}
NO_PRIVACY = "none"

Row = Mapping[str, str]


def collected(folder: Path) -> Iterator[Row]:
    """A row for each finished run of each sweep in the folder."""
    for summary in sorted(folder.glob("*/*/summary.json")):
        run = json.loads(summary.read_text(encoding="utf-8"))
        folder_name, epsilon, seed = summary.parent.name.rsplit("-", 2)
        method = re.sub(r"^(.+?)-(\w+)-=-(.+)-$", r"\1, \2 = \3", folder_name)  # a parameter that the sweep sets
        values = {**run["metrics"], "bytes_up": run["bytes_up"], "seconds": run["seconds"]}
        numbers = {name: f"{values[name]:.6g}" for name in NUMBERS if values.get(name) is not None}
        yield {"sweep": summary.parts[-3], "method": method, "epsilon": epsilon, "seed": seed, **numbers}


def read(table: Path) -> dict[tuple[str, ...], Row]:
    """The rows of a table by their keys."""
    if not table.exists():
        return {}
    with table.open(encoding="utf-8", newline="") as file:
        return {tuple(row[key] for key in KEYS): row for row in csv.DictReader(file)}


def write(table: Path, rows: Mapping[tuple[str, ...], Row]) -> None:
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*KEYS, *NUMBERS], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))


def tables(rows: Sequence[Row]) -> dict[str, str]:
    """By "sweep metric", methods in rows and ε in columns: mean ± standard deviation over seeds."""
    cells: dict[tuple[str, str, str, float], dict[str, float]] = defaultdict(dict)
    for row in rows:
        value = math.inf if row["epsilon"] == NO_PRIVACY else float(row["epsilon"])
        for name in NAMES:
            if row[name]:
                cells[row["sweep"], name, row["method"], value][row["seed"]] = float(row[name])
    made = {}
    for sweep, name in dict.fromkeys((sweep, name) for sweep, name, *_ in cells):
        mine = {key[2:]: Cell(values) for key, values in cells.items() if key[:2] == (sweep, name)}
        made[f"{sweep}-{name.replace('@', '-').replace('_', '-')}"] = table(NAMES[name], mine)
    return made


def table(title: str, cells: Mapping[tuple[str, float], Cell]) -> str:
    """One metric of one sweep. Methods that run without privacy alone come last."""
    values = sorted({value for _, value in cells})
    private = {method for method, value in cells if math.isfinite(value)}
    methods = sorted({method for method, _ in cells}, key=lambda m: (m not in private, not m.startswith("auto"), m))
    usual = max(cell.n for cell in cells.values())
    head = [title, *(f"ε = {value:g}" if math.isfinite(value) else "no privacy" for value in values)]
    body = [[f"`{m}`", *(written(cells.get((m, value)), usual) for value in values)] for m in methods]
    return markdown(head, body)


def written(cell: Cell | None, usual: int) -> str:
    """Four digits: differences between methods are that small."""
    if cell is None:
        return ""
    places = 4 if cell.mean < 10 else 2
    spread = f" ± {metric(cell.sd, places)}" if cell.n > 1 else ""
    return metric(cell.mean, places) + spread + (f" (n = {cell.n})" if cell.n != usual else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", help="where the sweeps' runs are")
    folder = parser.parse_args().folder
    rows = read(TABLE)
    if folder is not None:
        rows |= {tuple(row[key] for key in KEYS): row for row in collected(folder)}
        write(TABLE, rows)
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(filled(page, tables(list(read(TABLE).values()))), encoding="utf-8")


if __name__ == "__main__":
    main()
