"""What crossed, for the card: the run's own messages by step, and what sites told before the run and after it."""

from __future__ import annotations

from tacit.report import traffic
from tacit.report.description import Crossing
from tacit.report.record import RunRecord
from tacit.report.words import MISSING, count, listing, sentence, short, size

HEAD = ("Step", "What left the parties", "Kind", "Seen by", "Answers", "Up", "Down")
_KINDS = {
    "chain": "the result of a party's own computation on its ratings",
    "sum": "a party's contribution to a sum over all",
    "report": "single reports, parted from their senders",
    "public": "facts that no data went into",
    "disclose": "data as it is",
    "roster": "who takes part, counted or under pseudonyms, which no ε covers",
    "metrics": "computed from ratings, without any noise, which no ε covers",
}
#: Which total is which.
_TOTALS = (
    "The digest, and the bytes in the summary, are of the run's own messages, as where a run is held in one process. "
    "What is marked before the run or after it comes on top; of that, what was sent to the sites is not counted. "
    "Envelopes, greetings and the word that terms were understood hold nothing of a site's data; they are left out."
)


def totals(record: RunRecord) -> list[tuple[str, str]]:
    """What left the parties and what reached them; of a deployment, which total is which."""
    about, summary = record.about, record.summary
    if not about.beside:
        return [("Left the parties", size(summary.bytes_up)), ("Reached the parties", size(summary.bytes_down))]
    before, after = about.bytes_sent("before"), about.bytes_sent("after")
    return [
        ("Left the parties in the run", f"{size(summary.bytes_up)}: its own messages, as in the summary"),
        ("Left them before the run", size(before)),
        ("Left them after the run", size(after) if after else "nothing"),
        ("Left them in all", size(summary.bytes_up + before + after)),
        ("Reached the parties in the run", size(summary.bytes_down)),
    ]


def metrics_told(record: RunRecord) -> bool:
    """Whether sites told metrics of their own."""
    return any(row.kind == "metrics" for row in record.about.beside)


def rows(record: RunRecord) -> list[tuple[str, ...]]:
    """One row a step, in the order of time."""
    return [*_told(record, "before"), *_in_the_run(record), *_told(record, "after")]


def points(record: RunRecord) -> list[str]:
    """What the table's words mean, which total is which, and what did not arrive."""
    asked, described = {step.step for step in traffic.by_step(record)}, record.about.crossings
    kinds = [crossing.kind for crossing in described if crossing.step in asked]
    kinds += [row.kind for row in record.about.beside]
    words = [f"{kind}: {_KINDS.get(kind, 'a kind that this card does not know')}" for kind in dict.fromkeys(kinds)]
    said = [f"{sentence('; '.join(words))} Up is what left the parties, down what was sent to them."]
    if record.about.beside:
        said.append(_TOTALS)
    troubles = traffic.troubles(record)
    if troubles:
        said.append(f"{listing(f'{count(n)} {status}' for status, n in troubles.items())}, among the answers.")
    return said


def _in_the_run(record: RunRecord) -> list[tuple[str, ...]]:
    """The rows of the run's own messages."""
    described: dict[str, list[Crossing]] = {}
    for crossing in record.about.crossings:
        described.setdefault(crossing.step, []).append(crossing)
    rows: list[tuple[str, ...]] = []
    for step in traffic.by_step(record):
        found = described.get(step.step, [])
        what = " ".join(sentence(crossing.what) for crossing in found) or "NOT DESCRIBED by the run."
        kind = listing(dict.fromkeys(crossing.kind for crossing in found)) or "–"
        to = listing(dict.fromkeys(crossing.to.removeprefix("the ") for crossing in found)) or "–"
        numbers = (count(step.answered), size(step.up), size(step.down))
        rows.append((short(step.step, 60), short(what, 400), kind, to, *numbers))
    return rows


def _told(record: RunRecord, when: str) -> list[tuple[str, ...]]:
    """The rows of what was told before the run, or after it."""
    return [
        (
            f"{short(row.step, 60)} ({when} the run)",
            short(sentence(row.what), 400),
            row.kind,
            "coordinator",
            *(count(row.answers), size(row.bytes), MISSING),
        )
        for row in record.about.beside
        if row.when == when
    ]
