"""Randomised response: reports follow their law exactly within ε, and counts can be estimated without bias."""

import math
import os
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_loss import ALARM
from scipy import stats

from tacit.boundary import events
from tacit.boundary.randomized_response import SMALLEST, RandomizedResponse
from tacit.boundary.randomness import Secure, Seeded
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import stream_key


def seeded(*purpose):
    return Seeded(stream_key(7, "randomize", *purpose))


def exact_law(response):
    """p and q as fractions of 2⁶⁴: what the code really does."""
    p = Fraction(response._threshold, 2**64)
    return p, (1 - p) / (response.values - 1)


# -- what it costs -------------------------------------------------------------------------------------------------


def exceeds(p, q, epsilon):
    """Whether max(p/q, q/p) > e^ε, in 80 digits."""
    bound = Context(prec=80).exp(Decimal(epsilon))
    return any(Context(prec=80).divide(r.numerator, r.denominator) > bound for r in (p / q, q / p))


@given(st.floats(SMALLEST, 60), st.one_of(st.integers(2, 5), st.integers(2, 2**31 - 1)))
@settings(deadline=None, max_examples=300)
def test_no_report_is_likelier_by_more_than_e_to_the_epsilon(epsilon, values):
    """Over the whole support, in exact arithmetic: rounding never goes the wrong way."""
    p, q = exact_law(RandomizedResponse(epsilon, values))
    assert 0 < q <= p < 1
    assert p + (values - 1) * q == 1
    assert not exceeds(p, q, epsilon)


@given(st.floats(0.01, 30), st.integers(2, 100))
@settings(deadline=None)
def test_no_noise_is_wasted(epsilon, values):
    p, q = exact_law(RandomizedResponse(epsilon, values))
    assert math.log(p / q) == pytest.approx(epsilon, rel=1e-9, abs=values * math.exp(epsilon) * 2.0**-60)


@pytest.mark.parametrize("change", [lambda t: t + 2, lambda t: t + 2**54])
def test_a_threshold_rounded_the_wrong_way_is_found(change):
    response = RandomizedResponse(1.0, 3)
    p = Fraction(change(response._threshold), 2**64)
    assert exceeds(p, (1 - p) / 2, 1.0)


# -- reports -------------------------------------------------------------------------------------------------------


def report_goodness(report, response, n=60_000):
    """The smallest p-value over true values: reports of n users who all hold the same one."""
    p, q = map(float, exact_law(response))
    found = []
    for v in range(response.values):
        counts = np.bincount(report(np.full(n, v)), minlength=response.values)
        expected = n * np.where(np.arange(response.values) == v, p, q)
        found.append(stats.chisquare(counts, expected).pvalue)
    return min(found)


@pytest.mark.parametrize(("epsilon", "values"), [(0.1, 2), (1.0, 2), (2.0, 5), (0.5, 11), (6.0, 3)])
@pytest.mark.parametrize("make", [lambda: seeded("reports"), Secure])
def test_reports_follow_their_law(make, epsilon, values, monkeypatch):
    """n = 60,000 for each true value; false alarm 10⁻⁶ each. The secure source's key is fixed."""
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed key")[:n])
    source, response = make(), RandomizedResponse(epsilon, values)
    assert report_goodness(lambda truth: response.report(truth, source), response) > ALARM


@pytest.mark.parametrize(
    "planted",
    [
        lambda r, truth, s: RandomizedResponse(2 * r.epsilon, r.values).report(truth, s),
        lambda r, truth, s: RandomizedResponse(1.05 * r.epsilon, r.values).report(truth, s),
        lambda r, truth, s: truth,
        lambda r, truth, s: np.where(s.uniform(len(truth)) < r.truth, truth, s.integers(r.values, len(truth))),
        lambda r, truth, s: np.where(s.uniform(len(truth)) < r.truth, truth, (truth + 1) % r.values),
    ],
)
def test_other_reports_are_found_out(planted):
    source, response = seeded("planted"), RandomizedResponse(1.0, 4)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert report_goodness(lambda truth: planted(response, truth, source), response) < ALARM


def test_reports_are_drawn_anew_for_every_entry_and_call():
    source, truth = seeded("fresh"), np.zeros((100, 50), dtype=np.int64)
    response = RandomizedResponse(1.0)
    first, second = response.report(truth, source), response.report(truth, source)
    assert first.shape == truth.shape
    assert not truth.any()
    assert 0.3 < np.mean(first != second) < 0.5  # 2pq = 0.39
    assert np.all(np.std(first, axis=0) > 0)


# -- estimates -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "values"), [(1.0, 2), (2.0, 5)])
def test_estimates_are_unbiased(epsilon, values):
    """The mean of 400 estimates of 500 users: within 5 standard errors (false alarm 6·10⁻⁷ a value)."""
    source, response = seeded("estimates"), RandomizedResponse(epsilon, values)
    truth = np.repeat(np.arange(values), np.arange(values) * 500 // (values * (values - 1) // 2))
    estimates = np.array([response.estimate(response.report(truth, source)) for _ in range(400)])
    error = estimates.mean(axis=0) - np.bincount(truth, minlength=values)
    assert np.all(np.abs(error) < 5 * estimates.std(axis=0) / np.sqrt(400))
    assert estimates.sum(axis=1) == pytest.approx(len(truth))


def test_raw_counts_are_biased_and_the_test_would_see_it():
    source, response = seeded("raw"), RandomizedResponse(1.0, 2)
    truth = np.repeat([0, 1], [0, 500])
    counts = np.array([np.bincount(response.report(truth, source), minlength=2) for _ in range(400)])
    error = counts.mean(axis=0) - [0, 500]
    assert np.any(np.abs(error) > 5 * counts.std(axis=0) / np.sqrt(400))


# -- edges ---------------------------------------------------------------------------------------------------------


def test_what_is_impossible_is_refused():
    response = RandomizedResponse(1.0, 3)
    for truth in (np.array([-1]), np.array([3]), np.array([0.0]), np.array([True])):
        with pytest.raises(UsageError, match="0 … 2"):
            response.report(truth, seeded())
    for reports in (np.array([3]), np.array([-1])):
        with pytest.raises(UsageError, match="0 … 2"):
            response.estimate(reports)
    for epsilon in (0.0, -1.0, math.nan, math.inf, 1e-9):
        with pytest.raises(PrivacyRefused, match="epsilon"):
            RandomizedResponse(epsilon)
    for values in (-1, 0, 1, 2**31):
        with pytest.raises(UsageError, match="values"):
            RandomizedResponse(1.0, values)
    assert response.event(count=4) == events.Pure(1.0, "randomised response", 4)
