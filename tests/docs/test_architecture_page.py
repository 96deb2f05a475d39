"""The page about the architecture names files, classes and functions: each is where it says."""

import importlib
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "tacit"
TEXT = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")


def rows() -> dict[str, dict[str, list[str]]]:
    """By question, the files that answer it, and what to look for in each."""
    table = TEXT.partition("| Where … |")[2].partition("\n\n")[0]
    found: dict[str, dict[str, list[str]]] = {}
    for line in table.splitlines()[2:]:
        question, answer = (cell.strip() for cell in line.strip("|").split("|", 1))
        found[question] = named = {}
        for word in re.findall(r"`([^`]+)`", answer):
            if word.endswith(".py"):
                names = named.setdefault(word, [])
            elif named:
                names.append(word)
    return found


ROWS = rows()
PLACES = sorted({(file, name) for named in ROWS.values() for file, names in named.items() for name in names})


@pytest.mark.parametrize(("file", "name"), PLACES, ids=lambda word: word)
def test_what_the_table_names_is_defined_in_that_file(file, name):
    assert (SOURCE / file).is_file()
    module = importlib.import_module(f"tacit.{file.removesuffix('.py').replace('/', '.')}")
    found = module
    for part in name.split("."):
        found = getattr(found, part)
    first = getattr(module, name.split(".")[0])
    assert first.__module__ == module.__name__, "it is defined elsewhere, and only imported there"
    assert re.search(rf"\b(def|class) {name.split('.')[-1]}\b", (SOURCE / file).read_text(encoding="utf-8"))


@pytest.mark.parametrize("question", ROWS)
def test_every_question_is_answered_in_at_most_two_files(question):
    assert 1 <= len(ROWS[question]) <= 2
    assert all(ROWS[question].values())


def test_the_questions_that_have_to_be_answered_are():
    asked = " ".join(ROWS)
    for what in ("is noise added?", "is a gradient bounded?", "is ε computed?", "does a message leave?"):
        assert what in asked
    assert len(PLACES) > 40


def test_the_page_has_the_import_order_that_is_checked():
    with (ROOT / "pyproject.toml").open("rb") as file:
        layers = next(c for c in tomllib.load(file)["tool"]["importlinter"]["contracts"] if c["type"] == "layers")
    listed = TEXT.partition("Imports point down this list")[2].split("```")[1]
    assert re.findall(r"\w+", listed) == layers["layers"]


def test_only_the_gate_a_code_and_aggregations_draw_noise():
    """What the table says of noise: no other file of the package draws it."""
    drawing = re.compile(
        r"(?<!events\.)\b(?:Gaussian|Skellam|DiscreteGaussian|Laplace)\([^)\n]*\)+\.(?:noised|add|sample)\("
    )
    draws = {str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py") if drawing.search(path.read_text("utf-8"))}
    stated = {
        file for question, named in ROWS.items() if "noise added" in question or question[0] == "…" for file in named
    }
    assert draws <= stated
    assert {"boundary/gate.py", "boundary/code.py", "aggregation/secagg.py"} <= draws
