"""`tacit explain`: the words and numbers that a person gets."""

import json
import math

import pytest
from test_cli import tacit

from tacit.boundary.odds import posterior
from tacit.cli.explain import COMPARED, VERDICTS, _percent, explain
from tacit.errors import UsageError


def said(capsys, epsilon, delta):
    explain(epsilon, delta, as_json=False)
    return " ".join(capsys.readouterr().out.split())


def told(capsys, epsilon, delta):
    explain(epsilon, delta, as_json=True)
    return json.loads(capsys.readouterr().out)


def test_it_says_what_one_person_can_lose(capsys):
    words = said(capsys, 1.0, 1e-6)
    assert "1 in 2 to at most 73.2 %" in words
    assert "1 in 1000 to at most 0.28 %" in words
    assert "right 73.2 % of the time" in words
    assert "up to 100,000 users" in words
    assert VERDICTS["strong"] in words
    assert "does not mean" in words
    assert "(ε = 2, δ = 3.7e-06)" in words


@pytest.mark.parametrize(("epsilon", "verdict"), [(0.5, "strong"), (2.0, "moderate"), (7.0, "weak"), (15.0, "little")])
def test_it_does_not_flatter(capsys, epsilon, verdict):
    assert VERDICTS[verdict] in said(capsys, epsilon, 1e-6)
    assert told(capsys, epsilon, 1e-6)["verdict"] == verdict


def test_it_sets_the_guarantee_beside_others(capsys):
    words = said(capsys, 1.7, 1e-6)
    for epsilon in (*COMPARED, 1.7):
        assert _percent(posterior(0.5, epsilon)) in words


def test_the_json_is_one_object_with_computed_numbers(capsys):
    table = told(capsys, 2.0, 1e-5)
    assert table["certainty"][0] == {"from": 0.5, "to": pytest.approx(1 / (1 + math.exp(-2)))}
    assert table["factor"] == pytest.approx(math.exp(2))
    assert [row["epsilon"] for row in table["beside"]] == list(COMPARED)
    assert table["two_users"]["epsilon"] == 4


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.0), (math.inf, 0.0), (800.0, 0.3), (1e-9, 1e-300)])
def test_odd_guarantees_have_words_and_valid_json(capsys, epsilon, delta):
    assert said(capsys, epsilon, delta)
    assert "NaN" not in json.dumps(told(capsys, epsilon, delta), allow_nan=False)


def test_no_promise_is_called_none(capsys):
    assert VERDICTS["none"] in said(capsys, math.inf, 0.0)
    assert "without exception" not in said(capsys, math.inf, 0.0)
    assert "without exception" in said(capsys, 1.0, 0.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 1e-6), (math.nan, 1e-6), (1.0, 1.0), (1.0, -0.1)])
def test_impossible_guarantees_get_one_sentence(epsilon, delta):
    with pytest.raises(UsageError, match="not possible"):
        explain(epsilon, delta, as_json=False)


def test_delta_is_one_in_a_million_unless_it_is_given(tmp_path):
    assert tacit("explain", "1", cwd=tmp_path).stdout == tacit("explain", "1", "1e-6", cwd=tmp_path).stdout
