"""What a method states is held against what the gate does: a plan that would account for something else is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from tacit import aggregation
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.query import Mechanism
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.config import AggregationSection
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.errors import PrivacyRefused, TacitError
from tacit.federation import Floats, Party, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.methods.context import Context, Target
from tacit.methods.method import Method, Parameters, Sides
from tacit.partition import Setting
from tacit.prepare import plan
from tacit.prepare.plan import make_plan

ONE = Schema(counts=Floats("items"))
FACTS = PublicFacts(60, 40, Scale(1, 5), 900)
COUNTS = Normalised(("counts",))


class Stating(Party):
    @step(Kind.SUM, takes=Schema(), gives=ONE, what="a sum of bounded contributions")
    def added(self):
        return self.gate.sum(self.ratings, {"counts": np.ones(self.ratings.n_ratings)})

    @step(Kind.CHAIN, takes=Schema(), gives=ONE, what="a chain of one answer")
    def chained(self):
        return self.gate.chain(self.ratings, {"counts": np.ones(self.ratings.n_ratings)})

    @step(Kind.REPORT, takes=Schema(), gives=ONE, what="single reports")
    def reported(self):
        return self.gate.report(self.ratings)

    @step(Kind.DISCLOSE, takes=Schema(), gives=ONE, what="data as it is")
    def handed(self):
        return self.gate.disclose(counts=np.zeros(self.member.items, dtype=np.float32))


class Quiet(Party):
    added = Stating.added
    chained = Stating.chained


def planned(*specs, how="plain", setting=Setting.HORIZONTAL, private=True, seeded=True, party=Quiet, unit=Unit.USER):
    sides = {setting: Sides(lambda *_: None, party, lambda _parameters, _context: specs)}
    method = Method("stating", "States", "States releases.", Parameters, sides)
    context = Context(FACTS, setting, 60, Target(2.0, 1e-6, unit) if private else None)
    made = aggregation.made(setting, 60, AggregationSection(name=how))
    return make_plan(method, Parameters(), context, made, seeded=seeded)


@dataclass(frozen=True)
class Responding(Normalised):
    mechanism = Mechanism.RESPONSE


@dataclass(frozen=True)
class Modest(Normalised):
    """States a quarter of what it lets one user add."""

    def sensitivity(self, unit, relation):
        return 0.25


@dataclass(frozen=True)
class PerUser(Normalised):
    def counted(self, unit):
        return Unit.USER, Relation.ZERO_OUT


@pytest.mark.parametrize("setting", [Setting.HORIZONTAL, Setting.DEVICE])
def test_a_run_with_a_hidden_sum_and_a_chain_has_the_weaker_trust(setting):
    """The noise of the sum is shared: whatever the chain's own noise is good for, the run rests on those who stay."""
    both = planned(Spec("added", COUNTS), Spec("chained", COUNTS), how="secagg", setting=setting).terms.guarantee
    alone = planned(Spec("added", COUNTS), how="secagg", setting=setting).terms.guarantee
    assert (both.trust, both.against) == (alone.trust, alone.against)
    assert "honest" in both.against


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (Spec("added", COUNTS, answers=0), "one answer"),
        (Spec("added", COUNTS, answers=2), "one answer"),
        (Spec("added", COUNTS, releases=-1), "integers of 0 or more"),
        (Spec("chained", COUNTS, answers=1.5), "integers of 0 or more"),
        (Spec("reported", Responding(("counts",)), answers=0), "0 are accounted for"),
        (Spec("reported", COUNTS), "randomised responses"),
        (Spec("added", Responding(("counts",))), "randomised responses"),
        (Spec("chained", Responding(("counts",))), "randomised responses"),
        (Spec("handed", COUNTS), "asks no query"),
        (Spec("nowhere", COUNTS), "no such step"),
    ],
)
def test_a_release_that_would_be_accounted_for_as_something_else_is_refused(spec, why):
    with pytest.raises(TacitError, match=why):
        planned(spec, party=Stating)


def test_a_sensitivity_below_what_one_user_can_add_is_refused_in_integers():
    with pytest.raises(PrivacyRefused, match="too little noise"):
        planned(Spec("added", Modest(("counts",))), how="secagg")


def test_steps_that_are_counted_for_different_units_are_refused():
    with pytest.raises(PrivacyRefused, match="different units"):
        planned(Spec("added", COUNTS), Spec("chained", PerUser(("counts",))), unit=Unit.RATING)


def test_a_run_that_also_discloses_does_not_say_that_everything_is_hidden():
    quiet = planned(Spec("added", COUNTS), how="secagg", private=False).terms.guarantee
    open_ = planned(Spec("added", COUNTS), how="secagg", private=False, party=Stating).terms.guarantee
    some = planned(Spec("added", COUNTS), Spec("chained", COUNTS), how="secagg", private=False).terms.guarantee
    assert quiet.hidden.startswith("single contributions are hidden")
    for said in (open_, some):
        assert said.hidden.startswith("single contributions to added are hidden")


def test_planted_trust_of_the_strongest_step_is_noticed(monkeypatch):
    real = plan._promise

    def strongest(reached, claimed, terms, *others):
        open_ = {name: replace(step, sealed=False) for name, step in terms.steps.items()}
        return real(reached, claimed, replace(terms, steps=open_), *others)

    monkeypatch.setattr(plan, "_promise", strongest)
    with pytest.raises(AssertionError):
        test_a_run_with_a_hidden_sum_and_a_chain_has_the_weaker_trust(Setting.HORIZONTAL)
