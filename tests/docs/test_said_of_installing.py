"""What the pages say of installing and of noise is so."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_tells_to_install_from_an_index_where_tacit_is_not(page):
    """Only the README names that command, to say that it does not work."""
    found = re.findall(r"pip install [\"']?tacit(?:\[[a-z,]+\])?[\"'`\s]", page.read_text(encoding="utf-8"))
    assert not found or (page.name == "README.md" and "not on a package index yet" in page.read_text(encoding="utf-8"))


def test_the_page_on_guarantees_does_not_call_all_noise_simulated():
    pages = [ROOT / "docs" / "explanation" / "guarantees.md", ROOT / "docs" / "reference" / "run-file.md"]
    for text in (" ".join(page.read_text(encoding="utf-8").split()) for page in pages):
        assert "of this version is **SIMULATED**" not in text
        assert "of this version is SIMULATED" not in text
        assert "it comes from the operating system" in text
