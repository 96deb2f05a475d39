"""A method whose sums share the budget: each step's noise follows its share, and together they cost what was asked."""

import math

import numpy as np
import pytest

from tacit.boundary.account import epsilon
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.data.synthetic import demo
from tacit.errors import UsageError
from tacit.federation import Facts, Floats, Party, Schema, step
from tacit.guarantee import Relation
from tacit.methods.method import Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting, partition
from tacit.prepare import plan as plans
from tacit.prepare.plan import plan_run
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records

EPSILON, DELTA = 2.0, 1e-6
STEPS = ("first", "second", "third")
SHARES = {"first": 0.2, "second": 0.4, "third": 0.4}
#: "third" is asked for three times, so that each of its releases gets a third of its share.
RELEASES = {"first": 1, "second": 1, "third": 3}
ONE = Schema(counts=Floats("items"))


class Adding(Party):
    """Adds up, per item, a number of length one a user; under three names."""

    def _added(self):
        return self.gate.sum(self.ratings, {"counts": np.ones(self.ratings.n_ratings, dtype=np.float32)})

    @step(Kind.SUM, takes=Schema(), gives=ONE, what="a sum")
    def first(self):
        return self._added()

    @step(Kind.SUM, takes=Schema(), gives=ONE, what="another sum")
    def second(self):
        return self._added()

    @step(Kind.SUM, takes=Schema(), gives=ONE, what="a sum in each of three rounds")
    def third(self):
        return self._added()

    def at_home(self, **shared):
        users, items = self.member.users, self.member.items
        return Fitted.same_for_all(Linear.scores(np.zeros(items, np.float32), self.facts.scale), users)


class Asking(Coordinator):
    """Asks for all of it, and writes down the noise of each total."""

    heard: list[tuple[str, float]]

    def run(self, federation):
        Asking.heard = []
        for t in federation.rounds(3):
            for name in STEPS if t == 0 else ("third",):
                total = federation.sum(name)
                Asking.heard.append((name, total.noise))
        return Model("shares", self.facts.scale, self.facts.item_ids, Linear.scores(total["counts"], self.facts.scale))


def method(shares=SHARES, releases=RELEASES) -> Method:
    """The method with these shares; those of None have none."""

    def specs(parameters, context):
        return [Spec(s, Normalised(("counts",)), releases=releases[s], share=shares[s]) for s in STEPS]

    sides = Sides(Asking, Adding, specs)
    return Method("shares", "Three sums", "Three sums that share a budget.", Parameters, {Setting.HORIZONTAL: sides})


def plan_of(aggregation="plain", **made):
    facts, privacy = PublicFacts(60, 20, Scale(1, 5), 600), PrivacySection(epsilon=EPSILON, delta=DELTA)
    section = AggregationSection(name=aggregation)
    return plan_run(method(**made), Parameters(), Setting.HORIZONTAL, 6, facts, privacy, section, seeded=True)


def each(plan):
    """Every release's event, one by one."""
    return [event for terms in plan.terms.steps.values() for event in [terms.event] * terms.spec.releases]


AGGREGATIONS = pytest.mark.parametrize("aggregation", ["plain", "ideal", "secagg"])


@AGGREGATIONS
def test_all_releases_together_cost_what_was_asked_for(aggregation):
    plan = plan_of(aggregation)
    reached = float(epsilon(each(plan), DELTA, Relation.ZERO_OUT))
    assert 0.99 * EPSILON < reached <= EPSILON
    assert reached == pytest.approx(plan.terms.guarantee.epsilon, rel=1e-6)


@AGGREGATIONS
def test_a_steps_part_of_what_is_learned_is_its_share(aggregation):
    """1/z² adds up over Gaussian answers; a sum in integers has noise of the same standard deviation over Δ₂."""
    plan = plan_of(aggregation)
    terms = plan.terms.steps
    learned = {name: terms[name].spec.releases / terms[name].multiplier ** 2 for name in STEPS}
    total = sum(learned.values())
    assert {name: part / total for name, part in learned.items()} == pytest.approx(SHARES)
    for name in STEPS:
        assert terms[name].multiplier == pytest.approx(plan.multiplier * math.sqrt(RELEASES[name] / SHARES[name]))
        if aggregation == "plain":
            assert terms[name].event.multiplier == terms[name].multiplier
        else:
            assert math.sqrt(terms[name].event.variance) / terms[name].event.l2 == pytest.approx(terms[name].multiplier)


def test_without_shares_all_steps_have_the_same_noise():
    plan = plan_of(shares=dict.fromkeys(STEPS))
    assert {terms.multiplier for terms in plan.terms.steps.values()} == {plan.multiplier}
    assert len(set(plan.sigma().values())) == 1


@pytest.mark.parametrize(
    "shares",
    [
        {"first": 0.5, "second": 0.4, "third": 0.4},
        {"first": 0.5, "second": 0.5, "third": None},
        {"first": 0.2, "second": None, "third": None},
        {"first": 0.5, "second": 0.5, "third": 0.0},
        {"first": 0.7, "second": 0.5, "third": -0.2},
        {"first": 0.5, "second": 0.5, "third": math.nan},
    ],
    ids=["too much", "one without", "one alone", "nothing", "below nothing", "no number"],
)
def test_shares_that_cannot_be_are_refused_with_one_sentence(shares):
    with pytest.raises(UsageError, match="share the budget") as refusal:
        plan_of(shares=shares)
    said = str(refusal.value)
    assert said.endswith(".")
    assert "\n" not in said
    assert ". " not in said


# -- a run ------------------------------------------------------------------------------------------------------------


@AGGREGATIONS
def test_a_run_charges_each_release_by_its_share_and_totals_say_their_own_noise(tmp_path, aggregation):
    parties = partition(demo(users=60, items=20, ratings=600), into=6)
    privacy, section = PrivacySection(epsilon=EPSILON, delta=DELTA), AggregationSection(name=aggregation)
    ready = PreparedRun.of(
        method(), Parameters(), Facts.of(parties, 7), privacy=privacy, aggregation=section, run="run"
    )
    train(ready, parties, records=Records.of(ready, tmp_path))
    terms = ready.plan.terms.steps
    for path in ledgers_in(tmp_path):
        ledger = Ledger.open(path)
        charged = [(row.step, row.spent) for row in ledger.rows() if row.step in STEPS]
        ledger.close()
        assert charged == [(name, terms[name].event) for name in (*STEPS, "third", "third")]
        reached = float(epsilon([event for _step, event in charged], DELTA, Relation.ZERO_OUT))
        assert 0.99 * EPSILON < reached <= EPSILON
    assert Asking.heard == [(name, ready.how.noise(terms[name].sigma, 6)) for name in (*STEPS, "third", "third")]


# -- planted ----------------------------------------------------------------------------------------------------------


def test_planted_shares_that_are_forgotten_are_noticed(monkeypatch):
    monkeypatch.setattr(plans, "_weight", lambda mechanism, count, share: 1.0)
    with pytest.raises(AssertionError):
        test_a_steps_part_of_what_is_learned_is_its_share("plain")


def test_planted_a_share_for_each_release_of_a_step_is_noticed(monkeypatch):
    real = plans._weight
    monkeypatch.setattr(plans, "_weight", lambda mechanism, count, share: real(mechanism, 1, share))
    with pytest.raises(AssertionError):
        test_a_steps_part_of_what_is_learned_is_its_share("plain")
