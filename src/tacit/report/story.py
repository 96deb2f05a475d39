"""The story of a run: what it learned from, what was held out, who holds what, and how it learned."""

from __future__ import annotations

import math
from itertools import compress
from typing import Any

from tacit.report import page
from tacit.report.description import AboutData, AboutParty
from tacit.report.markup import Child, Markup, tag
from tacit.report.record import RunRecord
from tacit.report.words import count, percent, plural, sentence, short

_MOST_PARTIES = 20


def story(record: RunRecord) -> Markup:
    """The section, from about.json."""
    about = record.about
    method, partition = about.method, about.partition
    parts: list[Child] = [
        tag("h3", "Data"),
        tag(
            "p",
            " ".join(
                [_data(about.data, about.deployed), *(sentence(short(note, 300)) for note in about.data.notes[:10])]
            ),
        ),
    ]
    if about.split:
        parts += [tag("h3", "What was held out"), tag("p", sentence(about.split))]
    parts.append(tag("h3", "Who holds what"))
    if partition.description:
        parts.append(tag("p", sentence(partition.description)))
    if partition.parties:
        parts.append(_roster(partition.parties))
    parts.append(tag("h3", f"Method: {method.title or method.name}"))
    if method.what:
        parts.append(tag("p", method.what))
    if method.parameters:
        chosen = list(method.parameters.items())[:60]
        parts.append(page.pairs((tag("code", short(key, 60)), _value(value)) for key, value in chosen))
    return page.section("The story of the run", *parts)


def _data(data: AboutData, deployed: bool) -> str:
    pairs = data.users * data.items
    density = data.density
    if density is None:  # a deployment that does not say it cannot: its ratings are only declared
        density = data.ratings / pairs if pairs and not deployed else math.nan
    told = f"{data.name} holds {data.rated} by {plural(data.users, 'user')} of {plural(data.items, 'item')}"
    if deployed:
        told = sentence(f"{data.name}: {data.sizes}").removesuffix(".")
    if math.isfinite(density):
        told += f", {percent(density)} of all pairs"
    if data.feedback:
        told += f"; feedback is {data.feedback}"
    if data.scale is not None:
        told += f", on the scale {_scale(data.scale)}"
    return told + "."


def _roster(parties: list[AboutParty]) -> Markup:
    shown, rest = parties, []
    if len(parties) > _MOST_PARTIES:
        ranked = sorted(parties, key=lambda party: -party.ratings)
        shown, rest = ranked[:_MOST_PARTIES], ranked[_MOST_PARTIES:]
    rows: list[tuple[str, ...]] = [
        (short(p.title, 80), count(p.users), count(p.items), count(p.ratings), count(p.devices)) for p in shown
    ]
    if rest:
        users, ratings = sum(p.users for p in rest), sum(p.ratings for p in rest)
        devices = sum(p.devices for p in rest)
        rows.append((f"{count(len(rest))} others", count(users), "", count(ratings), count(devices)))
    told = (True, True, True, any(p.ratings for p in parties), any(p.devices for p in parties))  # sites tell no ratings
    head = tuple(compress(("Party", "Users", "Items", "Ratings", "Devices"), told))
    rows = [tuple(compress(row, told)) for row in rows]
    inner = page.table(head, rows, numeric=range(1, len(head)))
    return page.folded(f"The {plural(len(parties), 'party')} in figures", inner) if len(parties) > 3 else inner


def _scale(scale: Any) -> str:
    if isinstance(scale, (list, tuple)) and len(scale) == 2:
        return "…".join(f"{end:g}" if isinstance(end, (int, float)) else str(end) for end in scale)
    return str(scale)


def _value(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int):
        return count(value)
    return short(", ".join(str(v) for v in value[:20]) if isinstance(value, list) else value, 200)
