"""HTML and SVG, built from elements: text that is not `Markup` is escaped on its way in, so data cannot act.

>>> tag("p", "a < b", class_="note")
Markup('<p class="note">a &lt; b</p>')
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable

from markupsafe import Markup

_VOID = frozenset({"meta", "br", "hr", "col", "rect", "line", "circle", "path"})
_LONGEST = 4000  # characters of one piece of text; a report is read by people
# Control characters break markup; the bidirectional ones make text read as something that it is not.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


Child = str | None


def clean(text: object) -> str:
    """Text without characters that cannot be seen, and no longer than a reader would follow."""
    seen = _UNSEEN.sub("\ufffd", str(text))
    return seen if len(seen) <= _LONGEST else seen[: _LONGEST - 1] + "…"


def escaped(text: object) -> Markup:
    """Text as markup."""
    return text if isinstance(text, Markup) else Markup(html.escape(clean(text)))


def join(parts: Iterable[Child], between: str = "") -> Markup:
    """Several pieces, one after the other."""
    return Markup(between.join(escaped(p) for p in parts if p is not None))


def tag(name: str, /, *children: Child, **attributes: object) -> Markup:
    """One element. `class_` is class, `text_anchor` is text-anchor; None and False leave an attribute out."""
    written = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        written.append(key if value is True else f'{key}="{_attribute(value)}"')
    opening = " ".join(written)
    if name in _VOID and not children:
        return Markup(f"<{opening}/>")
    return Markup(f"<{opening}>{join(children)}</{name}>")


def _attribute(value: object) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else escaped(value)
