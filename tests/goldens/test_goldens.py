"""Every message, every noise and every promise of small runs is what it was: seams may move, numbers may not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.goldens.cases import cases
from tests.goldens.observed import arithmetic, observed

KEPT: dict[str, Any] = json.loads(Path(__file__).with_name("goldens.json").read_text(encoding="utf-8"))
CASES = cases()


def test_every_run_is_kept() -> None:
    assert KEPT.keys() == {"arithmetic", *CASES}


@pytest.mark.parametrize("name", list(CASES))
def test_a_run_gives_what_it_gave(name: str) -> None:
    now, before = observed(CASES[name]), dict(KEPT[name])
    if KEPT["arithmetic"] != arithmetic():  # another processor rounds otherwise, and digests cover every bit
        now |= {"digest": ""}
        before |= {"digest": ""}
    assert _loose(now) == _loose(before)


def _loose(value: Any) -> Any:
    """The same to nine digits: what scipy gives may differ in the last ones from version to version."""
    if isinstance(value, dict):
        return {key: _loose(inner) for key, inner in value.items()}
    return float(f"{value:.9g}") if isinstance(value, float) else value
