"""The exit codes are a contract; suggestions help or keep silent."""

import re

import pytest

from tacit import errors
from tacit.cli import EXIT_CODES
from tacit.errors import did_you_mean

#: DESIGN: 0 done, 2 usage, 3 data, 4 privacy refused, 5 a party or peer failed, 6 tampering found, 1 anything else.
CODES = {
    "TacitError": 1,
    "UsageError": 2,
    "DataError": 3,
    "DuplicatePair": 3,
    "PrivacyRefused": 4,
    "UngatedRelease": 4,
    "PeerFailed": 5,
    "BadMessage": 5,
    "TamperingFound": 6,
}


def test_every_error_is_in_the_table_with_its_code():
    found = {n: c.exit_code for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, Exception)}
    assert found == CODES


def test_the_tree_in_the_docstring_is_the_tree():
    tree = errors.__doc__.split("\n\n")[1]
    drawn = re.findall(r"^[ │├└─]*(\w+)(?: \((\d)\))?", tree, re.MULTILINE)
    assert {name for name, _ in drawn} == set(CODES)
    own = {name for name in CODES if "exit_code" in vars(getattr(errors, name))}
    assert {name: int(code) for name, code in drawn if code} == {name: CODES[name] for name in own}


def test_the_command_line_names_every_code():
    named = {int(code) for code in re.findall(r"\b(\d) ", EXIT_CODES)}
    assert named == {0, *CODES.values()}


@pytest.mark.parametrize(
    ("word", "known", "hint"),
    [
        ("sgdfm", ["sgdmf", "central"], ' Did you mean "sgdmf"?'),
        ("epsilo", iter(["epsilon", "delta"]), ' Did you mean "epsilon"?'),
        (1001, [7, 2001, 555], ' Did you mean "2001"?'),
        ("zzz", ["sgdmf", "central"], ""),
        ("", ["sgdmf"], ""),
        ("sgdmf", [], ""),
    ],
)
def test_a_suggestion_is_the_closest_word_or_nothing(word, known, hint):
    assert did_you_mean(word, known) == hint
