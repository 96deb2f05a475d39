"""A guarantee says what it covers and never turns into a number."""

import dataclasses
import json

import pytest

from tacit.guarantee import NON_PRIVATE, Guarantee, NoGuarantee, Relation, Trust, Unit

SILO = Guarantee(
    1.0, 1e-6, Unit.USER, Relation.ZERO_OUT, Trust.SILO, "coordinator and other silos", True, per_silo=True
)


def test_it_reads_as_the_design_says():
    words = "(1.00, 1e-06)-DP · per user and silo · zero-out · against coordinator and other silos"
    assert str(SILO) == f"{words} · SIMULATED (seeded)"
    assert str(dataclasses.replace(SILO, simulated=False)) == words
    assert "· per rating ·" in str(dataclasses.replace(SILO, unit=Unit.RATING, per_silo=False))


def test_the_summary_has_the_contracts_keys():
    told = json.loads(json.dumps(SILO.to_json()))
    assert told == {
        "epsilon": 1.0,
        "delta": 1e-6,
        "unit": "user",
        "relation": "zero-out",
        "model": "silo",
        "against": "coordinator and other silos",
        "simulated": True,
    }


@pytest.mark.parametrize("guarantee", [SILO, NON_PRIVATE])
def test_it_is_no_number(guarantee):
    with pytest.raises(TypeError):
        float(guarantee)
    with pytest.raises(TypeError):
        guarantee < 2  # noqa: B015


def test_no_mechanism_no_guarantee():
    assert str(NON_PRIVATE) == repr(NON_PRIVATE) == "NON-PRIVATE"
    assert not NON_PRIVATE
    assert NON_PRIVATE.to_json() is None
    assert isinstance(NON_PRIVATE, NoGuarantee)
    assert not isinstance(NON_PRIVATE, Guarantee)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (Unit, {"user", "rating"}),
        (Relation, {"zero-out", "add/remove", "replace"}),
        (Trust, {"local", "silo", "distributed", "shuffled", "central", "none"}),
    ],
)
def test_the_words_are_those_of_the_design(words, expected):
    assert {str(word) for word in words} == expected
