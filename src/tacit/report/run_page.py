"""The report of a run: one HTML page.

Its sentences are in templates/report.html, readings (numbers), floor_verdict (comparisons) and card (the guarantee).
"""

from __future__ import annotations

import math
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from tacit.report import floor_verdict, page, readings
from tacit.report.bars import DOWN, UP, Bar, bars, stacked_rounds
from tacit.report.card import card, privacy_card
from tacit.report.charts import Reference, Series, histogram, line_chart
from tacit.report.description import AboutParty
from tacit.report.floor_verdict import compared_metrics, contenders, missing, remarks
from tacit.report.folder import RunRecord
from tacit.report.metric_names import leading, meaning
from tacit.report.page import Figure
from tacit.report.svg import COLOURS
from tacit.report.words import count, decimals, listing, metric, moment, plural, short

_MOST_RUN_FILE = 12_000  # characters of run.toml that are shown
_MOST_PARTIES = 20  # parties that are shown one by one


def write_report(folder: str | Path) -> Path:
    """Write report.html into a finished run's folder; returns where it is."""
    record = RunRecord.read(folder)
    return page.save(record.folder / "report.html", report(record))


def write_card(folder: str | Path) -> Path:
    """Write card.md into a finished run's folder; returns where it is."""
    record = RunRecord.read(folder)
    return page.save(record.folder / "card.md", privacy_card(record))


def report(record: RunRecord) -> str:
    """The report as HTML."""
    about, text = record.about, record.run_text
    eyebrow = [short(part, 100) for part in ("Tacit run report", record.name, moment(about.created)) if part]
    versions = (("Tacit", about.tacit), ("Python", about.python), ("NumPy", about.numpy))
    others = contenders(record)
    compared = [
        {
            "metric": name,
            "title": f"Test {meaning(name).short}",
            "places": decimals([one.value(name) for one in others]),
        }
        for name in compared_metrics(record)
    ]
    return page.render(
        "report.html",
        title=readings.headline(record),
        eyebrow=" · ".join(eyebrow),
        lede=readings.lede(record),
        version=about.tacit,
        record=record,
        card=card(record),
        columns=_columns(len(record.summary.metrics)),
        outside=about.bytes_sent("before") + about.bytes_sent("after"),
        others=others,
        compared=compared,
        remarks=[*remarks(record), *missing(record)],
        learning=_learning(record),
        users=_users(record),
        sending=_sending(record),
        traffic_remarks=readings.traffic_remarks(record),
        data=readings.data_sentence(record),
        roster=_roster(about.partition.parties),
        parameters=[(short(key, 60), _setting(value)) for key, value in list(about.method.parameters.items())[:60]],
        versions=listing(f"{name} {version}" for name, version in versions if version),
        run_text=text if len(text) <= _MOST_RUN_FILE else f"{text[:_MOST_RUN_FILE]}\n…",
    )


def _columns(n: int) -> int:
    """How many columns leave the fewest gaps."""
    return max((5, 4, 3), key=lambda columns: (-(-n % columns), columns)) if n > 3 else 3


def _learning(record: RunRecord) -> list[Figure]:
    names, lead = record.scope_metrics("round"), readings.lead_metric(record)
    first = lead if lead in names else leading(names)
    if first is None:
        return []
    rest = [name for name in names if name != first][:3]
    return [_learning_curve(record, name, 300.0 if name == first else 220.0) for name in (first, *rest)]


def _learning_curve(record: RunRecord, name: str, height: float) -> Figure:
    (rounds, values), known = record.per_round(name), meaning(name).short
    final, shared = record.summary.metrics.get(name), record.summary.metrics_shared.get(name)
    reading = readings.read_convergence(name, rounds, values)
    references = floor_verdict.reference(record, name)
    if final is not None and math.isfinite(final):
        if shared is not None:
            references.append(Reference(f"after fine-tuning: {metric(final)}", final))
        else:
            reading = " ".join([reading, *readings.read_final(values, final)])
    if np.isfinite(values).sum() < 2:
        return Figure(reading)
    drawing = line_chart(
        [Series(known, rounds, values)],
        label=f"Line chart of test {known} after each round. {reading}",
        x_title="Round",
        y_title=f"Test {known}",
        references=references,
        height=height,
    )
    return Figure(reading, drawing)


def _users(record: RunRecord) -> Figure | None:
    names, lead = record.scope_metrics("user"), readings.lead_metric(record)
    name = lead if lead in names else leading(names)
    if name is None:
        return None
    (_ids, values), known = record.per_user(name), meaning(name).short
    reading = readings.read_histogram(name, values)
    if np.isfinite(values).sum() < 2:
        return Figure(reading)
    drawing = histogram(
        values,
        label=f"Histogram of {known} over users. {reading}",
        x_title=f"{known} of one user",
        references=floor_verdict.user_mean(record, name),
    )
    return Figure(reading, drawing)


def _sending(record: RunRecord) -> list[Figure]:
    everyone, noun = readings.by_party(record), readings.who(record)[1]
    shown, others = readings.largest(everyone, _MOST_PARTIES)
    reading = readings.read_parties(everyone, others, noun)
    titles = [f"{row.title}, {plural(row.devices, 'device')}" if row.devices else row.title for row in shown]
    rows = [(title, float(row.up), float(row.down)) for title, row in zip(titles, shown, strict=True)]
    if others is not None and readings.all_alike(everyone):
        rows = [(f"each {noun}", *rows[0][1:])]
    elif others is not None:
        n = others.parties
        rows.append((f"{count(n)} others, mean", others.up / n, others.down / n))
    if not any(up or down for _name, up, down in rows):
        return [Figure(reading)]
    return [up_and_down(reading, "Bars of bytes sent and received.", rows), _by_round(record)]


def up_and_down(reading: str, label: str, rows: list[tuple[str, float, float]]) -> Figure:
    """Bars of (name, bytes up, bytes down)."""
    drawn = [Bar(name, [(up, UP), (down, DOWN)]) for name, up, down in rows]
    drawing = bars(drawn, label=f"{label} {reading}", names=("up", "down"))
    return Figure(reading, drawing, ("sent (up)", "received (down)"), (UP, DOWN))


def _by_round(record: RunRecord) -> Figure:
    moved = readings.few_steps(readings.by_round(record), COLOURS)
    reading = readings.read_rounds(moved)
    if len(moved.rounds) < 2:
        return Figure(reading)
    label = f"Stacked bars of bytes in each round. {reading}"
    drawing = stacked_rounds(moved.rounds, moved.up, moved.down, label=label)
    return Figure(reading, drawing, moved.steps, range(COLOURS))


def _roster(parties: list[AboutParty]) -> tuple[tuple[str, ...], list[tuple[str, ...]], range]:
    """Head, rows and numeric columns of the parties' table: the largest, and all others as one."""
    shown, rest = parties, []
    if len(parties) > _MOST_PARTIES:
        ranked = sorted(parties, key=lambda party: -party.ratings)
        shown, rest = ranked[:_MOST_PARTIES], ranked[_MOST_PARTIES:]
    rows: list[tuple[str, ...]] = [
        (short(p.title, 80), count(p.users), count(p.items), count(p.ratings), count(p.devices)) for p in shown
    ]
    if rest:
        users, ratings, devices = (sum(getattr(p, key) for p in rest) for key in ("users", "ratings", "devices"))
        rows.append((f"{count(len(rest))} others", count(users), "", count(ratings), count(devices)))
    known = (True, True, True, any(p.ratings for p in parties), any(p.devices for p in parties))
    head = tuple(compress(("Party", "Users", "Items", "Ratings", "Devices"), known))
    return head, [tuple(compress(row, known)) for row in rows], range(1, len(head))


def _setting(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "not set", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return count(value)
    return short(", ".join(str(v) for v in value[:20]) if isinstance(value, list) else value, 200)
