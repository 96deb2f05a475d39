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
from tacit.methods.context import Context, Target
from tacit.methods.sgdmf.step_sizes import LAST, LAST_DRIFT, Rates, curvature_limited_rate
from tacit.methods.sgdmf.update_rule import CLIPPED, DRIFT, EMBEDDED, FREE_DRIFT, LANGEVIN
from tacit.partition import Setting, partition

PARTIES = partition(synthesize(60, 30, 600, seed=5).ratings, by="item", into=3)
FACTS = dataclasses.replace(Facts.of(PARTIES, seed=1), unit=Unit.RATING)
noises = st.floats(1e-3, 1e6)


def resolved(name="sgdmf", **parameters):
    _method, checked = chosen({"name": name, "rounds": 20, "local_steps": 5, "sampling": 0.1, **parameters})
    public = PublicFacts(FACTS.users, FACTS.items, FACTS.scale, FACTS.ratings)
    return checked.resolved(Context(public, Setting.VERTICAL, 3, Target(1.0, 1e-6, Unit.RATING)))


def drifted(rates: Rates) -> float:
    """How far noise alone would carry an unheld entry at the first rate, in parts of √(R/p)."""
    c = rates.per_rating(0)
    entry = math.sqrt(rates.facts.scale.span / rates.parameters.factors)
    return c * rates.noise * math.sqrt(rates.mixed * rates.steps) / entry


def test_a_rate_that_is_given_is_taken():
    assert Rates(resolved(rate=0.37), FACTS, 100, noise=50.0).first == 0.37


def test_without_noise_curvature_alone_decides():
    assert Rates(resolved(), FACTS, 100).first == curvature_limited_rate(FACTS, 0.1)


@settings(deadline=None)
@given(noises, st.integers(1, 40))
def test_noise_carries_factors_as_far_as_the_rule_says_and_never_faster_than_curvature_allows(noise, mixed):
    rates = Rates(resolved(), FACTS, 100, noise, mixed)
    assert rates.first <= curvature_limited_rate(FACTS, 0.1)
    assert drifted(rates) <= DRIFT * (1 + 1e-9)
    assert rates.first == curvature_limited_rate(FACTS, 0.1) or drifted(rates) == pytest.approx(DRIFT)


@settings(deadline=None)
@given(noises)
def test_more_noise_never_means_larger_steps(noise):
    rates = [Rates(resolved(), FACTS, 100, noise * louder).first for louder in (1, 2, 4)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(
    ("name", "rule", "others", "drift"),
    [
        ("sgdmf", EMBEDDED, {}, DRIFT),
        ("dp-sgld", LANGEVIN, {}, DRIFT),
        ("gradient-clipping", CLIPPED, {}, FREE_DRIFT),
        ("gradient-clipping", CLIPPED, {"projected": True}, DRIFT),
    ],
)
def test_factors_that_nothing_holds_are_treated_gently(name, rule, others, drift):
    parameters = resolved(name, **others)
    assert drifted(Rates(parameters, FACTS, 100, 1e4, 3, rule.drift(parameters))) == pytest.approx(drift)


def test_last_steps_are_gentle():
    assert drifted(Rates(resolved(), FACTS, 30, 1e4, drift=LAST_DRIFT)) == pytest.approx(LAST_DRIFT)


def test_rates_do_not_look_at_ratings():
    """Another set with the same public facts has the same rates."""
    other = partition(synthesize(60, 30, 600, seed=6).ratings, by="item", into=3)
    facts = dataclasses.replace(Facts.of(other, seed=1), unit=Unit.RATING)
    assert not np.array_equal(PARTIES[0].ratings.values, other[0].ratings.values)
    for noise in (0.0, 3.0, 1e4):
        assert Rates(resolved(), facts, 100, noise, 3).first == Rates(resolved(), FACTS, 100, noise, 3).first


def test_rates_fall_to_their_last_part():
    rates = Rates(resolved(), FACTS, 100, noise=1e4)
    path = [rates.per_rating(step) for step in range(100)]
    assert path == sorted(path, reverse=True)
    assert path[-1] == pytest.approx(LAST * path[0])
