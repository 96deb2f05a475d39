"""The privacy card: who is protected from whom, at what ε, assuming what; what crossed; what was not.

`card(record)` is its content, `privacy_card(record)` its Markdown, for whoever has to sign: short and exact.
Without a guarantee it is stamped NON-PRIVATE. Nothing on it is guessed: what a run does not say, the card
says is unsaid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit import aggregation as aggregations
from tacit.report import crossed, guarantee_words, traffic
from tacit.report.floor_verdict import WHAT, Verdict, verdict
from tacit.report.markup import clean
from tacit.report.record import RunRecord
from tacit.report.words import MISSING, count, epsilon, listing, moment, percent, plural, sentence, short

NON_PRIVATE = "Nothing here limits what the coordinator or another party can learn from what crossed."


def _seen(aggregation: str) -> str:
    """An aggregation's name and who sees what under it, where it is installed here."""
    found = aggregations.known().working().get(aggregation)
    return short(aggregation, 60) if found is None else f"{found.name}: {found.seen}"


@dataclass(frozen=True)
class Table:
    """Head, rows of text, and which columns hold numbers."""

    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    numeric: tuple[int, ...] = ()


@dataclass(frozen=True)
class Section:
    """A heading, sentences, a table perhaps, and points."""

    heading: str
    sentences: Sequence[str] = ()
    points: Sequence[str] = ()
    table: Table | None = None


@dataclass(frozen=True)
class Card:
    """The card's content, free of any format."""

    private: bool
    simulated: bool
    shares_metrics: bool
    stamp: str
    statement: str
    floor: Verdict | None
    facts: list[tuple[str, str]]
    sections: list[Section]


def privacy_card(record: RunRecord) -> str:
    """The card as Markdown, for card.md."""
    content = card(record)
    judged = "" if content.floor is None or not content.floor.brief else f": {_markdown(content.floor.brief)}"
    lines = [f"# Privacy card{judged}", "", f"**{_markdown(content.stamp)}**", "", _markdown(content.statement), ""]
    if content.floor is not None:
        lines += [f"**{_markdown(content.floor.title)}.** {_markdown(content.floor.words)}", ""]
    lines += [*_markdown_table(Table(("", ""), content.facts)), ""]
    for section in content.sections:
        lines += [f"## {section.heading}", ""]
        for text in section.sentences:
            lines += [_markdown(text), ""]
        if section.table is not None:
            lines += [*_markdown_table(section.table), ""]
        if section.points:
            lines += [*(f"- {_markdown(point)}" for point in section.points), ""]
    return "\n".join(lines).rstrip() + "\n"


def card(record: RunRecord) -> Card:
    """The card of one run."""
    stated, setting = record.guarantee, record.summary.setting
    if stated is None:
        stamp, statement = "NON-PRIVATE", NON_PRIVATE
        if record.about.hidden:
            stamp = f"NON-PRIVATE · {short(record.about.hidden, 300)}"
            statement = (
                "No noise was added: nothing limits what is seen, sums and means, says about one user, nor what "
            )
            statement += "two of them over different parties say if one is subtracted from the other."
        if record.summary.guarantee is not None:
            statement = f"{NON_PRIVATE} {guarantee_words.void(record.summary.guarantee)}"
    else:
        stamp = guarantee_words.one_line(stated, setting)
        statement = (
            guarantee_words.SIMULATED if stated.simulated else "What this covers, and what it does not, is said below."
        )
        if crossed.metrics_told(record):
            statement += " METRICS SHARED: beside it sites chose to tell metrics, which no ε covers."
    sections = [_protected(record), _assumptions(record), *_loudness(record), _crossed(record)]
    sections += [_unprotected(record), *_floor(record), _checks(record)]
    if record.about.notes:
        sections.append(Section("Notes of the run", points=[sentence(short(n, 400)) for n in record.about.notes[:20]]))
    return Card(
        private=stated is not None,
        simulated=stated is not None and stated.simulated,
        shares_metrics=crossed.metrics_told(record),
        stamp=stamp,
        statement=statement,
        floor=verdict(record),
        facts=_facts(record),
        sections=sections,
    )


def _facts(record: RunRecord) -> list[tuple[str, str]]:
    about, summary = record.about, record.summary
    parties = about.partition.parties
    devices = sum(party.devices for party in parties)
    who = plural(devices, "device") if devices else plural(len(parties), "party")
    facts = [
        ("Run", record.name),
        ("Made", moment(about.created)),
        ("Method", about.method.title or about.method.name),
        ("Data", f"{about.data.name}: {plural(about.data.users, 'user')}, {about.data.rated}"),
        ("Who took part", f"{who}, in the {summary.setting} setting"),
        ("Rounds", count(summary.rounds)),
        ("Void sums", f"{count(summary.void)}: what left for them is charged" if summary.void else ""),
        *crossed.totals(record),
        ("Digest", summary.digest),
    ]
    stated = record.guarantee
    if stated is not None and stated.claimed_epsilon is not None:
        facts.insert(0, ("ε that the paper's formulas claim", epsilon(stated.claimed_epsilon)))
        facts.insert(1, ("ε that truly holds", epsilon(stated.epsilon or 0)))
    return [(key, short(value, 200)) for key, value in facts if value]


def _protected(record: RunRecord) -> Section:
    heading, stated = "Who is protected from whom", record.guarantee
    if stated is not None:
        several = guarantee_words.in_several_silos(stated, record.summary.setting)
        told = ["That is for the run's own messages: the metrics that sites chose to tell after it are not covered."]
        return Section(
            heading, [*guarantee_words.explained(stated), *(told if crossed.metrics_told(record) else [])], several
        )
    kinds = {crossing.kind for crossing in record.about.crossings}
    sentences = ["Nobody is protected from anybody: no ε holds for this run."]
    if record.about.hidden:
        sentences = ["No ε holds for this run: only single contributions are hidden, not what their sums say."]
    if kinds & {"chain", "sum", "report"}:
        sentences.append(
            "What crossed was computed from ratings and carries no noise; ratings can be inferred from it."
        )
    if "disclose" in kinds:
        sentences.append("Some of it was disclosed as it is: what that was, stands under What crossed.")
    if kinds == {"public"}:
        sentences.append("What crossed is said to be public facts only, which hold nothing of the ratings.")
    return Section(heading, [" ".join(sentences)])


def _assumptions(record: RunRecord) -> Section:
    aggregation = record.run_file.aggregation.name
    points = [f"Aggregation is {_seen(aggregation)}."]
    if record.guarantee is not None:
        chains = any(crossing.kind == "chain" for crossing in record.about.crossings)
        points = [*guarantee_words.assumptions(record.guarantee, chains), *points]
    points += record.about.sealing
    data = record.about.data
    if record.guarantee is not None or data.features:
        points.append(guarantee_words.assumed_public(data.items, data.features))
    return Section("Assuming what", points=points)


def _loudness(record: RunRecord) -> list[Section]:
    """How loud the noise of each private step is, as forecast before the run."""
    steps = record.about.steps_noise[:20]
    if not steps:
        return []
    head = ("Step", "Asked", "Sampling", "Sensitivity", "σ", "Cells", "Signal", "Ratio")
    rows = [
        (
            short(step.step, 60),
            f"{count(step.releases)} × {count(step.answers)}",
            "everybody" if step.sampling >= 1 else percent(step.sampling),
            *(_three(number) for number in (step.sensitivity, step.sigma)),
            count(step.cells),
            *((_three(step.signal), _three(step.signal_to_noise)) if step.signal else (MISSING, MISSING)),
        )
        for step in steps
    ]
    faintest = min(steps, key=lambda step: step.signal_to_noise or math.inf)
    meant = (
        "Ratio is signal over noise: the forecast size of one cell of one answer, all contributions added, from public "
        "facts alone, over the noise that it carries. Far below 1 means that a single cell is almost all noise: only "
        "what very many cells, answers and rounds have in common can be learned from it."
    )
    if 0 < faintest.signal_to_noise < 1:
        times = _three(1 / faintest.signal_to_noise)
        meant += f" Here the noise of a cell of “{short(faintest.step, 60)}” is {times} times its signal."
    table = Table(head, rows, numeric=tuple(range(1, len(head))))
    terms = "Asked: releases × noisy answers in each. Sensitivity: the most that one unit moves an answer. "
    terms += "σ: the noise on each cell of an answer; under a seal, of the whole sum, to which each adds a share."
    return [Section("How loud the noise is", [meant], [terms], table)]


def _three(number: float) -> str:
    """Three digits, as people write them."""
    if not math.isfinite(number):
        return MISSING
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e7 else f"{number:.3g}".replace("-", "−")


def _floor(record: RunRecord) -> list[Section]:
    floor = record.about.floor
    if floor is None:
        return []
    said = [WHAT.format(name=floor.name)]
    if names := [short(one.name, 40) for one in record.about.references[:10] if one.metrics]:
        said.append(
            f"The report also shows {listing(names)}: NON-PRIVATE, for comparison; they stay with the experimenter."
        )
    return [Section("What the floor is", said)]


def _crossed(record: RunRecord) -> Section:
    rows = crossed.rows(record)
    if not rows:
        return Section("What crossed", ["Nothing: no message passed between any two roles."])
    return Section("What crossed", points=crossed.points(record), table=Table(crossed.HEAD, rows, numeric=(4, 5, 6)))


def _unprotected(record: RunRecord) -> Section:
    crossings, points = record.about.crossings, []
    disclosed = list(dict.fromkeys(crossing.step for crossing in crossings if crossing.kind == "disclose"))
    unknown = sorted({step.step for step in traffic.by_step(record)} - {crossing.step for crossing in crossings})
    if record.guarantee is None:
        seen = "what is seen of it" if record.about.hidden else "everything in the table"
        points.append(f"{seen[:1].upper()}{seen[1:]} that is not marked public.")
    elif disclosed:
        points.append(f"What was disclosed outside the guarantee: {listing(disclosed)}.")
    if unknown:
        points.append(f"What the run does not describe, so that nothing here covers it: {listing(unknown)}.")
    if record.guarantee is not None:
        place = record.run_file.aggregation.name, record.summary.setting
        points += [*guarantee_words.not_covered(record.guarantee, *place, record.about.deployed), *_at_home(record)]
    points.append(
        "From the coordinator: who takes part and when, how many users each party has, and how long its messages are."
    )
    if record.about.deployed and record.summary.setting == "vertical":
        points.append(
            "From the coordinator and the other sites: which items each site holds. It tells its list of them."
        )
    if crossed.metrics_told(record) or not record.about.deployed:
        points.append(
            "The metrics: they come from test ratings, without noise. Passing them on is a release of its own."
        )
    return Section("What was not protected", points=points)


def _at_home(record: RunRecord) -> list[str]:
    """That silos predict with factors of their own raw ratings, where a method lets them."""
    passes = record.about.method.parameters.get("fine_tuning")
    if not passes:
        return []
    return [
        "What a silo's users can infer from its recommendations: after the last round each silo fits its factors to "
        f"its own raw ratings (fine_tuning = {passes}). These factors never leave it, and no ε covers what it predicts "
        "with them; fine_tuning = 0 leaves that stage out."
    ]


def _checks(record: RunRecord) -> Section:
    points = ["transcript/messages.parquet holds a digest of every message."]
    if record.guarantee is not None:
        points.append("The ledgers hold what left and what it cost; check them with: tacit ledger verify RUN")
    if record.repeatable:
        again = "tacit up run.toml --keys …" if record.about.deployed else "tacit run run.toml"
        points.append(f"The same run file on the same data gives the same digest again: {again}")
    else:
        points.append("Nobody can repeat the noise, so a second run has another digest.")
    return Section("How to check", points=points)


def _markdown(text: object) -> str:
    """Text that means only itself in Markdown: on one line, no markup, no table cell ended early."""
    flat = " ".join(clean(text).split())
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join("\\" + c if c in "\\`*_[]|#" else c for c in flat)


def _markdown_table(table: Table) -> list[str]:
    rules = ("---:" if place in table.numeric else "---" for place in range(len(table.head)))
    lines = [table.head, tuple(rules), *(tuple(_markdown(cell) for cell in row) for row in table.rows)]
    return [f"| {' | '.join(line)} |" for line in lines]
