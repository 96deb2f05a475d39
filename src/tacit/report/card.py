"""The privacy card: who is protected from whom, at what ε, under which assumptions; what was sent; what is uncovered.

`card(record)` is its content and `privacy_card(record)` its Markdown. Without a guarantee it is stamped NON-PRIVATE.
What a run does not state, the card reports as not stated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit import aggregation as aggregations
from tacit.report import guarantee_words, page, readings
from tacit.report.description import Crossing
from tacit.report.floor_verdict import Verdict, verdict
from tacit.report.folder import RunRecord
from tacit.report.words import MISSING, count, epsilon, listing, moment, percent, plural, sentence, short, size

NON_PRIVATE = "Nothing limits what the coordinator or another party can learn from the messages."
_ONLY_HIDDEN = (
    "No noise was added. Nothing limits what the sums and means that are seen reveal about one user, or what two of "
    "them over different parties reveal when one is subtracted from the other."
)
_KINDS = {
    "chain": "the result of a party's local computation on its ratings",
    "sum": "a party's contribution to a sum over all",
    "report": "single reports, separated from their senders",
    "public": "facts that do not depend on data",
    "disclose": "data as it is",
    "roster": "who takes part, counted or under pseudonyms, which no ε covers",
    "metrics": "computed from ratings without noise, which no ε covers",
}
_TOTALS = (
    "The digest and the bytes in the summary are of the run's own messages, the same as when a run is simulated in one "
    "process. Rows marked before or after the run come on top; what was sent to the sites for them is not counted. "
    "Envelopes, handshakes and acknowledgements contain nothing of a site's data and are left out."
)
_RATIO = (
    "Ratio is signal over noise: the forecast size of one cell of one answer, all contributions added, from public "
    "facts alone, divided by its noise. Far below 1, single cells are almost all noise, and only what many cells, "
    "answers and rounds have in common can be learned."
)
_NOISE_TERMS = (
    "Releases: how many there are, times the noisy answers in each. Sensitivity: the most that one unit changes an "
    "answer. σ: the noise on each cell of an answer; under secure aggregation, on each cell of the sum."
)
_FLOOR = (
    "The floor is what {name} reaches with the same parties, split and test ratings. The experimenter computes it for "
    "comparison: nothing of it was released, it is in no ledger, and no budget counts it."
)


@dataclass(frozen=True)
class Section:
    """A heading, sentences, points, and a table perhaps, with its `numeric` columns."""

    heading: str
    sentences: Sequence[str] = ()
    points: Sequence[str] = ()
    head: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    numeric: Sequence[int] = ()


@dataclass(frozen=True)
class Card:
    """The card's content, in no format; `kind` and `floor_kind` are the styles of its stamps."""

    private: bool
    kind: str
    stamp: str
    statement: str
    floor: Verdict | None
    floor_kind: str
    facts: list[tuple[str, str]]
    sections: list[Section]


def privacy_card(record: RunRecord) -> str:
    """The card as Markdown, for card.md."""
    return page.render("card.md", card=card(record))


def card(record: RunRecord) -> Card:
    """The card of one run."""
    stated, shared, floor = record.guarantee, _metrics_shared(record), verdict(record)
    kind = "none" if stated is None else "simulated" if stated.simulated or shared else "holds"
    floor_kind = "plain"
    if floor is not None and stated is not None:
        floor_kind = {"beats": "holds", "unknown": "plain"}.get(floor.standing, "simulated")
    notes = [sentence(short(note, 400)) for note in record.about.notes[:20]]
    sections = [_protected(record), _assumptions(record), *_noise(record), _sent(record), _unprotected(record)]
    sections += [*_floor(record), _checks(record), *([Section("Notes", points=notes)] if notes else [])]
    stamp, statement = _stamp(record)
    return Card(stated is not None, kind, stamp, statement, floor, floor_kind, _facts(record), sections)


def _stamp(record: RunRecord) -> tuple[str, str]:
    stated, hidden = record.guarantee, record.about.hidden
    if stated is not None:
        statement = "What this covers and what it does not is stated below."
        if stated.simulated:
            statement = guarantee_words.SIMULATED
        if _metrics_shared(record):
            statement += " METRICS SHARED: sites also chose to report metrics, which no ε covers."
        return guarantee_words.one_line(stated, record.summary.setting), statement
    if record.summary.guarantee is not None:
        return "NON-PRIVATE", f"{NON_PRIVATE} {guarantee_words.void(record.summary.guarantee)}"
    return (f"NON-PRIVATE · {short(hidden, 300)}", _ONLY_HIDDEN) if hidden else ("NON-PRIVATE", NON_PRIVATE)


def _metrics_shared(record: RunRecord) -> bool:
    return any(row.kind == "metrics" for row in record.about.beside)


def _facts(record: RunRecord) -> list[tuple[str, str]]:
    about, summary, stated = record.about, record.summary, record.guarantee
    parties = about.partition.parties
    devices = sum(party.devices for party in parties)
    who = plural(devices, "device") if devices else plural(len(parties), "party")
    claims = []
    if stated is not None and stated.claimed_epsilon is not None:
        claims = [
            ("ε that the paper's formulas claim", epsilon(stated.claimed_epsilon)),
            ("ε that truly holds", epsilon(stated.epsilon or 0)),
        ]
    facts = [
        *claims,
        ("Run", record.name),
        ("Created", moment(about.created)),
        ("Method", about.method.title or about.method.name),
        ("Data", f"{about.data.name}: {plural(about.data.users, 'user')}, {about.data.rated}"),
        ("Who took part", f"{who}, in the {summary.setting} setting"),
        ("Rounds", count(summary.rounds)),
        ("Void sums", f"{count(summary.void)}: what left for them is charged" if summary.void else ""),
        *_totals(record),
        ("Digest", summary.digest),
    ]
    return [(key, short(value, 200)) for key, value in facts if value]


def _totals(record: RunRecord) -> list[tuple[str, str]]:
    about, summary = record.about, record.summary
    if not about.beside:
        return [("Left the parties", size(summary.bytes_up)), ("Reached the parties", size(summary.bytes_down))]
    before, after = about.bytes_sent("before"), about.bytes_sent("after")
    return [
        ("Left the parties in the run", f"{size(summary.bytes_up)}: its own messages, as in the summary"),
        ("Left them before the run", size(before)),
        ("Left them after the run", size(after) if after else "nothing"),
        ("Left them in total", size(summary.bytes_up + before + after)),
        ("Reached the parties in the run", size(summary.bytes_down)),
    ]


def _protected(record: RunRecord) -> Section:
    heading, stated = "Who is protected from whom", record.guarantee
    if stated is not None:
        sentences = [*guarantee_words.explained(stated), *(short(one, 600) for one in record.about.reports[:10])]
        if _metrics_shared(record):
            sentences.append("Metrics that sites reported after the run are not covered.")
        return Section(heading, sentences, guarantee_words.in_several_silos(stated, record.summary.setting))
    kinds = {crossing.kind for crossing in record.about.crossings}
    sentences = ["No one is protected: no ε holds for this run."]
    if record.about.hidden:
        sentences = ["No ε holds for this run: single contributions are hidden, but what their sums reveal is not."]
    if kinds & {"chain", "sum", "report"}:
        sentences.append("What was sent was computed from ratings without noise, so ratings can be inferred from it.")
    if "disclose" in kinds:
        sentences.append("Some data was disclosed unprotected; the privacy card lists it under What crossed.")
    if kinds == {"public"}:
        sentences.append("The run states that only public facts were sent, which do not depend on ratings.")
    return Section(heading, [" ".join(sentences)])


def _assumptions(record: RunRecord) -> Section:
    stated, data, aggregation = record.guarantee, record.about.data, record.run_file.aggregation.name
    points = []
    if stated is not None:
        chains = any(crossing.kind == "chain" for crossing in record.about.crossings)
        points = guarantee_words.assumptions(stated, chains)
    known = aggregations.known().working().get(aggregation)
    seen = short(aggregation, 60) if known is None else f"{known.name}: {known.seen}"
    points += [f"Aggregation is {seen}.", *record.about.sealing]
    if stated is not None or data.features:
        points.append(guarantee_words.assumed_public(data.items, data.features))
    return Section("Assumptions", points=points)


def _noise(record: RunRecord) -> list[Section]:
    steps = record.about.steps_noise[:20]
    if not steps:
        return []
    head = ("Step", "Releases", "Sampling", "Sensitivity", "σ", "Cells", "Signal", "Ratio")
    rows = [
        (
            short(step.step, 60),
            f"{count(step.releases)} × {count(step.answers)}",
            "all" if step.sampling >= 1 else percent(step.sampling),
            *(_three(number) for number in (step.sensitivity, step.sigma)),
            count(step.cells),
            *((_three(step.signal), _three(step.signal_to_noise)) if step.signal else (MISSING, MISSING)),
        )
        for step in steps
    ]
    faintest = min(steps, key=lambda step: step.signal_to_noise or math.inf)
    words = _RATIO
    if 0 < faintest.signal_to_noise < 1:
        times = _three(1 / faintest.signal_to_noise)
        words += f" Here the noise of “{short(faintest.step, 60)}” is {times} × the signal per cell."
    return [Section("Noise and signal", [words], [_NOISE_TERMS], head, rows, range(1, len(head)))]


def _three(number: float) -> str:
    if not math.isfinite(number):
        return MISSING
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e7 else f"{number:.3g}".replace("-", "−")


def _sent(record: RunRecord) -> Section:
    """The run's messages by step, and what sites sent before it and after it, in the order of time."""
    outside = {when: _outside_rows(record, when) for when in ("before", "after")}
    rows = [*outside["before"], *_message_rows(record), *outside["after"]]
    if not rows:
        return Section("What crossed", ["Nothing: no message passed between any two roles."])
    steps = {step.step for step in readings.by_step(record)}
    kinds = [crossing.kind for crossing in record.about.crossings if crossing.step in steps]
    kinds += [row.kind for row in record.about.beside]
    meant = [f"{kind}: {_KINDS.get(kind, 'a kind that this card does not know')}" for kind in dict.fromkeys(kinds)]
    points = [f"{sentence('; '.join(meant))} Up is what left the parties, down what was sent to them."]
    points += [_TOTALS] if record.about.beside else []
    if troubles := readings.troubles(record):
        points.append(f"{listing(f'{count(n)} {status}' for status, n in troubles.items())}, among the answers.")
    head = ("Step", "What left the parties", "Kind", "Seen by", "Answers", "Up", "Down")
    return Section("What crossed", (), points, head, rows, numeric=(4, 5, 6))


def _message_rows(record: RunRecord) -> list[tuple[str, ...]]:
    described: dict[str, list[Crossing]] = {}
    for crossing in record.about.crossings:
        described.setdefault(crossing.step, []).append(crossing)
    rows: list[tuple[str, ...]] = []
    for step in readings.by_step(record):
        found = described.get(step.step, [])
        what = " ".join(sentence(crossing.what) for crossing in found) or "NOT DESCRIBED by the run."
        kind = listing(dict.fromkeys(crossing.kind for crossing in found)) or MISSING
        to = listing(dict.fromkeys(crossing.to.removeprefix("the ") for crossing in found)) or MISSING
        numbers = (count(step.answered), size(step.up), size(step.down))
        rows.append((short(step.step, 60), short(what, 400), short(kind, 60), short(to, 200), *numbers))
    return rows


def _outside_rows(record: RunRecord, when: str) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for row in (row for row in record.about.beside if row.when == when):
        words = (f"{short(row.step, 60)} ({when} the run)", short(sentence(row.what), 400), row.kind, "coordinator")
        rows.append((*words, count(row.answers), size(row.bytes), MISSING))
    return rows


def _unprotected(record: RunRecord) -> Section:
    stated, about, crossings = record.guarantee, record.about, record.about.crossings
    disclosed = list(dict.fromkeys(crossing.step for crossing in crossings if crossing.kind == "disclose"))
    unknown = sorted({step.step for step in readings.by_step(record)} - {crossing.step for crossing in crossings})
    points = []
    if stated is None:
        points.append(f"{'All that is seen' if about.hidden else 'Everything'} in the table that is not marked public.")
    elif disclosed:
        points.append(f"What was disclosed outside the guarantee: {listing(disclosed)}.")
    if unknown:
        points.append(f"What the run does not describe, so that nothing here covers it: {listing(unknown)}.")
    if stated is not None:
        aggregation, setting = record.run_file.aggregation.name, record.summary.setting
        points += guarantee_words.not_covered(stated, aggregation, setting, about.deployed)
        if passes := about.method.parameters.get("fine_tuning"):
            points.append(
                "What a silo's users can infer from its recommendations: after the last round each silo fits its "
                f"factors to its raw ratings (fine_tuning = {passes}). They never leave it, and no ε covers what it "
                "predicts with them. Set fine_tuning = 0 to skip that stage."
            )
    points.append("From the coordinator: who takes part and when, how many users each party has, and message sizes.")
    if about.deployed and record.summary.setting == "vertical":
        points.append("From the coordinator and the other sites: which items each site holds.")
    if _metrics_shared(record) or not about.deployed:
        points.append("The metrics: they are computed from test ratings without noise. Publishing them is a release.")
    return Section("What was not protected", points=points)


def _floor(record: RunRecord) -> list[Section]:
    floor = record.about.floor
    if floor is None:
        return []
    sentences = [_FLOOR.format(name=floor.name)]
    if names := [short(one.name, 40) for one in record.about.references[:10] if one.metrics]:
        sentences.append(f"The report also shows {listing(names)}: NON-PRIVATE, for comparison only.")
    return [Section("What the floor is", sentences)]


def _checks(record: RunRecord) -> Section:
    points = ["transcript/messages.parquet has a digest of every message."]
    if record.guarantee is not None:
        points.append("The ledgers record what left and what it cost. Check them with: tacit ledger verify RUN")
    again = "tacit up run.toml --keys …" if record.about.deployed else "tacit run run.toml"
    points.append(
        f"The same run file on the same data gives the same digest: {again}"
        if record.repeatable
        else "The noise cannot be repeated, so a second run has another digest."
    )
    return Section("How to check", points=points)
