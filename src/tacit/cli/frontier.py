"""`tacit compare --frontier SWEEP`: many methods at many ε from one file, with ceilings and floors.

A sweep is a run file with one more section:

    [frontier]
    methods = ["bias", {name = "sgdmf", factors = 10}]    # default: every method that fits the setting
    levels = ["central"]                                  # trained once per seed, without privacy
    epsilons = [0.5, 1, 2, inf]                           # inf: without privacy
    seeds = [7, 8, 9]

Each run is an ordinary run folder; a sweep that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from pydantic import ConfigDict, Field
from rich.console import Console
from rich.table import Table

from tacit.cli.display import print_json
from tacit.cli.run import execute, finished
from tacit.config import Frozen, RunFile, checked, read_table
from tacit.errors import PrivacyRefused, UsageError
from tacit.methods import chosen, known
from tacit.prepare.run_file import check, setting_of
from tacit.report import page
from tacit.report.frontier import Frontier, Point, cell, epsilon_name, frontier_page, shown
from tacit.report.words import listing, seconds, sentence


class Sweep(Frozen):
    """[frontier]: what is compared."""

    model_config = ConfigDict(allow_inf_nan=True)

    methods: tuple[str | dict[str, Any], ...] = ()
    levels: tuple[str | dict[str, Any], ...] = ("central",)
    epsilons: tuple[Annotated[float, Field(gt=0)], ...] = (1.0, 4.0, math.inf)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63)], ...] = Field(default=(7,), min_length=1)


def frontier(sweep: Path, out: Path, as_json: bool, quiet: bool) -> None:
    """Run what is missing of a sweep, print the means and write the page."""
    base, wanted = read_sweep(sweep)
    jobs, refused = planned(base, wanted)
    if not jobs:
        raise UsageError(f'Nothing in "{sweep}" can be run: {refused[0][1] if refused else "it names no method"}')
    found = measured(jobs, out.parent / out.stem, quiet)
    points = [Point(name, value, runs) for (name, value, level), runs in found.items() if not level]
    levels = [Point(name, value, runs) for (name, value, level), runs in found.items() if level]
    result = Frontier(f"The frontier on {base.data.source}", points, levels, refused)
    written = page.save(out, frontier_page(result))
    if as_json:
        every = [point.to_json() for point in (*points, *levels)]
        refusals = [{"method": name, "why": why} for name, why in refused]
        print_json({"points": every, "refused": refusals, "report": str(written)})
        return
    console = Console(highlight=False, markup=False)
    for metric in [name for name in result.metrics if shown(name)]:
        console.print(table(result, metric))
    for name, why in refused:
        console.print(f"{name}: not run. {why}", soft_wrap=True)
    console.print(f"\nFrontier: {written}", soft_wrap=True)


def read_sweep(path: Path) -> tuple[RunFile, Sweep]:
    """The run file that every point starts from, and what is varied."""
    content = read_table(path)
    section = content.pop("frontier", None)
    if not isinstance(section, dict):
        raise UsageError(f'"{path}" has no [frontier] section; add one, as in: [frontier] epsilons = [1, 4].')
    where = f'the sweep "{path}"'
    return checked(RunFile, content, where), checked(Sweep, section, f"[frontier] of {where}")


#: One run to make: its key (method, ε, whether it is a level) and the resolved run file.
Job = tuple[tuple[str, float, bool], RunFile]


def planned(base: RunFile, sweep: Sweep) -> tuple[list[Job], list[tuple[str, str]]]:
    """All runs of a sweep that can be made, and why others cannot."""
    jobs: list[Job] = []
    refused: dict[tuple[str, str], list[str]] = {}
    named = sweep.methods or tuple(fitting(base))
    for method, value, level in [
        *((method, value, False) for method in named for value in sweep.epsilons),
        *((method, math.inf, True) for method in sweep.levels),
    ]:
        options = {"name": method} if isinstance(method, str) else dict(method)
        name = label(options)
        try:
            files = [point_file(base, options, value, seed) for seed in sweep.seeds]
            for file in files:
                check(file)
        except (UsageError, PrivacyRefused) as why:
            refused.setdefault((name, sentence(str(why))), []).append(epsilon_name(value))
            continue
        jobs += [((name, value, level), file) for file in files]
    return jobs, [(f"{name}, {listing(at)}", why) for (name, why), at in refused.items()]


def fitting(base: RunFile) -> Iterator[str]:
    """The names of the methods that fit the setting and the feedback, but for those that are levels by nature."""
    setting = setting_of(base)
    for name, method in known().items():
        if setting in method.sides and base.data.feedback in method.feedback and method.guaranteed:
            yield name


def label(options: dict[str, Any]) -> str:
    """A method and those of its parameters that the sweep sets."""
    others = ", ".join(f"{key} = {value}" for key, value in options.items() if key != "name")
    return f"{options.get('name')} ({others})" if others else str(options.get("name"))


def point_file(base: RunFile, options: dict[str, Any], value: float, seed: int) -> RunFile:
    """The run file of one point; the sweep's [privacy] brings δ and the unit."""
    content = base.model_dump(exclude_none=True)
    privacy = content.pop("privacy", {})
    if math.isfinite(value):
        content["privacy"] = {**privacy, "epsilon": value}
    elif content["aggregation"]["name"] not in ("plain", "secagg"):
        content["aggregation"]["name"] = "plain"
    content["evaluate"]["floor"] = False
    file = checked(RunFile, {**content, "method": options, "seed": seed}, "a point of the sweep")
    chosen(file.method)
    return file


def measured(jobs: list[Job], folder: Path, quiet: bool) -> dict[tuple[str, float, bool], list[dict[str, Any]]]:
    """The summaries by method and ε, seeds in order; runs that are finished are only read."""
    found: dict[tuple[str, float, bool], list[dict[str, Any]]] = {}
    began, done = monotonic(), 0
    for ready, ((name, value, level), file) in enumerate(jobs):
        place = folder / re.sub(r"[^\w.=-]+", "-", f"{name}-{'none' if math.isinf(value) else value}-{file.seed}")
        summary = finished(place, file) if place.exists() else None
        if summary is None:
            left = (monotonic() - began) / done * (len(jobs) - ready) if done else None
            if not quiet:
                about = "" if left is None else f", about {seconds(left)} left"
                point = f"{name}, {epsilon_name(value)}, seed {file.seed}"
                typer.echo(f"{ready + 1} of {len(jobs)}: {point}{about}", err=True)
            summary, done = execute(file, place, quiet), done + 1
        found.setdefault((name, value, level), []).append(summary)
    return found


def table(found: Frontier, metric: str) -> Table:
    """Methods in rows, ε in columns: mean ± standard deviation over seeds."""
    rows = Table(metric, box=None, pad_edge=False)
    for value in found.epsilons:
        rows.add_column(epsilon_name(value), justify="right")
    for method in found.methods:
        rows.add_row(method, *(cell(found.at(method, value), metric) for value in found.epsilons))
    for level in found.levels:
        blank = [""] * (len(found.epsilons) - 1)
        rows.add_row(f"{level.method}, no privacy", *blank, cell(level, metric))
    return rows
