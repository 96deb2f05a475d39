"""An aggregation is one file, with both sides: nobody else knows it by name."""

import ast
from pathlib import Path

import pytest

import tacit
from tacit.aggregation import OWN, find

SOURCE = Path(tacit.__file__).parent
#: Files that every aggregation goes through.
THROUGH = ("boundary/gate.py", "boundary/base_gate.py", "federation/coordinator.py", "federation/calls.py")


def names_in(text):
    """Names, attributes, arguments and texts of a module that are, or contain, the name of an aggregation or its class.

    Docstrings are left out where the name is an ordinary word too: those only explain.
    """
    tree = ast.parse(text)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
    }
    words = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module"):
            if isinstance(word := getattr(node, field, None), str):
                words.add(word)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            words |= set(node.value.replace('"', " ").replace("`", " ").split())
    ours = {name.lower() for name in OWN} | {find(name).__name__.lower() for name in OWN}
    return {word for word in words for part in word.lower().split(".") if part in ours}


@pytest.mark.parametrize("path", THROUGH)
def test_what_all_go_through_names_none(path):
    assert names_in((SOURCE / path).read_text()) == set()


def test_planted_a_branch_on_a_name_is_noticed():
    assert names_in('def sum(self):\n    if self.how.name == "secagg":\n        return 1\n') == {"secagg"}
    assert names_in("from tacit.aggregation.ideal import Ideal\n") == {"tacit.aggregation.ideal", "Ideal"}


@pytest.mark.parametrize("name", OWN)
def test_each_is_in_the_file_of_its_name(name):
    assert find(name).__module__ == f"tacit.aggregation.{name}"
    assert find(name).name == name
