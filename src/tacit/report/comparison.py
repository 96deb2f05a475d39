"""Several runs side by side: what each achieved, what it promises, and what it sent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tacit.errors import UsageError
from tacit.evaluate.metrics import METRICS
from tacit.report import floor_verdict, page, readings
from tacit.report.bars import Bar, Estimate, bars, estimates
from tacit.report.card import card
from tacit.report.charts import Reference, Series, legend, line_chart
from tacit.report.glossary import leading, meaning
from tacit.report.guarantee_words import brief
from tacit.report.markup import Child, Markup, join, tag
from tacit.report.paired_runs import user_by_user
from tacit.report.record import RunRecord
from tacit.report.svg import COLOURS, DOWN, UP, both
from tacit.report.words import (
    INTERVAL,
    MISSING,
    count,
    decimals,
    epsilon,
    listing,
    metric,
    plural,
    seconds,
    sentence,
    short,
    size,
    spelled,
)


def write_comparison(folders: Sequence[str | Path], path: str | Path) -> Path:
    """Write a comparison of finished runs to `path`; returns it."""
    return page.save(Path(path), compare_report([RunRecord.read(folder) for folder in folders]))


def compare_report(records: Sequence[RunRecord]) -> str:
    """The comparison as one offline HTML page."""
    if not records:
        raise UsageError("There is no run to compare; name at least one run folder, as in: tacit compare runs/…")
    names = labels(records)
    everywhere = [m for m in _metrics(records) if all(m in record.summary.metrics for record in records)]
    lead = leading(everywhere) or leading(_metrics(records))
    title = _headline(records, names, lead)
    head = tag(
        "header",
        tag("p", f"Tacit comparison · {plural(len(records), 'run')}", class_="eyebrow"),
        tag("h1", title),
        tag("p", _alike(records), class_="lede"),
        _warning(records),
    )
    fair = lead is not None and not differences(records)
    return page.page(
        title,
        head,
        _results(records, names, lead),
        user_by_user(records, names, lead) if fair and lead is not None else None,
        _learning(records, names, lead),
        _sending(records, names),
        _promises(records, names),
        _runs(records, names),
        version=records[0].about.tacit,
    )


def labels(records: Sequence[RunRecord]) -> list[str]:
    """A name for each run: its method's, with as much more as it takes to tell it from the others."""
    names = [record.about.method.name for record in records]
    for more in (_setting, _epsilon, _unit, _aggregation, _seed, lambda record: record.name):
        for name in [name for name, often in Counter(names).items() if often > 1]:
            told = {place: more(records[place]) for place, other in enumerate(names) if other == name}
            if len(set(told.values())) > 1:
                for place, word in told.items():
                    names[place] = f"{name}, {word}" if word else name
    often = Counter(names)
    return [f"{name}, no. {place}" if often[name] > 1 else name for place, name in enumerate(names, start=1)]


def _setting(record: RunRecord) -> str:
    return record.summary.setting


def _epsilon(record: RunRecord) -> str:
    return f"ε = {epsilon(record.guarantee.epsilon or 0)}" if record.guarantee else "no privacy"


def _unit(record: RunRecord) -> str:
    return f"per {record.guarantee.unit}" if record.guarantee else ""


def _aggregation(record: RunRecord) -> str:
    return record.run_file.aggregation.name


def _seed(record: RunRecord) -> str:
    return f"seed {record.run_file.seed}"


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


def _best(records: Sequence[RunRecord], name: str) -> int | None:
    """The run that did best, None where that cannot be said."""
    lower = meaning(name).lower_is_better
    known = [(place, _value(r, name)) for place, r in enumerate(records) if math.isfinite(_value(r, name))]
    if lower is None or not known or len(records) < 2:
        return None
    return (min if lower else max)(known, key=lambda pair: pair[1])[0]


def _headline(records: Sequence[RunRecord], names: Sequence[str], lead: str | None) -> str:
    runs = f"{spelled(len(records))} run{'' if len(records) == 1 else 's'} side by side"
    runs = runs[0].upper() + runs[1:]
    best = None if lead is None or differences(records) else _best(records, lead)
    if best is None or lead is None:
        return runs
    value = metric(_value(records[best], lead))
    return f"{runs}: {names[best]} has the best test {meaning(lead).short}, {value}"


def _alike(records: Sequence[RunRecord]) -> str:
    data, found = records[0].about.data, differences(records)
    if "data" in found:
        return "These runs learned from different data."
    if "split" in found or "seed" in found:
        return f"All on {data.name}, with different test sets."
    return f"All on {data.name}: {data.sizes}. {sentence(records[0].about.split)}"


def _warning(records: Sequence[RunRecord]) -> Markup | None:
    found = differences(records)
    if not found:
        return None
    text = f"The runs differ in {listing(found)}: their metrics were not measured alike on the same test."
    return tag("div", tag("b", "Compare with care"), tag("p", text), class_="stamp simulated", role="note")


def _results(records: Sequence[RunRecord], names: Sequence[str], lead: str | None) -> Markup:
    fair = not differences(records)
    rows = []
    for name in _metrics(records):
        places = decimals([_value(record, name) for record in records])
        best = _best(records, name) if fair else None
        top = None if best is None else _value(records[best], name)
        title = tag("abbr", meaning(name).short, title=meaning(name).long)
        title = join([title, tag("span", mean_over(name), class_="under")])
        rows.append([title, *(_result(record, name, places, _value(record, name) == top) for record in records)])
    head = [
        "",
        *(join([name, tag("span", _chip(r), class_="under")]) for name, r in zip(names, records, strict=True)),
    ]
    table = page.table(head, rows, numeric=range(1, len(head)))
    drawn = _estimates(records, names, lead) if lead else None
    said = [
        tag("li", tag("b", f"{short(name, 60)}: "), words) for name, words in floor_verdict.verdicts(records, names)
    ]
    return page.section("How well they did", drawn, table, tag("ul", *said) if said else None)


def _result(record: RunRecord, name: str, places: int, best: bool) -> Markup:
    value, interval = _value(record, name), record.summary.intervals.get(name)
    if not math.isfinite(value):
        return tag("span", MISSING)
    shown, under = page.number(value, metric(value, places)), None
    if interval and None not in interval:
        low, high = (page.number(float(end or 0), metric(end, places)) for end in interval)
        under = tag("span", low, "–", high, class_="under")
    return join([tag("span", shown, class_="best") if best else shown, under])


def _estimates(records: Sequence[RunRecord], names: Sequence[str], lead: str) -> Markup:
    known = meaning(lead)
    way = {True: "lower is better", False: "higher is better", None: "which way is better, nobody said"}
    reading = f"Test {known.short} of each run, with its {INTERVAL}; {way[known.lower_is_better]}."
    drawn = [
        Estimate(name, _value(record, lead), *record.summary.intervals.get(lead, (None, None)), floor=is_floor)
        for name, record, is_floor in zip(names, records, floor_verdict.among(records, lead), strict=True)
    ]
    below = floor_verdict.levels(records, names, lead)
    drawn += [Estimate(level.name, level.value, level.low, level.high, floor=True) for level in below]
    if any(row.floor for row in drawn):
        reading += " Dashed is the floor: biases alone, at the same guarantee as the run."
    label = f"Test {known.short} of each run with its interval."
    title = f"Test {known.short}"
    return page.figure(reading, both(lambda width: estimates(drawn, label=label, x_title=title, width=width)))


def _learning(records: Sequence[RunRecord], names: Sequence[str], lead: str | None) -> Markup | None:
    """One line for every run with rounds; a level for every run that was done after one."""
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
        reading += " Dashed levels are runs of a single round."
    below = [Reference(short(level.name, 44), level.value) for level in floor_verdict.levels(records, names, name)]
    if below:
        reading += " The floor is biases alone, at the same guarantee as the run."
    if left_out:
        reading += f" Not drawn: {listing(left_out)}."
    drawing = both(
        lambda width: line_chart(
            series,
            label=f"Line chart of test {meaning(name).short} after each round, one line for each run.",
            x_title="Round",
            y_title=f"Test {meaning(name).short}",
            references=[*levels, *below],
            width=width,
        )
    )
    return page.section("How they learned", page.figure(reading, legend([s.name for s in series]), drawing))


def _sending(records: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    heading = "What they sent"
    rows = [Bar(n, r.summary.bytes_up, r.summary.bytes_down) for n, r in zip(names, records, strict=True)]
    if not any(row.up or row.down for row in rows):
        return page.section(heading, tag("p", "None of these runs sent anything."))
    most = max(rows, key=lambda row: row.up)
    reading = f"{most.name}: {size(most.up)} left the parties, more than in any other run."
    if len(rows) == 1 or sum(row.up == most.up for row in rows) > 1:
        reading = f"At most {size(most.up)} left the parties of a run."
    drawing = both(lambda width: bars(rows, label=f"Bars of bytes in each run. {reading}", width=width))
    keys = legend(["sent (up)", "received (down)"], (UP, DOWN))
    return page.section(heading, page.figure(reading, keys, drawing))


def _promises(records: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    rows = []
    for record, name in zip(records, names, strict=True):
        content = card(record)
        words = content.stamp if content.private else content.sections[0].sentences[0]
        rows.append((short(name, 60), _chip(record), words))
    return page.section("What they promise", page.table(("Run", "Guarantee", "In words"), rows))


def _chip(record: RunRecord) -> Markup:
    its = record.guarantee
    kind = "none" if its is None else "simulated" if its.simulated else "holds"
    return tag("span", brief(record.guarantee, record.about.hidden), class_=f"chip {kind}")


def _runs(records: Sequence[RunRecord], names: Sequence[str]) -> Markup:
    rows: list[tuple[Child, ...]] = []
    for record, name in zip(records, names, strict=True):
        summary = record.summary
        rows.append(
            (
                join([name, tag("span", record.about.method.title, class_="under")]),
                tag("code", short(record.name, 80)),
                plural(*readings.who(record)).replace(" ", "\u00a0"),
                page.number(summary.rounds, count(summary.rounds)),
                page.number(summary.bytes_up, size(summary.bytes_up)),
                page.number(summary.bytes_down, size(summary.bytes_down)),
                page.number(summary.seconds, seconds(summary.seconds)),
            )
        )
    head = ("Run", "Folder", "Who", "Rounds", "Up", "Down", "Time")
    digests = [tag("code", short(record.summary.digest, 200), class_="long") for record in records]
    return page.section(
        "The runs",
        page.table(head, rows, numeric=(3, 4, 5, 6)),
        page.folded("Digests", page.pairs(zip(names, digests, strict=True))),
        page.folded("What the metrics mean", page.glossary(_metrics(records))),
    )
