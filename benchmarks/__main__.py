"""`python -m benchmarks [NAME…]`."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from benchmarks.common.machine import described
from benchmarks.common.result import Missing, Result, quantity

#: One module each, in the order in which they run.
NAMES = (
    "sgd",
    "als",
    "private_als",
    "auto",
    "ease",
    "implicit",
    "noise",
    "secure",
    "devices",
    "horizontal",
    "private",
    "message",
    "threads",
    "memory",
    "start",
    "synthetic",
    "peers",
    "deploy",
    "proxy",
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Ratios, measured in one run.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; none runs all")
    parser.add_argument("--list", action="store_true", help="print the names and stop")
    chosen = parser.parse_args(arguments)
    if chosen.list:
        print("\n".join(NAMES))
        return 0
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown:
        parser.error(f"there is no benchmark {unknown[0]!r}; there are {', '.join(NAMES)}")
    print(*described(), sep="\n", flush=True)
    rows = []
    for name in chosen.names or NAMES:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            rows += [(name, result) for result in import_module(f"benchmarks.{name}").measure()]
        except Missing as missing:
            print(f"{name}: not run. {missing}", flush=True)
    if rows:
        print(table(rows))
    return 0


def table(rows: list[tuple[str, Result]]) -> str:
    """All results, a line each, in columns."""
    cells = [("benchmark", "what", "here", "beside", "there", "ratio", "target")]
    for name, r in rows:
        here, there = quantity(r.value, r.unit), quantity(r.reference, r.unit)
        cells.append((name, r.what, here, r.beside, there, quantity(r.ratio, "×"), r.target))
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    sides = "<<><>><"
    lines = (zip(row, sides, widths, strict=True) for row in cells)
    return "\n".join("  ".join(f"{cell:{side}{width}}" for cell, side, width in line).rstrip() for line in lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
