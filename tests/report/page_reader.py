"""Reads a page back: what it says, which numbers and tables it has, and what it refers to."""

import re
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "col", "line", "rect", "circle", "path"}


class Page(HTMLParser):
    """One page; making it fails where an element is left open, an attribute could act, or it is not one offline file.

    `data` has the exact numbers with the texts that show them, `stamps` the notes at the top as (kind, words), and
    `rows` those of all tables, as lists of the cells' words.
    """

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.data: dict[str, set[str]] = {}
        self.words: list[str] = []
        self.references: list[tuple[str, str | None]] = []
        self.tags: set[str] = set()
        self.classes: list[str] = []
        self.stamps: list[tuple[str, str]] = []
        self.rows: list[list[str]] = []
        self.policy = ""
        self._value: str | None = None
        self.feed(text)
        self.close()
        self.rows = [[cell.strip() for cell in row] for row in self.rows]
        assert self.open == []
        assert self.references == []
        assert self.policy.startswith("default-src 'none';")
        assert text.startswith("<!doctype html>")
        assert not re.search(r"https?:|//[a-z]|url\(|@import|<link|<script|<iframe|<img|\u202e|\x07", text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        found = dict(attrs)
        self.references += [(k, v) for k, v in attrs if k in {"src", "href", "xlink:href", "action", "data"}]
        assert not any(k.startswith("on") for k in found)
        self.classes.append(found.get("class") or "")
        if found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]
        if tag == "data":
            self._value = found["value"]
        if tag == "tr":
            self.rows.append([])
        if tag in {"th", "td"}:
            self.rows[-1].append("")
        if self.classes[-1].startswith("stamp "):
            self.stamps.append((self.classes[-1].removeprefix("stamp "), ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self._value = None if tag == "data" else self._value

    def handle_data(self, text):
        if not self.open or self.open[-1] == "style":
            return
        self.words.append(text)
        if self._value is not None:
            self.data.setdefault(self._value, set()).add(text)
        if {"th", "td"} & set(self.open):
            self.rows[-1][-1] += f" {text.strip()}"
        if self.stamps and self.open[-1] in {"b", "p"} and self.open[-2] == "div":
            self.stamps[-1] = (self.stamps[-1][0], f"{self.stamps[-1][1]} {text}".strip())

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))

    def row(self, name: str) -> list[str]:
        """The cells of the first row that begins with `name`."""
        return next(row for row in self.rows if row and row[0].startswith(name))
