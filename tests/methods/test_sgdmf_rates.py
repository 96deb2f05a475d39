"""SGDMF's step sizes follow from public quantities alone, and hold noise where the rule says."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.public_facts import PublicFacts
from tacit.data.synthetic import synthesize
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods import chosen
from tacit.methods.baselines.gradient_clipping import FREE_DRIFT
from tacit.methods.context import Context, Target
from tacit.methods.sgdmf.update_rule import DRIFT, LAST, LAST_DRIFT, Steps, curvature_limited_rate
from tacit.partition import Setting, partition

PARTIES = partition(synthesize(60, 30, 600, seed=5).ratings, by="item", into=3)
FACTS = dataclasses.replace(Facts.of(PARTIES, seed=1), unit=Unit.RATING)
noises = st.floats(1e-3, 1e6)


def resolved(name="sgdmf", **parameters):
    _method, checked = chosen({"name": name, "rounds": 20, "local_steps": 5, "sampling": 0.1, **parameters})
    public = PublicFacts(FACTS.users, FACTS.items, FACTS.scale, FACTS.ratings)
    return checked.resolved(Context(public, Setting.VERTICAL, 3, Target(1.0, 1e-6, Unit.RATING)))


def drifted(steps: Steps) -> float:
    """How far noise alone would carry an unheld entry at the first rate, in parts of √(R/p)."""
    entry = math.sqrt(steps.facts.scale.span / steps.parameters.factors)
    return steps.rates[0] * steps.noise * math.sqrt(steps.mixed * steps.count) / entry


def test_a_rate_that_is_given_is_taken():
    assert Steps(resolved(rate=0.37), FACTS, 100, noise=50.0).first == 0.37


def test_without_noise_curvature_alone_decides():
    assert Steps(resolved(), FACTS, 100).first == curvature_limited_rate(FACTS, 0.1)


@settings(deadline=None)
@given(noises, st.integers(1, 40))
def test_noise_carries_factors_as_far_as_the_rule_says_and_never_faster_than_curvature_allows(noise, mixed):
    rates = Steps(resolved(), FACTS, 100, noise, mixed)
    assert rates.first <= curvature_limited_rate(FACTS, 0.1)
    assert drifted(rates) <= DRIFT * (1 + 1e-9)
    assert rates.first == curvature_limited_rate(FACTS, 0.1) or drifted(rates) == pytest.approx(DRIFT)


@settings(deadline=None)
@given(noises)
def test_more_noise_never_means_larger_steps(noise):
    rates = [Steps(resolved(), FACTS, 100, noise * louder).first for louder in (1, 2, 4)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    ("name", "others", "drift"),
    [
        ("sgdmf", {}, DRIFT),
        ("dp-sgld", {}, DRIFT),
        ("gradient-clipping", {}, FREE_DRIFT),
        ("gradient-clipping", {"projected": True}, DRIFT),
    ],
)
def test_factors_that_nothing_holds_are_treated_gently(name, others, drift):
    assert drifted(Steps(resolved(name, **others), FACTS, 100, 1e4, 3)) == pytest.approx(drift)


def test_last_steps_are_gentle():
    assert drifted(Steps(resolved(), FACTS, 30, 1e4, limit=LAST_DRIFT)) == pytest.approx(LAST_DRIFT)


def test_rates_do_not_look_at_ratings():
    """Another set with the same public facts has the same rates."""
    other = partition(synthesize(60, 30, 600, seed=6).ratings, by="item", into=3)
    facts = dataclasses.replace(Facts.of(other, seed=1), unit=Unit.RATING)
    assert not np.array_equal(PARTIES[0].ratings.values, other[0].ratings.values)
    for noise in (0.0, 3.0, 1e4):
        assert Steps(resolved(), facts, 100, noise, 3).first == Steps(resolved(), FACTS, 100, noise, 3).first


def test_rates_and_weight_decay_fall_for_four_fifths_of_the_steps_and_then_stay():
    steps = Steps(resolved(regularization=0.5), FACTS, 100, noise=1e4)
    for path in (steps.rates, steps.decays):
        np.testing.assert_allclose(np.diff(path[:80]), (LAST - 1) * path[0] / 80)
        assert path[80:] == pytest.approx([LAST * path[0]] * 20)
