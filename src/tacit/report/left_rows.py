"""Every release of a ledger on a page: by step, and one by one; and what was asked for and refused."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from tacit.boundary.ledger import Row
from tacit.report import page
from tacit.report.bars import DOWN, UP, Bar
from tacit.report.bars import bars as bar_chart
from tacit.report.left import (
    Group,
    Left,
    devices,
    exposed,
    free,
    mechanism,
    parameters,
    to_whom,
    told,
    weight,
    what,
)
from tacit.report.markup import Child, Markup, tag
from tacit.report.words import count, epsilon, epsilon_so_far, plural, sentence, short, size, unbroken

#: Up to so many releases, all tables stand open.
OPEN = 40
#: Bars of the heaviest steps that are drawn; the tables have all.
MOST_BARS = 16
#: The three kinds of what left.
EXPOSED, COSTLY = "Computed from ratings, without any protection", "Computed from ratings, with noise added, at a cost"
FREE = "Nothing of the ratings in it, at no cost"


def by_step(left: Left) -> Markup:
    """Every step once: what it gave, to whom, how often; what cost told apart from what nothing protects."""
    found: dict[tuple[str, str, str, str], list[int]] = {}
    for row in left.rows:
        key = (_heading(row), row.step, what(row), to_whom(row, row.number in left.masked))
        found.setdefault(key, []).append(weight(row))
    parts: list[Child] = []
    for heading in (EXPOSED, COSTLY, FREE):
        rows = [
            (_step(step), given, whom, count(len(sizes)), unbroken(size(sum(sizes))))
            for (under, step, given, whom), sizes in found.items()
            if under == heading
        ]
        if rows:
            head = ("Step", "What left", "To whom", "Releases", "Bytes")
            parts += [tag("h3", heading), page.table(head, rows, numeric=(3, 4))]
    onward = (
        "What the coordinator can read it may pass on to other sites; what it makes of it becomes the shared model."
    )
    return page.section("What left, and to whom", _step_chart(left), *parts, tag("p", onward))


def _heading(row: Row) -> str:
    return FREE if free(row) else EXPOSED if exposed(row) else COSTLY


def _step_chart(left: Left) -> Markup:
    """Bytes by step, the heaviest first."""
    sizes: dict[tuple[str, bool], int] = {}
    for row in left.rows:
        sizes[row.step, free(row)] = sizes.get((row.step, free(row)), 0) + weight(row)
    bars = sorted(sizes.items(), key=lambda bar: -bar[1])
    gratis = sum(amount for (_step, is_free), amount in bars if is_free)
    bare = sum(map(weight, left.exposed))
    noised = left.bytes - gratis - bare
    parts = [f"{size(noised)} computed from ratings, with noise added"] if noised or not bare else []
    parts += [f"{size(bare)} computed from ratings, without any protection"] if bare else []
    reading = sentence("; ".join([*parts, f"{size(gratis)} with nothing of the ratings in it"]))
    label = f"Bars of bytes by step. {reading}"
    names = ["computed from ratings", "nothing of the ratings in it"]
    rows = [Bar(step, [(amount, DOWN if is_free else UP)]) for (step, is_free), amount in bars[:MOST_BARS]]
    return page.figure(reading, page.component("legend", names, (UP, DOWN)), bar_chart(rows, label=label))


def _step(name: str) -> Markup:
    """A step's name; that of a letter on two lines, so that narrow screens have room for the rest."""
    letter, colon, of = short(name, 60).partition(":")
    return tag("span", letter, colon, tag("span", of, class_="under") if of else None)


def releases(left: Left) -> Markup | None:
    """Every release, by run; rows that are alike but for round and time stand in one table."""
    if not left.rows:
        return None
    is_open = len(left.rows) <= OPEN
    parts: list[Child] = []
    if not is_open:
        parts.append(tag("p", "Releases of the same run that are alike stand together; a line opens with a click."))
    for run in left.runs:
        note, groups = left.note(run), left.groups(run)
        facts: list[tuple[str, Child]] = [
            ("Federation", note.federation),
            ("Coordinator", note.coordinator),
            ("Guarantee", note.guarantee),
            ("Counted", f"over all {note.parties} parties that one user is in" if note.parties else None),
            ("Budget then", None if note.budget is None else f"ε = {note.budget:g}"),
        ]
        known = [(key, short(value, 600)) for key, value in facts if value]
        parts += [
            tag("h3", "Run ", tag("code", short(run, 100), class_="long")),
            page.pairs(known) if known else None,
            *(_group(left, group, is_open) for group in groups),
        ]
    return page.section("Every release", *parts)


def _group(left: Left, group: Group, is_open: bool) -> Markup:
    rows = [left.rows[place] for place in group.places]
    first, last = rows[0], rows[-1]
    rounds = f"round {first.round}" if first.round == last.round else f"rounds {first.round} to {last.round}"
    cost = "no cost" if free(first) else f"ε {epsilon(left.reached[group.places[-1]])} reached"
    if told(first):
        cost = "no ε covers it"
    summed = (plural(len(rows), "release"), rounds, size(sum(weight(row) for row in rows)), cost)
    facts: list[tuple[str, Child]] = [
        ("What left", f"{what(first)} ({group.kind})"),
        ("To whom", to_whom(first, group.masked, left.note(group.run).whom)),
    ]
    if not free(first):
        facts += [
            ("Protected by", sentence(mechanism(first.spent, left.unit, left.shared(first)))),
            ("As recorded", tag("code", parameters(group.event), class_="long")),
        ]
    title = tag("summary", tag("b", short(group.step, 60)), unbroken(f" · {' · '.join(summed)}"))
    return tag("details", title, page.pairs(facts), _rows(left, group), open=is_open and not free(first))


def _rows(left: Left, group: Group) -> Markup:
    """One line a release: what differs between them."""
    rows = [left.rows[place] for place in group.places]
    cohort = any(devices(row) is not None for row in rows)
    head = ["No.", "When (UTC)", "Round", *(["Devices"] if cohort else []), "Bytes", "ε by then", "Head"]
    lines: list[Sequence[Child]] = []
    for place, row in zip(group.places, rows, strict=True):
        again = f", attempt {row.attempt}" if row.attempt != rows[0].attempt else ""
        who = [count(devices(row) or 1)] if cohort else []
        lines.append(
            (
                *(count(row.number), _utc(row.moment), f"{row.round}{again}", *who, count(weight(row))),
                *(epsilon_so_far(left.reached[place]), tag("code", row.head[:12], title=row.head)),
            )
        )
    return page.table(head, lines, numeric=range(2, len(head) - 1))


def _utc(text: str) -> str:
    """An ISO time to the second, in UTC; anything else as it is."""
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    except ValueError:
        return text


def refusals(left: Left) -> Markup:
    number, latest = int(left.refused["number"]), left.refused["told"]
    heading = "What was asked for and refused"
    if not number:
        return page.section(heading, tag("p", "No request was refused."))
    older = f" The latest {count(len(latest))} are told here." if number > len(latest) else ""
    said = f"{plural(number, 'request')} refused; nothing left for {'it' if number == 1 else 'them'}.{older}"
    rows = [_refusal(one) for one in reversed(latest)]
    return page.section(heading, tag("p", said), page.table(("When (UTC)", "Run", "Round", "Step", "Why"), rows))


def _refusal(one: dict[str, Any]) -> Sequence[Child]:
    why = short(one["why"], 1000)
    return _utc(one["moment"]), short(one["run"], 8), str(one["round"]), short(one["step"], 60), why
