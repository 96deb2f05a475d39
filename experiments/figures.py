"""The figures and tables of docs/results/p0.md, from the long table that `experiments.sweep` fills.

    python -m experiments.figures

Figures are files of SVG beside the page; tables are written between the marks `<!-- table: NAME -->` and `<!-- end -->`
of the page, and the words around them stay. What was not run is said to be so. A second time changes nothing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from experiments import tables
from experiments.p0 import EPSILONS, SWEEPS, UNITS
from experiments.panels import FLOOR, HOME, Line, Panel, Row, figure
from experiments.results import AFTER, BEFORE, SETS, STAGES, Results, said_n

Drawn = Callable[[Results, str], list[Row]]


def _over_epsilon(
    results: Results,
    sweep: str,
    data: str,
    facets: dict[str, str],
    what: str = AFTER,
    *,
    levels: Sequence[Line] = (),
    **where: object,
) -> Panel:
    """One panel: all variants of a sweep over ε."""
    epsilons = SWEEPS[sweep].axes["privacy.epsilon"]
    lines = [
        Line(variant, [results.cell(sweep, data, what, variant=variant, epsilon=e, **where) for e in epsilons])
        for variant in SWEEPS[sweep].variants
    ]
    return Panel(data, facets, "ε", [f"{e:g}" for e in epsilons], [*lines, *levels])


def clipping(results: Results, data: str) -> list[Row]:
    """P0's Figure 4."""
    panels = [_over_epsilon(results, "clipping", data, {"unit": f"per {unit}"}, unit=unit) for unit in UNITS]
    return [Row(SETS[data], panels)]


def methods(results: Results, data: str) -> list[Row]:
    """P0's Figure 5."""
    return [Row(SETS[data], [_over_epsilon(results, "methods", data, {"unit": "per user"}, BEFORE)])]


def rounds(results: Results, data: str) -> list[Row]:
    """P0's Figure 6: over T, with `alone` and the floor as levels."""
    sweep, panels = SWEEPS["rounds"], []
    turns = [variant for variant in sweep.variants if variant.startswith("T=")]
    for unit, epsilon in product(sweep.axes["privacy.unit"], sweep.axes["privacy.epsilon"]):
        at = {"unit": unit, "epsilon": epsilon}
        together = [results.cell("rounds", data, variant=variant, **at) for variant in turns]
        levels = [
            Line(variant, [results.cell("rounds", data, variant=variant, **at)] * len(turns), level=True)
            for variant in ("alone", FLOOR)
        ]
        facets = {"unit": f"per {unit}", "ε": f"ε = {epsilon:g}"}
        places = [variant.removeprefix("T=") for variant in turns]
        panels.append(Panel(data, facets, "T", places, [Line("together", together), *levels]))
    return [Row(SETS[data], panels)]


def parties(results: Results, data: str) -> list[Row]:
    """P0's Figure 7."""
    drawn = []
    for unit in UNITS:
        panels = [
            _over_epsilon(
                results, "parties", data, {"unit": f"per {unit}", "parties": f"s = {s}"}, unit=unit, parties=s
            )
            for s in SWEEPS["parties"].axes["partition.into"]
        ]
        drawn.append(Row(f"{SETS[data]}, per {unit}", panels, shared=True))
    return drawn


def pretrain(results: Results, data: str) -> list[Row]:
    """P0's Figure 8."""
    drawn = []
    for stage, words in STAGES.items():
        panels = [
            _over_epsilon(results, "pretrain", data, {"stage": words, "parties": f"s = {s}"}, stage, parties=s)
            for s in SWEEPS["pretrain"].axes["partition.into"]
        ]
        drawn.append(Row(f"{SETS[data]}, {words}", panels, shared=True))
    return drawn


def per_rating(results: Results, data: str) -> list[Row]:
    """Horizontal, per rating."""
    panels = [
        _over_epsilon(results, "per-rating", data, {"stage": words}, stage, parties=10)
        for stage, words in STAGES.items()
    ]
    return [Row(SETS[data], panels)]


def synsgd(results: Results, data: str) -> list[Row]:
    """P0's Figure 9, with local training without privacy as a level."""
    drawn = []
    for stage, words in STAGES.items():
        panels = []
        for s in SWEEPS["synsgd"].axes["partition.into"]:
            alone = results.cell("alone", data, variant=HOME, parties=s)
            level = Line(HOME, [alone] * len(EPSILONS), level=True)
            facets = {"stage": words, "parties": f"s = {s}"}
            panels.append(_over_epsilon(results, "synsgd", data, facets, stage, levels=[level], parties=s))
        drawn.append(Row(f"{SETS[data]}, {words}", panels, shared=True))
    return drawn


FIGURES: Mapping[str, tuple[str, Drawn]] = {
    "clipping": ("Embedding clipping beside gradient clipping, one party", clipping),
    "methods": ("SGDMF, DP-SGLD and objective perturbation, one silo, before fine-tuning", methods),
    "rounds": ("How often to synchronise at T·T′ = 1000; 18 vertical parties, 5 on ML-10M's shape", rounds),
    "parties": ("Vertical parties, together and alone", parties),
    "pretrain": ("Horizontal: users' factors pre-trained, or trained together with the item factors", pretrain),
    "per-rating": ("Horizontal per rating, 10 silos: users noised, or the replace case", per_rating),
    "synsgd": ("Horizontal SGDMF beside synSGD", synsgd),
}


def rows_of(name: str, results: Results) -> list[Row]:
    """The rows of a figure, for the data sets on which it was begun, without what was not."""
    drawn = [row for data in results.sets(name) for row in FIGURES[name][1](results, data)]
    begun = [replace(row, panels=_begun(row.panels)) for row in drawn]
    return [row for row in begun if row.panels]


def _begun(panels: Iterable[Panel]) -> list[Panel]:
    return [begun for panel in panels if (begun := panel.begun()) is not None]


def write_figures(results: Results, folder: Path) -> list[Path]:
    """One file a figure."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, (title, _) in FIGURES.items():
        rows = rows_of(name, results)
        cells = [cell for row in rows for panel in row.panels for cell in panel.cells()]
        note = f"Test MSE, lower is better: mean ± standard deviation, {said_n(cells)}." if rows else "Not run."
        path = folder / f"{name}.svg"
        path.write_text(figure(title, note, rows), encoding="utf-8")
        written.append(path)
    return written


def all_tables(results: Results) -> dict[str, str]:
    """Every table by its name."""
    found = {name: tables.of_panels(_panels(name, results)) for name in FIGURES}
    return found | {
        "genre": tables.genre(results),
        "noise": tables.noise(results),
        "orderings": tables.verdicts(results),
        "every-ordering": tables.every_ordering(results),
    }


def _panels(name: str, results: Results) -> dict[str, list[Panel]]:
    return {data: _begun(panel for row in FIGURES[name][1](results, data) for panel in row.panels) for data in SETS}


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=Path("docs/results/p0.csv"))
    parser.add_argument("--page", type=Path, default=Path("docs/results/p0.md"))
    asked = parser.parse_args(None if words is None else list(words))
    results = Results.read(asked.table)
    folder = asked.page.with_suffix("")
    for path in write_figures(results, folder):
        print(path)
    made = all_tables(results)
    for page in (asked.page, folder / "orderings.md"):
        if page.exists():
            page.write_text(tables.filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
            print(page)


if __name__ == "__main__":
    main()
