"""A plan's numbers by hand: its δ is the one that was asked for, and its rates are those at which units are drawn."""

from dataclasses import replace

import pytest

from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian, SampledGaussian, SampledSkellam, Skellam
from tacit.boundary.gdp import delta as delta_of
from tacit.boundary.sealed import Grid
from tacit.config import PrivacySection
from tacit.data.public import PublicFacts
from tacit.data.ratings import Scale
from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation, Unit
from tacit.methods import chosen, find
from tacit.methods.asked import Situation
from tacit.methods.plan import affordable, make_plan
from tacit.partition import Setting

FACTS, DELTA, EPSILON = PublicFacts(500, 40, Scale(1, 5), 9000), 1e-5, 2.0
CHAIN = {"factors": 3, "rounds": 2, "local_steps": 2, "trim": 3}


def planned(method="bias", unit="user", setting=Setting.HORIZONTAL, sealed=False, delta=DELTA, epsilon=EPSILON, **more):
    _method, parameters = chosen({"name": method, **more})
    situation = Situation(setting, 4, sealed=sealed)
    privacy = PrivacySection(epsilon=epsilon, delta=delta, unit=unit)
    return make_plan(method, find(method).schedule, parameters, privacy, FACTS, situation, seeded=True)


def test_the_noise_is_for_the_delta_that_was_asked_for():
    """One plain Gaussian, whose trade-off is known in closed form: at ε the noise leaves δ and no more."""
    plan = planned()
    assert (plan.delta, plan.terms.guarantee.delta) == (DELTA, DELTA)
    left = delta_of(plan.terms.guarantee.epsilon, 1 / plan.terms.multiplier)
    assert left == pytest.approx(DELTA, rel=1e-3)
    assert delta_of(EPSILON, 1 / plan.terms.multiplier) <= DELTA * (1 + 1e-6)


def test_where_no_delta_is_asked_for_it_is_a_hundredth_of_one_in_n():
    assert planned(delta=None).delta == planned(delta=None).terms.guarantee.delta == 1e-6


def asked(unit=Unit.USER, setting=Setting.HORIZONTAL, parties=4, **more):
    """By step, what a method asks; nothing is calibrated."""
    _method, parameters = chosen({"name": "sgdmf", **more})
    situation = Situation(setting, parties, sealed=False)
    noisy = find("sgdmf").schedule(parameters.resolved(unit, situation), FACTS, unit, situation).noisy
    return {n.step: n for n in noisy}


@pytest.mark.parametrize("rate", [0.3, 0.05])
def test_sampled_answers_are_planned_at_the_rate_of_the_sample(rate):
    improve = asked(users="pretrained", sampling=rate, **CHAIN)["improve"]
    assert improve.event(2.0) == SampledGaussian(2.0, rate, 4)
    steps = asked(setting=Setting.VERTICAL, sampling=rate, final_steps=2, **CHAIN)
    assert steps["improve"].event(2.0) == SampledGaussian(2.0, rate, 16)
    assert steps["finish"].event(2.0) == SampledGaussian(2.0, rate, 8)
    assert asked(Unit.RATING, sampling=rate, **{**CHAIN, "trim": None})["improve"].sampling == rate


def test_sampled_sums_are_planned_at_the_rate_of_the_sample():
    (contribute,) = asked(users="pretrained", sampling=0.2, **{**CHAIN, "local_steps": 1}).values()
    rounding = contribute.summed.rounding
    event = replace(contribute, whole=True).event(2.0)
    assert event == SampledSkellam((2.0 * rounding.l2) ** 2, rounding.l1, rounding.l2, 0.2, 2)
    grid = Grid(rounding, 1.0, 2.0, 64)
    assert grid.event(0.2, 2) == event
    assert grid.variance == event.variance


def test_unsampled_sums_say_so():
    (event,) = planned(sealed=True).terms.events
    assert type(event) is Skellam
    (event,) = planned().terms.events
    assert type(event) is Gaussian


@pytest.mark.parametrize("method", ["sgdmf", "objective-perturbation", "synsgd"])
def test_per_rating_at_factors_fitted_at_home_all_is_counted_under_replace(method):
    more = {"users": "pretrained", "sampling": 1.0, **CHAIN} if method == "sgdmf" else {"factors": 3, "trim": 3}
    if method == "synsgd":
        more |= {"rounds": 2, "sampling": 1.0}
    plan = planned(method, unit="rating", **more)
    assert (plan.terms.unit, plan.terms.relation) == (Unit.USER, Relation.REPLACE)
    spent = [n.event(plan.terms.multiplier) for n in plan.noisy]
    held = float(epsilon(spent, DELTA, Relation.REPLACE))
    assert held <= EPSILON * (1 + 1e-9)
    assert held == pytest.approx(plan.terms.guarantee.epsilon)
    assert float(epsilon(spent, DELTA, Relation.ZERO_OUT)) < 0.7 * held


def test_a_budget_is_held_against_the_relation_that_was_counted():
    """Under zero-out the same run would pass."""
    plan = planned("sgdmf", unit="rating", users="pretrained", sampling=1.0, **CHAIN)
    budget = PrivacySection(epsilon=EPSILON, delta=DELTA, unit="rating", budget=0.8 * EPSILON)
    with pytest.raises(PrivacyRefused, match="its budget is"):
        affordable(plan, budget)


def test_a_budget_is_held_at_the_delta_that_was_asked_for():
    """At twice that δ it would pass: the budget lies between the two."""
    plan = planned()
    both = [float(epsilon(plan.terms.events, d, Relation.ZERO_OUT)) for d in (DELTA, 2 * DELTA)]
    budget = PrivacySection(epsilon=EPSILON, delta=DELTA, budget=sum(both) / 2)
    with pytest.raises(PrivacyRefused, match="its budget is"):
        affordable(plan, budget)
