"""One offline page, and the pieces that report and comparison share: figures, tables, the stamp, the card.

The page carries a policy that forbids every load and every script: the browser enforces what is promised.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tacit import files
from tacit.errors import UsageError
from tacit.report import words
from tacit.report.glossary import meaning
from tacit.report.markup import Child, Markup, tag
from tacit.report.words import short, unbroken

if TYPE_CHECKING:
    from jinja2 import Environment

# Control characters break markup; the bidirectional ones make text read as something that it is not.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


class Figure(NamedTuple):
    """A chart under the sentence that says what it shows, with the names and colours of its legend."""

    reading: str
    drawing: Markup | None = None
    names: Sequence[str] = ()
    colours: Sequence[int] | None = None


def render(template: str, /, **values: object) -> str:
    """A page (.html) or a card (.md) from tacit/report/templates; every value is escaped unless it is `Markup`."""
    text = _environment(template.endswith(".html")).get_template(template).render(values)
    return _INVISIBLE.sub("\ufffd", text).rstrip() + "\n"


def component(name: str, *arguments: object) -> Markup:
    """One of the components by itself."""
    return getattr(_environment(True).get_template("components.html").module, name)(*arguments)


@cache
def _environment(pages: bool) -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("tacit.report"),
        autoescape=pages,
        finalize=None if pages else _markdown,
        undefined=StrictUndefined,
        trim_blocks=True,
    )
    environment.globals.update(meaning=meaning, decimals=words.decimals, INTERVAL=words.INTERVAL, MISSING=words.MISSING)
    environment.filters.update((name, value) for name, value in vars(words).items() if callable(value))
    return environment


def _markdown(value: object) -> str:
    """Text that means only itself in Markdown: on one line, no markup, no table cell ended early."""
    text = html.escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*_\[\]|#])", r"\\\1", text)


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


def save(path: Path, text: str) -> Path:
    """The text at `path`, whole or not at all, for its owner alone."""
    try:
        files.write(path, text)
    except OSError as error:
        raise UsageError(
            f'"{path}" cannot be written: {error.strerror}; name a folder that you may write to.'
        ) from None
    return path
