"""Pages and cards from the templates in tacit/report/templates, each one offline file.

Every value is escaped on its way into a template, so data cannot act; base.html forbids scripts and loads besides.
What metrics mean is in templates/components.html, which way is better in `tacit.evaluate`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from markupsafe import Markup

from tacit import files
from tacit.errors import UsageError
from tacit.report import words
from tacit.report.metric_names import meaning

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
    """The text of a page (.html) or a card (.md); values are escaped unless they are `Markup`."""
    text = _environment(template.endswith(".html")).get_template(template).render(values)
    return _INVISIBLE.sub("\ufffd", text).rstrip() + "\n"


def save(path: Path, text: str) -> Path:
    """Write the text to `path`, completely or not at all, for its owner alone."""
    try:
        files.write(path, text)
    except OSError as error:
        raise UsageError(
            f'"{path}" cannot be written: {error.strerror}; name a folder that you may write to.'
        ) from None
    return path


def _template(name: str) -> str:
    return resources.files("tacit.report").joinpath("templates", name).read_text(encoding="utf-8")


@cache
def _environment(pages: bool) -> Environment:
    """Templates with the functions of `words` as filters; loaded on first use, since most commands write no page."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        loader=FunctionLoader(_template),
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
