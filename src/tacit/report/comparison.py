"""Several runs on one page: what each achieved, what it guarantees, and what it sent.

The page's words are in templates/compare.html.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from tacit.errors import UsageError
from tacit.evaluate.metrics import METRICS
from tacit.evaluate.paired import Paired, compare_paired
from tacit.report import floor_verdict, page, readings
from tacit.report.bars import Estimate, estimates
from tacit.report.card import Card, card
from tacit.report.charts import Reference, Series, line_chart
from tacit.report.folder import RunRecord
from tacit.report.guarantee_words import brief
from tacit.report.metric_names import leading, meaning
from tacit.report.page import Figure
from tacit.report.run_page import up_and_down
from tacit.report.svg import COLOURS
from tacit.report.words import INTERVAL, decimals, epsilon, listing, metric, plural, sentence, short, size, spelled

_PERMUTATIONS = 2000


def write_comparison(folders: Sequence[str | Path], path: str | Path) -> Path:
    """Write a comparison of finished runs to `path`; returns it."""
    return page.save(Path(path), compare_report([RunRecord.read(folder) for folder in folders]))


def compare_report(records: Sequence[RunRecord]) -> str:
    """The comparison as one offline HTML page."""
    if not records:
        raise UsageError("There is no run to compare; name at least one run folder, as in: tacit compare runs/…")
    names, different = labels(records), differences(records)
    everywhere = [m for m in _metrics(records) if all(m in record.summary.metrics for record in records)]
    lead = leading(everywhere) or leading(_metrics(records))
    runs = [_run(record, name, card(record)) for record, name in zip(records, names, strict=True)]
    return page.render(
        "compare.html",
        title=_headline(records, names, None if different else lead),
        eyebrow=f"Tacit comparison · {plural(len(records), 'run')}",
        lede=_common(records, different),
        version=records[0].about.tacit,
        differences=different,
        names=names,
        lead=meaning(lead).short if lead else "",
        runs=runs,
        heads=[_head(run) for run in runs],
        estimates=_estimates(records, names, lead) if lead else None,
        results=[_result(records, name, ranked=not different) for name in _metrics(records)],
        verdicts=floor_verdict.verdicts(records, names),
        pairs=[] if different or lead is None else _pairs(records, names, lead),
        learning=_learning(records, names, lead),
        sending=_sending(records, names),
    )


def labels(records: Sequence[RunRecord]) -> list[str]:
    """A name for each run: its method's, with as much detail as sets it apart from the others."""
    details: list[Callable[[RunRecord], str]] = [
        lambda record: record.summary.setting,
        lambda record: f"ε = {epsilon(record.guarantee.epsilon or 0)}" if record.guarantee else "no privacy",
        lambda record: f"per {record.guarantee.unit}" if record.guarantee else "",
        lambda record: record.run_file.aggregation.name,
        lambda record: f"seed {record.run_file.seed}",
        lambda record: record.name,
    ]
    names = [record.about.method.name for record in records]
    for detail in details:
        for name in [name for name, often in Counter(names).items() if often > 1]:
            found = {place: detail(records[place]) for place, other in enumerate(names) if other == name}
            if len(set(found.values())) > 1:
                for place, word in found.items():
                    names[place] = f"{name}, {word}" if word else name
    often = Counter(names)
    return [f"{name}, no. {place}" if often[name] > 1 else name for place, name in enumerate(names, start=1)]


def differences(records: Sequence[RunRecord]) -> list[str]:
    """What differs between runs that has to be the same for their metrics to be compared."""

    def facts(record: RunRecord) -> dict[str, object]:
        data, file = record.about.data, record.run_file
        return {
            "data": (data.name, data.users, data.items, data.ratings, str(data.scale), data.feedback),
            "split": file.split,
            "seed": file.seed,
            "way of evaluating": file.evaluate.model_dump(exclude={"floor"}),
        }

    first, rest = facts(records[0]), [facts(record) for record in records[1:]]
    return [key for key in first if any(other[key] != first[key] for other in rest)]


def _common(records: Sequence[RunRecord], different: Sequence[str]) -> str:
    data = records[0].about.data
    if "data" in different:
        return "These runs learned from different data."
    if "split" in different or "seed" in different:
        return f"All on {data.name}, with different test sets."
    return f"All on {data.name}: {data.sizes}. {sentence(records[0].about.split)}"


def _headline(records: Sequence[RunRecord], names: Sequence[str], lead: str | None) -> str:
    runs = f"{spelled(len(records))} run{'' if len(records) == 1 else 's'} compared".capitalize()
    best = None if lead is None else _best(records, lead)
    if best is None or lead is None:
        return runs
    place = next(k for k, record in enumerate(records) if _value(record, lead) == best)
    return f"{runs}: {names[place]} has the best test {meaning(lead).short}, {metric(best)}"


def _run(record: RunRecord, name: str, content: Card) -> dict[str, Any]:
    its = record.guarantee
    return {
        "record": record,
        "name": name,
        "kind": "none" if its is None else "simulated" if its.simulated else "holds",
        "guarantee": brief(its, record.about.hidden),
        "promise": content.stamp if content.private else content.sections[0].sentences[0],
        "who": plural(*readings.who(record)).replace(" ", "\u00a0"),
    }


def _head(run: dict[str, Any]) -> Markup:
    """A run's name over its guarantee, as the head of a column."""
    return Markup('{name}<span class="under"><span class="chip {kind}">{guarantee}</span></span>').format(**run)


def _metrics(records: Sequence[RunRecord]) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record.summary.metrics))


def mean_over(name: str) -> str:
    """What a metric of a run is a mean over: every test rating counts alike, or every user; empty where not known."""
    stem = name.partition("@")[0]
    if stem not in METRICS:
        return ""
    return "mean per rating" if stem in ("mse", "rmse", "mae", "rank") else "mean per user"


def _value(record: RunRecord, name: str) -> float:
    value = record.summary.metrics.get(name)
    return math.nan if value is None else value


def _best(records: Sequence[RunRecord], name: str) -> float | None:
    """The best value of several runs; None where it is not known which way is better."""
    lower = meaning(name).lower_is_better
    known = [value for record in records if math.isfinite(value := _value(record, name))]
    if lower is None or not known or len(records) < 2:
        return None
    return min(known) if lower else max(known)


def _result(records: Sequence[RunRecord], name: str, ranked: bool) -> dict[str, Any]:
    """A row of the table of results; the best is marked where runs can be `ranked`."""
    values = [_value(record, name) for record in records]
    best = _best(records, name) if ranked else None
    cells = [
        {"value": value, "interval": record.summary.intervals.get(name), "best": value == best}
        for record, value in zip(records, values, strict=True)
    ]
    return {"metric": name, "mean_over": mean_over(name), "places": decimals(values), "cells": cells}


def _pairs(records: Sequence[RunRecord], names: Sequence[str], name: str) -> list[tuple[str, Paired]]:
    found = [
        (label, compare_users(records[0], record, name, permutations=_PERMUTATIONS))
        for label, record in zip(names[1:], records[1:], strict=True)
    ]
    return [(label, result) for label, result in found if result is not None]


def compare_users(
    first: RunRecord,
    second: RunRecord,
    name: str,
    permutations: int = 5000,
    names: tuple[str, str] | None = None,
) -> Paired | None:
    """Two runs by one metric of the users that both were tested on; None where there are fewer than two."""
    ids, values = first.per_user(name)
    other_ids, others = second.per_user(name)
    _shared, here, there = np.intersect1d(ids.astype(str), other_ids.astype(str), return_indices=True)
    a, b = values[here], others[there]
    known = np.isfinite(a) & np.isfinite(b)
    if known.sum() < 2:
        return None
    called = names or (first.name, second.name)
    return compare_paired(a[known], b[known], metric=name, names=called, permutations=permutations)


def _estimates(records: Sequence[RunRecord], names: Sequence[str], lead: str) -> Figure:
    known = meaning(lead)
    way = {True: "lower is better", False: "higher is better", None: "it is not known which way is better"}
    reading = f"Test {known.short} of each run, with its {INTERVAL}; {way[known.lower_is_better]}."
    rows = [
        Estimate(name, _value(record, lead), *record.summary.intervals.get(lead, (None, None)), floor=is_floor)
        for name, record, is_floor in zip(names, records, floor_verdict.among(records, lead), strict=True)
    ]
    rows += floor_verdict.levels(records, names, lead)
    if any(row.floor for row in rows):
        reading += " The dashed line is the floor: a model with biases only, at the same guarantee as the run."
    label = f"Test {known.short} of each run with its interval."
    return Figure(reading, estimates(rows, label=label, x_title=f"Test {known.short}"))


def _learning(records: Sequence[RunRecord], names: Sequence[str], lead: str | None) -> Figure | None:
    """One line for every run with several rounds; a level for every run with one."""
    found = [name for record in records for name in record.scope_metrics("round")]
    name = lead if lead in found else leading(found)
    if name is None:
        return None
    series: list[Series] = []
    levels: list[Reference] = []
    left_out = []
    for label, record in zip(names, records, strict=True):
        rounds, values = record.per_round(name)
        known = np.isfinite(values)
        if known.sum() > 1 and len(series) < COLOURS:
            series.append(Series(label, rounds, values))
        elif known.sum() == 1 and len(levels) < COLOURS:
            levels.append(Reference(short(label, 44), float(values[known][0])))
        else:
            left_out.append(label)
    if not series:
        return None
    reading = f"Test {meaning(name).short} after each round."
    if levels:
        reading += " Horizontal dashed lines are runs of a single round."
    floors = [Reference(short(level.name, 44), level.value) for level in floor_verdict.levels(records, names, name)]
    if floors:
        reading += " The floor is a model with biases only, at the same guarantee as the run."
    if left_out:
        reading += f" Not drawn: {listing(left_out)}."
    drawing = line_chart(
        series,
        label=f"Line chart of test {meaning(name).short} after each round, one line for each run.",
        x_title="Round",
        y_title=f"Test {meaning(name).short}",
        references=[*levels, *floors],
    )
    return Figure(reading, drawing, [s.name for s in series])


def _sending(records: Sequence[RunRecord], names: Sequence[str]) -> Figure:
    rows = [
        (name, float(record.summary.bytes_up), float(record.summary.bytes_down))
        for name, record in zip(names, records, strict=True)
    ]
    if not any(up or down for _name, up, down in rows):
        return Figure("None of these runs sent anything.")
    name, most, _down = max(rows, key=lambda row: row[1])
    reading = f"{name}: {size(most)} left the parties, more than in any other run."
    if sum(up == most for _name, up, _down in rows) > 1 or len(rows) == 1:
        reading = f"At most {size(most)} left the parties of a run."
    return up_and_down(reading, "Bars of bytes in each run.", rows)
