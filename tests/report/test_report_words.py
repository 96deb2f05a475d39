"""Numbers, lists and metrics as people read them."""

import math

import pytest

from tacit.report import words
from tacit.report.description import redacted
from tacit.report.metric_names import leading, meaning


@pytest.mark.parametrize(
    ("function", "value", "shown"),
    [
        *(
            (words.size, n, text)
            for n, text in ((0, "0 bytes"), (1000, "1 KB"), (1234, "1.23 KB"), (2**70, "1180592 PB"))
        ),
        *((words.seconds, s, text) for s, text in ((0, "0 ms"), (0.9999, "1.0 s"), (59.7, "1 min"), (3599.6, "1 h"))),
        *((words.metric, value, words.MISSING) for value in (None, math.nan, math.inf, -math.inf)),
        *((words.listing, list(parts), text) for parts, text in (("", ""), ("a", "a"), ("ab", "a and b"))),
        (words.seconds, math.inf, words.MISSING),
        (words.moment, "yesterday", "yesterday"),
        (words.moment, "2026-03-14T12:22:05+02:00", "14 March 2026, 10:22 UTC"),
    ],
)
def test_odd_values_are_written_as_people_would(function, value, shown):
    assert function(value) == shown


@pytest.mark.parametrize(
    "value", [1e-12, 1e-7, 0.0123456, 0.1, 0.1 + 1e-12, 1.0, 1.0049, 1.9999999, 7.77777, 123.456789]
)
def test_an_epsilon_and_a_delta_are_never_shown_smaller_than_they_are(value):
    assert value - 1e-9 <= float(words.epsilon(value)) <= value * 1.11
    assert value * (1 - 1e-9) <= float(words.delta(value)) <= value * 1.11


def test_a_metric_that_rounds_to_zero_has_no_sign():
    assert words.metric(-0.0001, 3) == "0.000"
    assert words.metric(-0.5, 3) == "−0.500"


@pytest.mark.parametrize(
    "text",
    ["postgresql://ann:s3cret@db/shop", "host=db password=s3cret", "Server=x;PWD=s3cret;", "x?token=s3cret&y=1"],
)
def test_secrets_of_an_address_are_not_shown(text):
    assert "s3cret" not in redacted(text)


def test_the_leading_metric_and_its_direction():
    assert leading([]) is None
    assert leading(["rank", "ndcg@5", "hr@10"]) == "ndcg@5"
    assert leading(["own", "mae"]) == "mae"
    assert [meaning(name).lower_is_better for name in ("rank", "recall@20", "own")] == [True, False, None]
    assert meaning("recall@20").short == "Recall@20"
