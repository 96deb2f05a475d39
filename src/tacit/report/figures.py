"""The report's charts, each under one sentence that says what it shows."""

from __future__ import annotations

import math

import numpy as np

from tacit.report import floor_verdict, page, readings, traffic
from tacit.report.bars import Bar, bars, stacked_rounds
from tacit.report.charts import Reference, Series, histogram, legend, line_chart
from tacit.report.glossary import leading, meaning
from tacit.report.markup import Child, Markup, tag
from tacit.report.record import RunRecord
from tacit.report.svg import COLOURS, DOWN, UP, both
from tacit.report.words import count, listing, metric, plural, sentence

MOST_PARTIES = 20
DEPLOYED = (
    "No curve is drawn: test ratings stay at the sites, and nobody measures the model after each round. At the end "
    "every site judges for itself what it predicts with, and keeps the result at home."
)


def learning(record: RunRecord) -> Markup:
    """Metrics over the rounds, the leading one first."""
    names = record.scope_metrics("round")
    lead = readings.lead_metric(record)
    first = lead if lead in names else leading(names)
    if first is None:
        said = "This run has no rounds with a value to show."
        return page.section("How it learned", tag("p", DEPLOYED if record.about.deployed else said))
    rest = [name for name in names if name != first][:3]
    drawn = [_convergence(record, name, 300.0 if name == first else 220.0) for name in (first, *rest)]
    return page.section("How it learned", *drawn)


def _convergence(record: RunRecord, name: str, height: float) -> Markup:
    rounds, values = record.per_round(name)
    known = meaning(name)
    final, shared = record.summary.metrics.get(name), record.summary.metrics_shared.get(name)
    reading = readings.read_convergence(name, rounds, values)
    references = floor_verdict.reference(record, name)
    if final is not None and math.isfinite(final):
        if shared is not None:
            references.append(Reference(f"after fine-tuning: {metric(final)}", final))
        else:
            reading = " ".join([reading, *readings.read_final(name, values, final)])
    if np.isfinite(values).sum() < 2:
        return tag("p", reading)
    drawing = both(
        lambda width: line_chart(
            [Series(known.short, rounds, values)],
            label=f"Line chart of test {known.short} after each round. {reading}",
            x_title="Round",
            y_title=f"Test {known.short}",
            references=references,
            width=width,
            height=height,
        )
    )
    return page.figure(reading, drawing)


def users(record: RunRecord) -> Markup | None:
    """The leading metric's spread over users."""
    names = record.scope_metrics("user")
    lead = readings.lead_metric(record)
    name = lead if lead in names else leading(names)
    if name is None:
        return None
    _, values = record.per_user(name)
    known, heading = meaning(name), "How it serves each user"
    reading = readings.read_histogram(name, values)
    if np.isfinite(values).sum() < 2:
        return page.section(heading, tag("p", reading))
    drawing = both(
        lambda width: histogram(
            values,
            label=f"Histogram of {known.short} over users. {reading}",
            x_title=f"{known.short} of one user",
            references=floor_verdict.user_mean(record, name),
            width=width,
        )
    )
    return page.section(heading, page.figure(reading, drawing))


def sending(record: RunRecord) -> Markup:
    """Bytes by party, and by round and step."""
    heading, remarks = "Who sent what", _remarks(record)
    everybody, noun = traffic.by_party(record), readings.who(record)[1]
    shown, others = traffic.largest(everybody, MOST_PARTIES)
    reading = readings.read_parties(everybody, others, noun)
    rows = [Bar(_party(row), row.up, row.down) for row in shown]
    if others is not None and readings.all_alike(everybody):
        rows, others = [Bar(f"each {noun}", shown[0].up, shown[0].down)], None
    if others is not None:
        mean = others.up / others.parties, others.down / others.parties
        rows.append(Bar(f"{count(others.parties)} others, mean", *mean))
    if not any(row.up or row.down for row in rows):
        return page.section(heading, tag("p", reading), *remarks)
    by_party = page.figure(
        reading,
        legend(["sent (up)", "received (down)"], (UP, DOWN)),
        both(lambda width: bars(rows, label=f"Bars of bytes sent and received. {reading}", width=width)),
    )
    return page.section(heading, by_party, _by_round(record), *remarks)


def _by_round(record: RunRecord) -> Markup:
    moved = traffic.few_steps(traffic.by_round(record), COLOURS)
    reading = readings.read_rounds(moved)
    label = f"Stacked bars of bytes in each round. {reading}"
    if len(moved.rounds) < 2:
        return tag("p", reading)
    return page.figure(
        reading,
        legend(moved.steps, range(COLOURS)),
        both(lambda width: stacked_rounds(moved.rounds, moved.up, moved.down, label=label, width=width)),
    )


def _remarks(record: RunRecord) -> list[Child]:
    arrived, moved = traffic.transcript_totals(record, arrived_only=True), traffic.transcript_totals(record)
    lost = [f"{count(n)} {status}" for status, n in traffic.troubles(record).items()]
    said = [
        f"Not all answers arrived in time: {sentence(listing(lost))}" if lost else None,
        readings.read_agreement(record, arrived, moved),
        f"These are the run's own messages; {readings.beside(record)}." if record.about.beside else None,
    ]
    return [tag("p", text, class_="small") for text in said if text]


def _party(row: traffic.PartyTraffic) -> str:
    return f"{row.title}, {plural(row.devices, 'device')}" if row.devices else row.title
