"""Shuffling: the published numbers, crowds worked out in full, and where there is nothing to gain."""

import math

import numpy as np
import pytest
import true_divergences as true

from tacit.boundary import account
from tacit.boundary import shuffle_amplification as shuffling
from tacit.boundary.events import Shuffled, Skellam
from tacit.errors import UsageError
from tacit.guarantee import Relation

REPLACE = Relation.REPLACE
EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0)


def amplified(local, crowd, delta, count=1):
    return account.epsilon([Shuffled(local, crowd, count)], delta, REPLACE)


def closed_form(local, crowd, delta):
    """Theorem 3.1 of "Hiding Among the Clones", in the form of the authors' own code."""
    grown = math.exp(local)
    spread = 8 * math.sqrt(grown * math.log(4 / delta) / crowd) + 8 * grown / crowd
    return math.log1p((1 - 1 / grown) / (1 + 1 / (grown * (1 + spread))) * spread)


def test_the_authors_own_numbers_come_out():
    """Apple's ml-shuffling-amplification, example.py: n = 1e5, ε₀ = 4, δ = 1e-6."""
    assert 0.1675385583317841 <= amplified(4.0, 10**5, 1e-6) <= 0.172790550755978
    assert closed_form(4.0, 10**5, 1e-6) == pytest.approx(0.5378040242374512, rel=1e-12)


def test_the_numerical_bound_is_tighter_than_the_closed_form():
    for local, crowd, delta in ((1.0, 1000, 1e-6), (2.0, 10**4, 1e-6), (5.0, 10**6, 1e-8), (0.5, 10**5, 1e-10)):
        assert 0 < amplified(local, crowd, delta) < closed_form(local, crowd, delta) < local


def test_a_crowd_of_one_hides_nothing():
    for count in (1, 3):
        reached = account.epsilon([Shuffled(0.5, 1, count)], 1e-12, REPLACE)
        assert reached == pytest.approx(0.5 * count, abs=1e-3)
    assert account.epsilon([Shuffled(0.5, 1, 4)], 0.0, REPLACE) == 2.0
    assert amplified(0.0, 10, 1e-6) == 0
    assert amplified(1.0, 10, 0.0) == 1.0


@pytest.mark.parametrize(("local", "crowd"), [(1.0, 30), (0.3, 12), (3.0, 60)])
def test_the_numerical_bound_is_the_divergence_of_the_clones(local, crowd):
    p, q = true.clones(local, crowd)
    at = np.linspace(0, local * 0.99, 9)
    direct = [true.hockey_stick(p, q, e) for e in at]
    np.testing.assert_allclose(shuffling.delta(local, crowd, at), direct, rtol=1e-8, atol=1e-15)
    assert shuffling.delta(local, crowd, np.array([local, 2 * local])).tolist() == [0, 0]


def test_grouping_large_crowds_rounds_up_by_little(monkeypatch):
    at = np.array([0.02, 0.05, 0.1])
    grouped = shuffling.delta(2.0, 40_000, at)
    monkeypatch.setattr(shuffling, "GROUPS", 10_000)
    exact = shuffling.delta(2.0, 40_000, at)
    assert np.all(grouped >= exact)
    np.testing.assert_allclose(grouped, exact, rtol=0.05)


def understated(local, crowd, count=1, claimed=None):
    """Crowds of real randomisers, in full, whose δ exceeds the bound: (what was sent, ε) for each."""
    others = crowd - 1
    worlds = {
        "bits, all others 0": [true.shuffled_bits(local, 0, others, mine) for mine in (1, 0)],
        "bits, all others 1": [true.shuffled_bits(local, others, 0, mine) for mine in (1, 0)],
        "bits, half and half": [true.shuffled_bits(local, others // 2, others - others // 2, m) for m in (1, 0)],
        "letters, all others elsewhere": [true.shuffled_letters(local, [2] * others, mine) for mine in (0, 1)],
        "letters, spread": [true.shuffled_letters(local, [k % 3 for k in range(others)], mine) for mine in (0, 1)],
    }
    found = []
    for name, pair in worlds.items():
        repeated = pair if count == 1 else [true.twice(d) for d in pair]
        for epsilon in EPSILONS:
            bound = account.delta([claimed or Shuffled(local, crowd, count)], epsilon, REPLACE)
            if max(true.hockey_stick(*repeated, epsilon), true.hockey_stick(*repeated[::-1], epsilon)) > bound + 1e-12:
                found.append((name, epsilon))
    return found


@pytest.mark.parametrize(("local", "crowd", "count"), [(1.0, 20, 1), (2.0, 25, 1), (0.5, 8, 2), (2.0, 6, 2)])
def test_no_randomiser_shows_more_than_the_bound(local, crowd, count):
    assert understated(local, crowd, count) == []


MISTAKES = {"half of the reports' ε": Shuffled(0.5, 20), "reports counted as devices": Shuffled(1.0, 20 * 8)}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_crowd_would_be_noticed(mistake):
    assert understated(1.0, 20, claimed=MISTAKES[mistake]) != []


def test_counting_one_shuffle_for_two_would_be_noticed():
    assert understated(2.0, 6, 2, claimed=Shuffled(2.0, 6, 1)) != []


def test_shuffles_compose_below_the_sum_and_with_other_events():
    once, often = (account.epsilon([Shuffled(4.0, 10**5, k)], 1e-6, REPLACE) for k in (1, 100))
    assert 5 * once < often < 20 * once
    assert account.epsilon([Shuffled(4.0, 10**5, 100), Skellam(1e6, 300.0, 100.0)], 1e-6, REPLACE) > often


def test_renyi_costs_of_a_shuffle_cover_its_clones():
    p, q = true.clones(2.0, 40)
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    costs = shuffling.renyi(2.0, 40, orders)
    assert all(true.renyi(p, q, a) <= c <= 2.0 for a, c in zip(orders, costs, strict=True))


def test_emptying_a_record_is_one_way_to_replace_it():
    event = Shuffled(1.0, 1000, 5)
    assert account.epsilon([event], 1e-6, Relation.ZERO_OUT) == account.epsilon([event], 1e-6, REPLACE)


@pytest.mark.parametrize(("local", "crowd"), [(-1.0, 10), (math.nan, 10), (math.inf, 10), (1.0, 0)])
def test_impossible_crowds_are_refused(local, crowd):
    with pytest.raises(UsageError, match="not possible"):
        shuffling.delta(local, crowd, np.ones(1))


@pytest.mark.parametrize("local", [15.0, 25.0, 33.0, 100.0, 499.0, 501.0, 1000.0])
def test_a_report_that_tells_nearly_everything_is_not_lost_in_any_crowd(local):
    """Nobody else looks like a clone then: with probability near 1 − e^(ε − ε₀) the report stands alone."""
    crowd = 1000
    alone = (1 - math.exp(-local)) ** (crowd - 1)
    for below in (0.5, 1.0, 3.0):
        stated = float(shuffling.delta(local, crowd, np.array([local - below]))[0])
        assert stated >= alone * -math.expm1(-below) * (1 - math.exp(-local)) - 1e-12
