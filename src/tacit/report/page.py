"""One offline page, and the pieces that report and comparison share: figures, tables, the stamp, the card.

The page carries a policy that forbids every load and every script: the browser enforces what is promised.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from tacit import files
from tacit.errors import UsageError
from tacit.report import words
from tacit.report.card import Card, Section, Table
from tacit.report.floor_verdict import Verdict
from tacit.report.glossary import meaning
from tacit.report.markup import Child, Markup, join, tag
from tacit.report.words import short, unbroken

if TYPE_CHECKING:
    from jinja2 import Environment

# Control characters break markup; the bidirectional ones make text read as something that it is not.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_FILTERS = [
    "count",
    "delta",
    "epsilon",
    "listing",
    "metric",
    "moment",
    "percent",
    "plural",
    "seconds",
    "sentence",
    "short",
    "size",
    "spelled",
    "unbroken",
]


def render(template: str, /, **values: object) -> str:
    """A page from a template in tacit/report/templates; every value is escaped unless it is `Markup`."""
    return _INVISIBLE.sub("\ufffd", _environment().get_template(template).render(values))


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tacit.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters.update({name: getattr(words, name) for name in _FILTERS})
    return environment


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def page(title: str, *body: Child, version: str = "") -> str:
    """The whole document."""
    style = resources.files("tacit.report").joinpath("templates/style.css").read_text(encoding="utf-8")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="robots", content="noindex"),
        tag("title", short(title, 200)),
        tag("style", Markup(style)),
    )
    maker = f"Tacit {version}" if version else "Tacit"
    made = f"Made by {maker}. This file is complete in itself: it loads nothing and sends nothing."
    document = tag("html", head, tag("body", tag("main", *body), tag("footer", made)), lang="en")
    return f"<!doctype html>\n{document}\n"


def section(heading: str, *children: Child) -> Markup:
    return tag("section", tag("h2", heading), *children)


def figure(reading: str, *drawing: Child) -> Markup:
    """A chart under the sentence that says what it shows."""
    return tag("figure", tag("figcaption", unbroken(reading)), *drawing)


def number(value: float | int, shown: str) -> Markup:
    """A number as people read it, with the exact value for machines."""
    return tag("data", shown, value=repr(value))


def stamp(card: Card) -> Markup:
    """What a reader must see first."""
    return tag("div", tag("b", card.stamp), tag("p", card.statement), class_=f"stamp {standing(card)}", role="note")


def floor(found: Verdict, private: bool) -> Markup:
    """Whether the model beats its floor, where it cannot be missed; a warning where a private one does not."""
    style = {"beats": "holds", "unknown": "plain"}.get(found.standing, "simulated") if private else "plain"
    return tag("div", tag("b", found.title), tag("p", found.words), class_=f"stamp {style}", role="note")


def standing(card: Card) -> str:
    """The style of a stamp: none, simulated or holds; amber too where something is outside what holds."""
    return "none" if not card.private else "simulated" if card.simulated or card.shares_metrics else "holds"


def pairs(rows: Iterable[tuple[str, Child]]) -> Markup:
    """A table of names and values."""
    body = (tag("tr", tag("th", key, scope="row"), tag("td", value)) for key, value in rows)
    return tag("div", tag("table", tag("tbody", *body), class_="pairs"), class_="scroll")


def table(head: Sequence[str], rows: Iterable[Sequence[Child]], numeric: Sequence[int] = ()) -> Markup:
    """A table whose first column names its rows; `numeric` columns stand to the right."""
    kinds = ["number" if place in numeric else None for place in range(len(head))]
    top = (tag("th", cell, scope="col", class_=kind) for cell, kind in zip(head, kinds, strict=True))
    body = []
    for row in rows:
        cells = [tag("th", row[0], scope="row")]
        cells += [tag("td", cell, class_=kind) for cell, kind in zip(row[1:], kinds[1:], strict=True)]
        body.append(tag("tr", *cells))
    inner = tag("table", tag("thead", tag("tr", *top)), tag("tbody", *body))
    return tag("div", inner, class_="scroll", tabindex="0", role="region", aria_label="table")


def folded(title: str, *children: Child) -> Markup:
    return tag("details", tag("summary", title), *children)


def card_sections(card: Card) -> Markup:
    """The card's sections; its stamp stands at the top of the page already."""
    return tag("div", *(_card_section(part) for part in card.sections), class_="card")


def glossary(metrics: Iterable[str]) -> Markup:
    """What the metrics mean."""
    terms: list[Child] = []
    for name in metrics:
        known = meaning(name)
        better = {True: " Lower is better.", False: " Higher is better.", None: ""}[known.lower_is_better]
        said = (known.what or "This run's own metric; Tacit has no description of it.") + better
        title = known.short if known.long == known.short else f"{known.short}, {known.long}"
        terms += [tag("dt", title), tag("dd", said)]
    return tag("dl", *terms, class_="glossary")


def save(path: Path, text: str) -> Path:
    """The text at `path`, whole or not at all, for its owner alone."""
    try:
        files.write(path, text)
    except OSError as error:
        raise UsageError(
            f'"{path}" cannot be written: {error.strerror}; name a folder that you may write to.'
        ) from None
    return path


def _card_section(part: Section) -> Markup:
    points = tag("ul", *(tag("li", point) for point in part.points)) if part.points else None
    return join(
        [
            tag("h3", part.heading),
            *(tag("p", text) for text in part.sentences),
            _card_table(part.table) if part.table is not None else None,
            points,
        ]
    )


def _card_table(content: Table) -> Markup:
    return table(content.head, content.rows, content.numeric)
