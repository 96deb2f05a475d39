"""The report of a run: one HTML file to be read from top to bottom, which needs nothing else."""

from __future__ import annotations

import math
from pathlib import Path

from tacit.report import contenders, figures, page, readings
from tacit.report.card import card, privacy_card
from tacit.report.glossary import meaning
from tacit.report.markup import Child, Markup, join, tag
from tacit.report.record import RunRecord
from tacit.report.story import story
from tacit.report.words import (
    INTERVAL,
    count,
    decimals,
    listing,
    metric,
    moment,
    seconds,
    sentence,
    short,
    size,
    unbroken,
)

_MOST_RUN_FILE = 12_000  # characters of run.toml that are shown


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
    content = card(record)
    eyebrow = [short(part, 100) for part in ("Tacit run report", record.name, moment(record.about.created)) if part]
    head = tag(
        "header",
        tag("p", " · ".join(eyebrow), class_="eyebrow"),
        tag("h1", readings.headline(record)),
        tag("p", unbroken(readings.lede(record)), class_="lede"),
        page.stamp(content),
        page.floor(content.floor, content.private) if content.floor is not None else None,
        _key_numbers(record),
    )
    return page.page(
        readings.headline(record),
        head,
        contenders.beside(record),
        figures.learning(record),
        figures.users(record),
        figures.sending(record),
        story(record),
        page.section("Privacy card", page.card_sections(content)),
        _again(record),
        version=record.about.tacit,
    )


def _key_numbers(record: RunRecord) -> Markup:
    summary = record.summary
    tiles = [_metric_tile(record, name) for name in summary.metrics]
    effort = [
        _tile("Rounds", page.number(summary.rounds, count(summary.rounds))),
        _tile("Left the parties", page.number(summary.bytes_up, size(summary.bytes_up)), *_beside(record)),
        _tile("Reached the parties", page.number(summary.bytes_down, size(summary.bytes_down))),
        _tile("Time", page.number(summary.seconds, seconds(summary.seconds))),
    ]
    known = " ".join(sentence(short(note, 300)) for note in record.about.notes[:5])
    spans = f"Ranges are {INTERVAL}s, over users." if summary.intervals else ""
    remark = " ".join(part for part in (spans, known) if part)
    return join(
        [
            tag("dl", *tiles, class_="numbers", style=f"--columns: {_columns(len(tiles))}") if tiles else None,
            tag("dl", *effort, class_="numbers effort", style="--columns: 4"),
            tag("p", remark, class_="small") if remark else None,
        ]
    )


def _beside(record: RunRecord) -> list[Child]:
    """What left the parties beside the run's own messages."""
    told = record.about.bytes_sent("before") + record.about.bytes_sent("after")
    return [tag("div", "and ", page.number(told, size(told)), " beside the run", class_="more")] if told else []


def _columns(n: int) -> int:
    """How many columns leave the fewest gaps."""
    return max((5, 4, 3), key=lambda columns: (-(-n % columns), columns)) if n > 3 else max(n, 3)


def _metric_tile(record: RunRecord, name: str) -> Markup:
    summary = record.summary
    value, interval = summary.metrics[name], summary.intervals.get(name)
    places = decimals([value, *(interval or ())])
    more: list[Child] = []
    if interval and None not in interval:
        low, high = (_exact(end, metric(end, places)) for end in interval)
        more.append(tag("div", low, " – ", high, class_="more"))
    if name in summary.metrics_shared:
        before = _exact(summary.metrics_shared[name], metric(summary.metrics_shared[name], places))
        more.append(tag("div", before, " before fine-tuning", class_="more"))
    floor = record.about.floor
    if floor is not None and name in floor.metrics:
        its = _exact(floor.metrics[name], metric(floor.metrics[name], places))
        more.append(tag("div", f"{floor.name}: ", its, class_="more"))
    title = tag("abbr", meaning(name).short, title=meaning(name).long)
    return _tile(title, _exact(value, metric(value, places)), *more)


def _tile(title: str, figure: Markup, *more: Child) -> Markup:
    return tag("div", tag("dt", title), tag("dd", tag("div", figure, class_="figure"), *more))


def _exact(value: float | None, shown: str) -> Markup:
    return page.number(value, shown) if value is not None and math.isfinite(value) else tag("span", shown)


def _again(record: RunRecord) -> Markup:
    about, summary = record.about, record.summary
    known = (("Tacit", about.tacit), ("Python", about.python), ("NumPy", about.numpy))
    facts: list[tuple[str, Child]] = [
        ("Seed", page.number(record.run_file.seed, str(record.run_file.seed))),
        ("Digest", tag("code", short(summary.digest, 200), class_="long")),
        ("Versions", listing(f"{name} {version}" for name, version in known if version)),
        ("Made", moment(about.created)),
    ]
    repeats = "the same file and seed give the same digest"
    if not record.repeatable:
        repeats = "the noise will be fresh, and the digest another"
    lines = record.run_text[:_MOST_RUN_FILE].splitlines(keepends=True)
    if len(record.run_text) > _MOST_RUN_FILE:
        lines.append("\n…")
    return page.section(
        "Do it again",
        tag("p", f"The run file and {'the same sites' if about.deployed else 'the data'} are all it takes: {repeats}."),
        tag("pre", tag("code", "tacit up run.toml --keys …" if about.deployed else "tacit run run.toml")),
        page.pairs((key, value) for key, value in facts if value),
        page.folded("The run file, run.toml", tag("pre", tag("code", *lines))),
        page.folded("What the metrics mean", page.glossary(summary.metrics)) if summary.metrics else None,
    )
