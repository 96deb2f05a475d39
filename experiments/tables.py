"""Tables of Markdown, and how they come between the marks of a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product

from experiments.orderings import RULE, Ordering, counted, difference, orderings
from experiments.p0 import EPSILONS, SWEEPS, UNITS
from experiments.panels import Panel
from experiments.results import AFTER, BEFORE, NOT_RUN, SETS, STAGES, Cell, Results, said_n, usual_n
from tacit.errors import UsageError
from tacit.report import words

_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->).*?(<!-- end -->)", re.DOTALL)


def filled(page: str, made: Mapping[str, str]) -> str:
    """The page with each table between its marks; all else stays."""

    def table(match: re.Match[str]) -> str:
        if match[2] not in made:
            raise UsageError(f'There is no table "{match[2]}"; the page may ask for {", ".join(made)}.')
        return f"{match[1]}\n\n{made[match[2]]}\n\n{match[3]}"

    return _MARKED.sub(table, page)


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """A table.

    >>> print(markdown(["ε", "MSE"], [["1", "0.9"]]))
    | ε | MSE |
    |---|---|
    | 1 | 0.9 |
    """
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in body)])


def of_panels(panels: Mapping[str, Sequence[Panel]]) -> str:
    """What a figure draws, in numbers: a table for each data set."""
    parts = []
    for data, own in panels.items():
        cells = [cell for panel in own for cell in panel.cells()]
        if not own:
            parts.append(f"**{SETS[data]}:** {NOT_RUN}.")
            continue
        usual = usual_n(cells)
        head = [*own[0].facets, own[0].axis, *(line.name for line in own[0].lines)]
        body = [
            [*panel.facets.values(), place, *(line.cells[k].written(usual) for line in panel.lines)]
            for panel in own
            for k, place in enumerate(panel.places)
        ]
        parts.append(_titled(data, cells, markdown(head, body)))
    return "\n\n".join(parts)


def genre(results: Results) -> str:
    """Films divided by genre and at random, together and alone; the floor is that of the random division."""
    variants, epsilons = SWEEPS["genre"].variants, SWEEPS["genre"].axes["privacy.epsilon"]
    parts = []
    for data in results.sets("genre") or ["ml-1m"]:
        rows = {}
        for unit, epsilon in product(UNITS, epsilons):
            at = {"unit": unit, "epsilon": epsilon}
            rows[unit, epsilon] = [results.cell("genre", data, variant=variant, **at) for variant in variants]
            rows[unit, epsilon].append(results.cell("rounds", data, variant="bias", **at))
        cells = [cell for row in rows.values() for cell in row]
        usual = usual_n(cells)
        body = [
            [f"per {unit}", f"{epsilon:g}", *(cell.written(usual) for cell in row)]
            for (unit, epsilon), row in rows.items()
        ]
        parts.append(_titled(data, cells, markdown(["unit", "ε", *variants, "bias, random"], body)))
    return "\n\n".join(parts)


def noise(results: Results) -> str:
    """The corrected noise beside the paper's, at the same ε per user; and the ε that the paper's truly has."""
    both = ("corrected", "paper")
    head = ["ε claimed", *(f"{what}, {whose}" for what in ("σ", "signal to noise") for whose in both)]
    head += ["ε of the paper's σ", *(f"MSE {stage}, {whose}" for stage in STAGES.values() for whose in both)]
    head += ["MSE of bias"]
    parts = []
    for data in SETS:
        if data not in results.sets("noise"):
            parts.append(f"**{SETS[data]}:** {NOT_RUN}.")
            continue
        of = partial(results.cell, "noise", data)
        errors = [
            [
                *(of(stage, variant=variant, epsilon=epsilon) for stage in (BEFORE, AFTER) for variant in both),
                results.cell("synsgd", data, variant="bias", parties=10, epsilon=epsilon),
            ]
            for epsilon in EPSILONS
        ]
        cells = [cell for row in errors for cell in row]
        usual = usual_n(cells)
        body = [
            [
                f"{epsilon:g}",
                *(_public(of("sigma", variant=variant, epsilon=epsilon), 4) for variant in both),
                *(_public(of("signal_to_noise", variant=variant, epsilon=epsilon), 2) for variant in both),
                _true(of("true_epsilon", variant="paper", epsilon=epsilon)),
                *(cell.written(usual) for cell in row),
            ]
            for epsilon, row in zip(EPSILONS, errors, strict=True)
        ]
        parts.append(_titled(data, cells, markdown(head, body)))
    return "\n\n".join(parts)


def verdicts(results: Results) -> str:
    """How every claim fares on every data set: one line for each claim and unit."""
    groups: dict[tuple[str, str], dict[str, list[Ordering]]] = {}
    for each in orderings(results):
        groups.setdefault((each.claim, each.unit), {}).setdefault(each.data, []).append(each)
    body = [
        [claim, f"per {unit}", *(counted(found.get(data, [])) for data in SETS)]
        for (claim, unit), found in groups.items()
    ]
    return markdown(["claim", "unit", *SETS.values()], body) + f"\n\n{RULE}"


def every_ordering(results: Results) -> str:
    """Every comparison with both means. What was not run is left out where a claim was not begun on a data set."""
    head = ["claim", "unit", "where", "should be lower", "should be higher", "n", "difference, 95 %", "verdict"]
    found, parts = orderings(results), [RULE]
    for data in SETS:
        own = [each for each in found if each.data == data]
        begun = {each.claim for each in own if each.differences}
        idle = list(dict.fromkeys(each.claim for each in own if each.claim not in begun))
        shown = [each for each in own if each.claim in begun]
        parts.append(f"## {SETS[data]}")
        if shown:
            cells = [cell for each in shown for _, cell in (each.lower, each.upper)]
            usual = usual_n(cells)
            body = [
                [
                    each.claim,
                    each.unit,
                    each.where,
                    *(f"{name}: {cell.written(usual)}" for name, cell in (each.lower, each.upper)),
                    str(len(each.differences)),
                    difference(each),
                    each.verdict,
                ]
                for each in shown
            ]
            parts.append(f"Test MSE, mean ± standard deviation, {said_n(cells)}.\n\n{markdown(head, body)}")
        if idle:
            parts.append(f"{NOT_RUN.capitalize()}: {'; '.join(idle)}.")
    return "\n\n".join(parts)


def _titled(data: str, cells: Sequence[Cell], table: str) -> str:
    return f"**{SETS[data]}**, test MSE, mean ± standard deviation, {said_n(cells)}:\n\n{table}"


def _public(cell: Cell, digits: int) -> str:
    """A quantity that does not depend on the seed."""
    return f"{cell.mean:.{digits}g}" if cell.n else NOT_RUN


def _true(cell: Cell) -> str:
    """An ε that holds, rounded up."""
    return words.epsilon(cell.mean) if cell.n else NOT_RUN
