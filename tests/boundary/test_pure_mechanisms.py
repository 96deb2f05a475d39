"""Choosing by score and randomised response: both follow their laws, and neighbours differ by the event's ε at most."""

import math
import os
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_loss import ALARM, exceeds, seeded
from scipy import stats

from tacit.boundary import events
from tacit.boundary.randomized_response import SMALLEST, RandomizedResponse
from tacit.boundary.randomness import Secure
from tacit.boundary.selection import TopK, gumbel
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import stream_key

SCORES = np.array([3.0, 1.0, 0.0, 2.5])


def peeling(scores, k, scale):
    """P of every ordered choice of k: pick, remove, pick again."""
    weights = np.exp((scores - scores.max()) / scale)
    law = {}
    for chosen in permutations(range(len(scores)), k):
        left, p = weights.sum(), 1.0
        for i in chosen:
            p, left = p * weights[i] / left, left - weights[i]
        law[chosen] = p
    return law


def drawn(mechanism, scores, n, source):
    """n choices: the mechanism's own steps, on n copies of the scores side by side."""
    noise = gumbel(source, n * len(scores)).reshape(n, len(scores))
    return np.argsort(-(scores + mechanism.scale * noise), axis=1)[:, : mechanism.k]


def goodness(choices, law):
    """The p-value of a χ² test of ordered choices."""
    keys = {chosen: i for i, chosen in enumerate(law)}
    counts = np.bincount([keys[tuple(row)] for row in choices.tolist()], minlength=len(law))
    return stats.chisquare(counts, len(choices) * np.array(list(law.values()))).pvalue


@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("make", [seeded, Secure])
def test_noise_once_and_take_k_is_peeling(make, k, monkeypatch):
    """n = 4,000 calls, one by one; false alarm 10⁻⁶ each. The secure source's key is fixed."""
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed key")[:n])
    source, mechanism = make(), TopK(k, 2.0)
    choices = np.array([mechanism.choose(SCORES, source) for _ in range(4000)])
    assert choices.dtype == np.int64
    assert goodness(choices, peeling(SCORES, k, 2.0)) > ALARM


@pytest.mark.parametrize(
    "planted",
    [
        lambda s, n, source: np.argsort(-(s + source.normal((n, 4))), axis=1)[:, :2],  # Gaussian noise
        lambda s, n, source: np.argsort(-(s - np.log(source.uniform((n, 4)))), axis=1)[:, :2],  # exponential noise
        lambda s, n, source: np.argsort(-(s + gumbel(source, 4 * n).reshape(n, 4) / 2), axis=1)[:, :2],  # half of it
        lambda s, n, source: np.sort(drawn(TopK(2, 1.0), s, n, source), axis=1),  # the order is lost
        lambda s, n, source: drawn(TopK(2, 1.0), s, n, source)[:, ::-1],
    ],
)
def test_other_choices_are_found_out(planted):
    law = peeling(SCORES, 2, 1.0)
    assert goodness(planted(SCORES, 20_000, seeded("planted")), law) < ALARM


def test_gumbel_noise_is_gumbel():
    """n = 10⁶; false alarm 10⁻⁶. Large values are the ones that matter: 46 beyond 10 are expected."""
    noise = gumbel(seeded("gumbel"), 10**6)
    assert stats.kstest(noise, stats.gumbel_r.cdf).pvalue > ALARM
    expected = 1e6 * stats.gumbel_r.sf(10)
    assert stats.poisson.cdf(np.count_nonzero(noise > 10), expected) > ALARM
    assert stats.poisson.sf(np.count_nonzero(noise > 10) - 1, expected) > ALARM


@given(
    st.integers(1, 3),
    st.floats(0.3, 10),
    st.lists(st.floats(-5, 5), min_size=4, max_size=4),
    st.lists(st.sampled_from([-1.0, -0.5, 0.0, 1.0]), min_size=4, max_size=4),
    st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_neighbours_differ_by_the_events_epsilon_at_most(k, scale, scores, moves, monotone):
    """Every ordered outcome, exactly, for scores that move by at most Δ = 2, in one direction where that is claimed."""
    scores, moves = np.array(scores), 2.0 * np.array(moves)
    event = TopK(k, scale).event(2.0, monotone)
    here, there = peeling(scores, k, scale), peeling(scores + (np.abs(moves) if monotone else moves), k, scale)
    loss = max(abs(math.log(here[c]) - math.log(there[c])) for c in here)
    assert loss <= event.epsilon * (1 + 1e-9) + 1e-12


def worst_loss(moves, k=1, scale=1.0, n=400):
    """One candidate moves against a crowd."""
    scores = np.zeros(n)
    weights = [np.exp((s - s.max()) / scale) for s in (scores, scores + moves)]
    return abs(math.log(weights[0][0] / weights[0].sum()) - math.log(weights[1][0] / weights[1].sum()))


def test_the_factor_two_is_needed_where_scores_move_both_ways():
    """A candidate that gains against a crowd that loses comes to 2Δ/scale; the monotone event would be wrong."""
    against = np.where(np.arange(400) == 0, 1.0, -1.0)
    together = np.where(np.arange(400) == 0, 1.0, 0.0)
    both, one = TopK(1, 1.0).event(1.0), TopK(1, 1.0).event(1.0, monotone=True)
    assert one.epsilon < worst_loss(against) <= both.epsilon
    assert 0.99 * one.epsilon < worst_loss(together) <= one.epsilon


def test_far_apart_and_huge_scores():
    assert TopK(3, 1.0).choose(np.array([-1e300, 500.0, 1e300, 1000.0]), seeded())[0] == 2
    assert TopK(1, 1e-3).choose(np.array([1e15, 1e15 + 1]), seeded()) == [1]
    assert TopK(1, 1.0).choose(np.array([7], dtype=np.int32), seeded()) == [0]


def test_k_choices_cost_k_times_as_much():
    one, five = TopK(1, 4.0).event(2.0), TopK(5, 4.0).event(2.0, count=3)
    assert five == events.Pure(pytest.approx(5 * one.epsilon), "gumbel top-k", 3)
    assert five.epsilon >= 5 * 2 * 2.0 / 4.0


def test_what_noise_cannot_protect_is_refused():
    for bad in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(PrivacyRefused, match="protects no one"):
            TopK(2, bad)
        with pytest.raises(PrivacyRefused, match="sensitivity"):
            TopK(1, 1.0).event(bad)
    for poison in (np.nan, np.inf, -np.inf):
        with pytest.raises(PrivacyRefused, match="not finite"):
            TopK(1, 1.0).choose(np.array([0.0, poison]), seeded())
    for scores in (np.array([]), np.zeros(2), np.zeros((3, 3))):
        with pytest.raises(UsageError, match="3 cannot be chosen"):
            TopK(3, 1.0).choose(scores, seeded())
    with pytest.raises(UsageError, match="at least 1"):
        TopK(0, 1.0)


def exact_law(response):
    """p and q as fractions of 2⁶⁴: what the code really does."""
    p = Fraction(response._threshold, 2**64)
    return p, (1 - p) / (response.values - 1)


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
