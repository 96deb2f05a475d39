"""Secure sums and private devices: what is varied for docs/results/lfl.md, and the page's figures and tables.

    python -m experiments.lfl devices --data jester-1
    python -m experiments.lfl

The first runs a sweep, which goes on where it stopped; the second draws what is in the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, product, takewhile
from pathlib import Path

from experiments import tables
from experiments.orderings import HOLDS, REVERSED, Ordering
from experiments.panels import Line, Panel, Row, figure
from experiments.results import AFTER, BEFORE, NOT_RUN, STAGES, Cell, Results, said_n, usual_n
from experiments.sweep import DATA, Sweep, run_sweep

EPSILONS = (1, 4, 8)

#: By m, ratings a user: a set of jokes is dense, a larger catalogue is not.
DENSITY = {100: 72, 500: 40}
CROWDS = (8, 15, 30, 60, 120, 250)


def _world(users: int, items: int, each: int) -> tuple[str, ...]:
    sizes = (f"data.users={users}", f"data.items={items}", f"data.ratings={users * each}")
    return "data.source=demo", *sizes, "privacy.delta=1e-6"


#: Jester, and synthetic sets by their n × m.
SETS: Mapping[str, Sequence[str]] = {
    "jester-1": DATA["jester-1"],
    "20000x200": _world(20_000, 200, 25),
    "2000x500": _world(2_000, 500, 40),
    "ml-10m-shape": (*DATA["ml-10m-shape"], "privacy.delta=1e-6"),
}
WORLDS = {f"{items}, {crowd}": _world(crowd * items, items, DENSITY[items]) for items in DENSITY for crowd in CROWDS}
MOVIES = {"ml-1m": DATA["ml-1m"]}

RATING, RECORD, LOCAL = "one rating", "whole record", "one rating, local noise"
BIAS, SGDMF = ("method={name='bias'}",), ("method={name='sgdmf'}",)
PLAIN = "aggregation={name='plain'}"
SHARED, OWN = "one noise", "a noise each"
_OVER_EPSILON = {"privacy.epsilon": EPSILONS}
_OVER_SILOS = {"partition.into": (10, 40), **_OVER_EPSILON}


def _leaves(dropout: float, tolerate: float) -> str:
    return f"{round(100 * dropout)} % at ω = {tolerate:g}"


LEAVING = [(rate, 0.3) for rate in (0.0, 0.1, 0.2)] + [(rate, 0.6) for rate in (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)]
VOID = [(0.3, 0.3), (0.4, 0.3)]
REDRAWS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)  # of ω: while nobody drops out, it only draws the noise anew

SWEEPS: Mapping[str, Sweep] = {
    "devices": Sweep(
        "p0-lfl-devices",
        {
            RATING: (),
            RECORD: ("method.send=record",),
            LOCAL: (PLAIN,),
            "bias": BIAS,
            "gd-dr shuffled": ("method={name='gd-dr'}", "aggregation={name='shuffle'}"),
            "gd-dr local": ("method={name='gd-dr'}", PLAIN),
            "gd-dr, its stage 1": ("method={name='gd-dr', rate=1e-12}", PLAIN),
        },
        _OVER_EPSILON,
        SETS,
    ),
    "dropouts": Sweep(
        "p0-lfl-dropouts",
        {
            _leaves(dropout, tolerate): (f"aggregation.dropout={dropout}", f"aggregation.tolerate={tolerate}")
            for dropout, tolerate in [*LEAVING, *VOID]
        },
        data=SETS,
    ),
    "redraws": Sweep("p0-lfl-devices", {f"ω = {w}": (f"aggregation.tolerate={w}",) for w in REDRAWS}, data=SETS),
    "crowds": Sweep(
        "p0-lfl-devices", {RATING: (), RECORD: ("method.send=record",), "bias": BIAS}, _OVER_EPSILON, WORLDS
    ),
    "silos": Sweep("p0-lfl-silos", {SHARED: BIAS, OWN: (*BIAS, PLAIN)}, _OVER_SILOS, MOVIES),
    "steps": Sweep("p0-lfl-silos", {SHARED: (), OWN: (PLAIN,)}, _OVER_SILOS, MOVIES),
    "masks": Sweep("p0-lfl-silos", {"masked": SGDMF, "plain": (*SGDMF, PLAIN)}, _OVER_SILOS, MOVIES),
}

#: The names of the data sets in text.
NAMES = {
    "jester-1": "Jester, n/m = 250",
    "20000x200": "Synthetic, n/m = 100",
    "2000x500": "Synthetic, n/m = 4",
    "ml-10m-shape": "MovieLens 10M's shape, n/m = 6.5",
}
START, STAGE_ONE, LOWER = "mse_start", "stage 1 alone", "lower"
SHOWN = (RATING, RECORD, LOCAL, "gd-dr shuffled", "bias")
_CROWDED = (RATING, RECORD, STAGE_ONE, "bias")


def devices(results: Results) -> list[Row]:
    """P0's Figure 10: all methods over ε, with stage 1, before anything was sent, as a level."""
    rows = []
    for data in list(SETS)[:3]:
        of = partial(results.cell, "devices", data)
        lines = [Line(name, [of(variant=name, epsilon=e) for e in EPSILONS]) for name in SHOWN]
        lines.append(Line(STAGE_ONE, [of(START, variant=RATING)] * len(EPSILONS), level=True))
        rows.append(Row(NAMES[data], [Panel(data, {}, "ε", [str(e) for e in EPSILONS], lines)]))
    return rows


def dropouts(results: Results) -> list[Row]:
    """The error over how many drop out, for both ω."""
    of, panels = partial(results.cell, "dropouts", "jester-1"), []
    floor = results.cell("devices", "jester-1", variant="bias", epsilon=4)
    for tolerate in (0.3, 0.6):
        rates = [rate for rate, allowed in sorted([*LEAVING, *VOID]) if allowed == tolerate]
        cells = [of(variant=_leaves(rate, tolerate)) for rate in rates]
        lines = [Line(RATING, cells), Line("bias", [floor] * len(rates), level=True)]
        places = [f"{round(100 * rate)} %" for rate in rates]
        panels.append(Panel("jester-1", {"ω": f"ω = {tolerate:g}"}, "devices that drop out", places, lines))
    return [Row("Jester, ε = 4", panels, shared=True)]


def crowds(results: Results) -> list[Row]:
    """The error over n/m."""
    rows = []
    for items in DENSITY:
        panels = []
        for e in EPSILONS:
            lines = [Line(name, [_crowd(results, items, c, name, e) for c in CROWDS]) for name in _CROWDED]
            panels.append(Panel("demo", {"ε": f"ε = {e}"}, "n/m", [str(crowd) for crowd in CROWDS], lines))
        rows.append(Row(f"Synthetic, m = {items}, {DENSITY[items]} ratings a user", panels, shared=True))
    return rows


def _crowd(results: Results, items: int, crowd: int, name: str, epsilon: int) -> Cell:
    what, variant = (START, RATING) if name == STAGE_ONE else (AFTER, name)
    return results.cell("crowds", f"{items}, {crowd}", what, variant=variant, epsilon=epsilon)


def silos(results: Results) -> list[Row]:
    """One noise for all silos beside a noise each: biases, and factors before fine-tuning."""
    rows, titles = [], {"silos": "bias", "steps": "SGDMF with T' = 1, before fine-tuning"}
    for sweep, title in titles.items():
        panels = []
        for s in (10, 40):
            of = partial(results.cell, sweep, "ml-1m", BEFORE, parties=s)
            lines = [Line(name, [of(variant=name, epsilon=e) for e in EPSILONS]) for name in (SHARED, OWN)]
            panels.append(Panel("ml-1m", {"parties": f"{s} silos"}, "ε", [str(e) for e in EPSILONS], lines))
        rows.append(Row(f"{title}, MovieLens 1M", panels, shared=True))
    return rows


FIGURES = {
    "devices": ("Private devices, at the same ε per user", devices),
    "dropouts": ("Devices that drop out of every round: ω is what the noise allows for", dropouts),
    "crowds": ("From how many users per item on: factors beside item biases", crowds),
    "silos": ("One noise on the sum beside a noise for each silo, at the same ε per user", silos),
}


def write_figures(results: Results, folder: Path) -> None:
    """One file a figure, without panels of which nothing was run."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (title, drawn) in FIGURES.items():
        begun = [replace(row, panels=[p for x in row.panels if (p := x.begun())]) for row in drawn(results)]
        rows = [row for row in begun if row.panels]
        cells = [cell for row in rows for panel in row.panels for cell in panel.cells()]
        note = f"Test MSE, lower is better: mean ± standard deviation, {said_n(cells)}."
        (folder / f"{name}.svg").write_text(figure(title, note if rows else "Not run.", rows), encoding="utf-8")


def all_tables(results: Results) -> dict[str, str]:
    """Every table by its name."""
    return {
        "devices": _device_table(results),
        "dropouts": _dropout_table(results),
        "redraws": _redraw_table(results),
        "wins": _wins(results),
        "crowds": _crowd_table(results),
        **{name: _silo_table(results, name) for name in ("silos", "steps", "masks")},
    }


def _noted(head: Sequence[str], body: Sequence[Sequence[str | Cell]]) -> str:
    """A table under a line that says over how many seeds its cells are."""
    cells = [cell for row in body for cell in row if isinstance(cell, Cell)]
    usual = usual_n(cells)
    told = [[cell.written(usual) if isinstance(cell, Cell) else cell for cell in row] for row in body]
    return f"Test MSE, mean ± standard deviation, {said_n(cells)}:\n\n{tables.markdown(head, told)}"


def _verdict(lower: Cell, upper: Cell) -> str:
    """Whether the first is lower or higher, seed by seed."""
    told = Ordering("", "", "", "", ("", lower), ("", upper)).verdict
    return {HOLDS: LOWER, REVERSED: "higher"}.get(told, told)


def _device_table(results: Results) -> str:
    variants = [*SWEEPS["devices"].variants]
    head = ["data", "ε", STAGE_ONE, *variants, f"{RATING} and bias", f"{RECORD} and bias"]
    body: list[list[str | Cell]] = []
    for data, epsilon in product(SETS, EPSILONS):
        of = partial(results.cell, "devices", data, epsilon=epsilon)
        found = {name: of(variant=name) for name in variants}
        if any(cell.by_seed for cell in found.values()):
            against = [_verdict(found[name], found["bias"]) for name in (RATING, RECORD)]
            body.append([NAMES[data], str(epsilon), of(START, variant=RATING), *found.values(), *against])
    return _noted(head, body)


def _dropout_table(results: Results) -> str:
    of = partial(results.cell, "dropouts", "jester-1")
    head = ["drop out", "σ needed", "noise on the sum", "devices that stayed", "void rounds of 10", "test MSE"]
    body: list[list[str | Cell]] = []
    for name in SWEEPS["dropouts"].variants:
        sigma, noise, stayed, void = (of(what, variant=name) for what in ("sigma", "noise", "contributors", "void"))
        numbers = [f"{cell.mean:,.0f}" if cell.n else "none" for cell in (sigma, noise, stayed, void)]
        body.append([name, *numbers, of(variant=name)])
    return _noted(head, body)


def _redraw_table(results: Results) -> str:
    """How far the error moves with the draw of the noise alone, split by split."""
    found = {v: results.cell("redraws", "jester-1", variant=v).by_seed for v in SWEEPS["redraws"].variants}
    floor, body = results.cell("devices", "jester-1", variant="bias", epsilon=4).by_seed, []
    for seed in sorted({seed for cell in found.values() for seed in cell}):
        own = Cell({v: by_seed[seed] for v, by_seed in found.items() if seed in by_seed})
        lower = sum(value < floor[seed] for value in own.values)
        span = f"{min(own.values):.2f} … {max(own.values):.2f}"
        body.append([seed, own.written(own.n), span, f"{floor[seed]:.2f}", f"{lower} of {own.n}"])
    return tables.markdown(["seed", RATING, "lowest … highest", "bias", "draws below bias"], body)


def _crowd_table(results: Results) -> str:
    head = ["m", "n/m", "n", "ε", *_CROWDED]
    body: list[list[str | Cell]] = []
    for items, crowd, epsilon in product(DENSITY, CROWDS, EPSILONS):
        cells = [_crowd(results, items, crowd, name, epsilon) for name in _CROWDED]
        if any(cell.by_seed for cell in cells):
            body.append([str(items), str(crowd), f"{items * crowd:,}", str(epsilon), *cells])
    return _noted(head, body)


def _wins(results: Results) -> str:
    """From which n/m on, and at all larger ones that were run, a claim holds."""
    body = []
    for name, other, items in product((RATING, RECORD), (STAGE_ONE, "bias"), DENSITY):
        row = [f"{name} below {other}", str(items)]
        for epsilon in EPSILONS:
            pairs = {c: [_crowd(results, items, c, which, epsilon) for which in (name, other)] for c in CROWDS}
            run = [crowd for crowd in CROWDS if min(cell.n for cell in pairs[crowd]) > 1]
            held = list(takewhile(lambda crowd: _verdict(*pairs[crowd]) == LOWER, reversed(run)))  # noqa: B023
            row.append(f"from {held[-1]}" if held else "nowhere" if run else NOT_RUN)
        body.append(row)
    return tables.markdown(["claim", "m", *(f"ε = {epsilon}" for epsilon in EPSILONS)], body)


def _silo_table(results: Results, sweep: str) -> str:
    variants = [*SWEEPS[sweep].variants]
    stages = {AFTER: ""} if sweep == "silos" else {stage: f", {words}" for stage, words in STAGES.items()}
    head = ["silos", "ε", *(v + words for words, v in product(stages.values(), variants))]
    body: list[list[str | Cell]] = []
    for parties, epsilon in product((10, 40), EPSILONS):
        of = partial(results.cell, sweep, "ml-1m", parties=parties, epsilon=epsilon)
        pairs = [[of(stage, variant=v) for v in variants] for stage in stages]
        if any(cell.by_seed for pair in pairs for cell in pair):
            body.append([str(parties), str(epsilon), *chain(*pairs), *(_verdict(*pair) for pair in pairs)])
    return _noted([*head, *(f"the first is{words}" for words in stages.values())], body)


def write_page(results: Results, page: Path) -> None:
    """Figures beside the page, and tables between its marks."""
    write_figures(results, page.with_suffix(""))
    page.write_text(tables.filled(page.read_text(encoding="utf-8"), all_tables(results)), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"which sweeps: {', '.join(SWEEPS)}; none draws the page")
    parser.add_argument("--data", choices=[*SETS, *WORLDS, *MOVIES], nargs="+", help="by default all of a sweep's")
    parser.add_argument("--seeds", type=int, nargs="+", default=[7, 8, 9])
    parser.add_argument("--out", type=Path, default=Path("docs/results/lfl.csv"))
    parser.add_argument("--only", nargs="+", default=[], metavar="COLUMN=A;B", help="as in parties=10 epsilon=1;8")
    asked = parser.parse_args()
    only = {column: values.split(";") for column, _, values in (text.partition("=") for text in asked.only)}
    if not asked.names:
        write_page(Results.read(asked.out), asked.out.with_suffix(".md"))
    for name in asked.names:
        for data in asked.data or SWEEPS[name].data:
            run_sweep(name, SWEEPS[name], data, asked.seeds, asked.out, only)


if __name__ == "__main__":
    main()
