"""A plan's numbers by hand: its δ is the one that was asked for, and its rates are those at which units are drawn."""

from types import SimpleNamespace

import pytest
from method_runs import plan_of, run_file

from tacit.boundary.account import epsilon
from tacit.boundary.code import Grid
from tacit.boundary.events import SampledSkellam
from tacit.boundary.gdp import delta as delta_of
from tacit.boundary.ledger import Ledger
from tacit.config import AggregationSection, PrivacySection
from tacit.data.load import load
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.deploy.policy import Policy
from tacit.errors import PrivacyRefused
from tacit.estimator import DP, Bias
from tacit.experiment import recorded
from tacit.guarantee import Relation, Unit
from tacit.methods import chosen
from tacit.partition import Setting, partition
from tacit.prepare.loaded import prepare
from tacit.prepare.plan import plan_run
from tacit.prepare.simulated_ledgers import Records
from tacit.secure.quantize import Rounding

FACTS, DELTA, EPSILON = PublicFacts(500, 40, Scale(1, 5), 9000), 1e-5, 2.0
CHAIN = {"factors": 3, "rounds": 2, "local_steps": 2, "trim": 3}


def planned(method="bias", unit="user", setting=Setting.HORIZONTAL, how="plain", delta=DELTA, epsilon=EPSILON, **more):
    privacy = PrivacySection(epsilon=epsilon, delta=delta, unit=unit)
    section = AggregationSection(name=how)
    return plan_run(*chosen({"name": method, **more}), setting, 4, FACTS, privacy, section, seeded=True)


def test_the_noise_is_for_the_delta_that_was_asked_for():
    """One plain Gaussian, whose trade-off is known in closed form: at ε the noise leaves δ and no more."""
    plan = planned()
    assert (plan.delta, plan.terms.guarantee.delta) == (DELTA, DELTA)
    left = delta_of(plan.terms.guarantee.epsilon, 1 / plan.multiplier)
    assert left == pytest.approx(DELTA, rel=1e-3)
    assert delta_of(EPSILON, 1 / plan.multiplier) <= DELTA * (1 + 1e-6)


def test_where_no_delta_is_asked_for_it_is_a_hundredth_of_one_in_n():
    assert planned(delta=None).delta == planned(delta=None).terms.guarantee.delta == 1e-6


def test_sampled_sums_are_planned_at_the_rate_of_the_sample():
    plan = planned("sgdmf", how="ideal", users="pretrained", sampling=0.2, **{**CHAIN, "local_steps": 1})
    (terms,), z = plan.terms.steps.values(), plan.multiplier
    rounding = Rounding.fine(terms.query.clip, 3 * 3)  # θ rows of three factors
    assert terms.code.rounding == rounding
    variance = (z * rounding.l2) ** 2
    assert terms.event == SampledSkellam(variance, rounding.l1, rounding.l2, 0.2, 1)
    assert plan.terms.events == (SampledSkellam(variance, rounding.l1, rounding.l2, 0.2, 2),)
    assert terms.code.variance == variance


def test_planted_a_grid_with_less_variance_than_is_charged_is_noticed(monkeypatch):
    real = Grid.variance.fget
    monkeypatch.setattr(Grid, "variance", property(lambda self: real(self) / 2))
    with pytest.raises(AssertionError):
        test_sampled_sums_are_planned_at_the_rate_of_the_sample()


@pytest.mark.parametrize("method", ["sgdmf", "objective-perturbation", "synsgd"])
def test_per_rating_at_factors_fitted_at_home_all_is_counted_under_replace(method):
    more = {"users": "pretrained", "sampling": 1.0, **CHAIN} if method == "sgdmf" else {"factors": 3, "trim": 3}
    if method == "synsgd":
        more |= {"rounds": 2, "sampling": 1.0}
    plan = planned(method, unit="rating", **more)
    assert (plan.terms.unit, plan.terms.relation) == (Unit.USER, Relation.REPLACE)
    spent = [event for t in plan.terms.steps.values() for event in [t.event] * t.spec.releases]
    held = float(epsilon(spent, DELTA, Relation.REPLACE))
    assert held <= EPSILON * (1 + 1e-9)
    assert held == pytest.approx(plan.terms.guarantee.epsilon)
    assert float(epsilon(spent, DELTA, Relation.ZERO_OUT)) < 0.7 * held


def test_a_budget_is_held_against_the_relation_that_was_counted():
    """Under zero-out the same run would pass."""
    plan = planned("sgdmf", unit="rating", users="pretrained", sampling=1.0, **CHAIN)
    budget = PrivacySection(epsilon=EPSILON, delta=DELTA, unit="rating", budget=0.8 * EPSILON)
    with pytest.raises(PrivacyRefused, match="its budget is"):
        plan.check_budget(budget)


def test_a_budget_is_held_at_the_delta_that_was_asked_for():
    """At twice that δ it would pass: the budget lies between the two."""
    plan = planned()
    both = [float(epsilon(plan.terms.events, d, Relation.ZERO_OUT)) for d in (DELTA, 2 * DELTA)]
    budget = PrivacySection(epsilon=EPSILON, delta=DELTA, budget=sum(both) / 2)
    with pytest.raises(PrivacyRefused, match="its budget is"):
        plan.check_budget(budget)


# -- whoever makes a budget makes it at the run's own δ: a run file, an estimator, a site ------------------------------

SMALL = {"source": "demo", "users": 40, "items": 10, "ratings": 200}
FILE = run_file(data=SMALL, partition={"into": 2}, privacy={"epsilon": EPSILON, "delta": DELTA})


def test_a_run_files(tmp_path):
    records = recorded(prepare(FILE), SimpleNamespace(path=tmp_path))
    records.log.close()
    assert (records.budget.epsilon, records.budget.delta) == (EPSILON, DELTA)


def test_an_estimators(monkeypatch):
    parties, made, real = partition(load(**SMALL), into=2), [], Records.over
    monkeypatch.setattr(Records, "over", lambda self, *run: (made.append(self), real(self, *run))[1])
    Bias(privacy=DP(EPSILON, DELTA)).fit(parties, ratings=200)
    (records,) = made
    assert (records.budget.epsilon, records.budget.delta) == (EPSILON, DELTA)


@pytest.mark.parametrize("policy", [Policy(), Policy(local=True)], ids=["deployed", "local"])
def test_a_sites(tmp_path, policy):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for _again in range(2):
        budget = policy.budget(FILE, plan_of(FILE), ledger)
        assert (budget.epsilon, budget.delta) == (EPSILON, DELTA)
    ledger.close()
