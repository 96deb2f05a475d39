"""Reads a page back: that every element is closed, what it says, and what it refers to."""

from __future__ import annotations

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "col"}


class Page(HTMLParser):
    """One page; making it fails where an element is left open or an attribute could act."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.data: dict[str, set[str]] = {}
        self.words: list[str] = []
        self.references: list[tuple[str, str | None]] = []
        self.tags: set[str] = set()
        self.policy = ""
        self._value: str | None = None
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.references += [(k, v) for k, v in attrs if k in {"src", "href", "xlink:href", "action", "data"}]
        assert not any(k.startswith("on") for k, _ in attrs)
        if tag == "data":
            self._value = dict(attrs)["value"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)
        if ("http-equiv", "Content-Security-Policy") in attrs:
            self.policy = dict(attrs)["content"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self._value = None if tag == "data" else self._value

    def handle_data(self, text):
        if self.open and self.open[-1] != "style":
            self.words.append(text)
        if self._value is not None:
            self.data.setdefault(self._value, set()).add(text)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))
