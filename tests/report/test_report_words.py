"""Numbers, lists and metrics as people read them."""

from __future__ import annotations

import doctest
import importlib
import math

import pytest

from tacit.report import words
from tacit.report.glossary import leading, meaning


@pytest.mark.parametrize("module", ["words", "glossary", "svg", "guarantee_words"])
def test_examples_in_docstrings_hold(module):
    result = doctest.testmod(importlib.import_module(f"tacit.report.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("n", "shown"),
    [(0, "0 bytes"), (1, "1 byte"), (1000, "1 KB"), (1234, "1.23 KB"), (999_999, "1 MB"), (2**70, "1180592 PB")],
)
def test_sizes(n, shown):
    assert words.size(n) == shown


@pytest.mark.parametrize(
    ("s", "shown"), [(0, "0 ms"), (0.9999, "1.0 s"), (59.7, "1 min"), (3599.6, "1 h"), (math.inf, "–")]
)
def test_durations(s, shown):
    assert words.seconds(s) == shown


@pytest.mark.parametrize("value", [1e-7, 0.0123456, 0.1, 0.1 + 1e-12, 1.0, 1.0049, 1.9999999, 7.77777, 123.456789])
def test_an_epsilon_is_never_shown_smaller_than_it_is(value):
    shown = float(words.epsilon(value))
    assert value - 1e-9 <= shown <= value * 1.11


@pytest.mark.parametrize("value", [1e-12, 9.99e-7, 1e-6, 1.01e-6, 0.031, 0.999])
def test_a_delta_is_never_shown_smaller_than_it_is(value):
    shown = float(words.delta(value))
    assert value * (1 - 1e-9) <= shown <= value * 1.11


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_a_missing_metric_is_a_dash(value):
    assert words.metric(value) == words.MISSING


def test_a_metric_that_rounds_to_zero_has_no_sign():
    assert words.metric(-0.0001, 3) == "0.000"
    assert words.metric(-0.5, 3) == "−0.500"


def test_lists_in_words():
    assert [words.listing(x) for x in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_a_time_that_is_none_stays_as_it_is():
    assert words.moment("yesterday") == "yesterday"
    assert words.moment("2026-03-14T12:22:05+02:00") == "14 March 2026, 10:22 UTC"


@pytest.mark.parametrize(
    "text",
    ["postgresql://ann:s3cret@db/shop", "host=db password=s3cret", "Server=x;PWD=s3cret;", "x?token=s3cret&y=1"],
)
def test_secrets_of_an_address_are_not_shown(text):
    assert "s3cret" not in words.redacted(text)


def test_the_leading_metric_and_its_direction():
    assert leading([]) is None
    assert leading(["rank", "ndcg@5", "hr@10"]) == "ndcg@5"
    assert leading(["own", "mae"]) == "mae"
    assert meaning("rank").lower_is_better is True
    assert meaning("recall@20").lower_is_better is False
    assert meaning("own").lower_is_better is None
    assert meaning("recall@20").short == "Recall@20"
