"""A method of two sums that share a budget and a run's retries: noise follows shares, and the plan covers any retry."""

import math
from collections import Counter
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from method_runs import rows_of

from tacit.boundary.account import epsilon
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection, Tally
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec, Terms, times
from tacit.boundary.wire import encode
from tacit.config import AggregationSection, PrivacySection
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts, Floats, Party, Schema, step
from tacit.federation.messages import Request
from tacit.guarantee import Relation
from tacit.methods.method import Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting, partition
from tacit.prepare import plan as plans
from tacit.prepare.plan import plan_run
from tacit.prepare.prepared import PreparedRun, Record
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records
from tacit.testing.adversary import InMemory

EPSILON, DELTA, USERS = 2.0, 1e-6, 60
PRIVACY = PrivacySection(epsilon=EPSILON, delta=DELTA)
RATINGS = demo(users=USERS, items=20, ratings=600)
#: "long" is asked for twice, so that each of its releases gets half of its share.
RELEASES, SHARES = {"short": 1, "long": 2}, (0.2, 0.8)
ASKED = ("short", "long", "long")
ONE, THREE = Schema(a=Floats("items")), Schema(a=Floats("items"), b=Floats("items"), c=Floats("items"))


class Adding(Party):
    """Adds one number an item, or three."""

    def _added(self, *channels):
        return self.gate.sum(self.ratings, {name: np.ones(self.ratings.n_ratings, np.float32) for name in channels})

    @step(Kind.SUM, takes=Schema(), gives=ONE, what="one number an item")
    def short(self):
        return self._added("a")

    @step(Kind.SUM, takes=Schema(), gives=THREE, what="three numbers an item")
    def long(self):
        return self._added("a", "b", "c")

    def at_home(self, **shared):
        users, items = self.member.users, self.member.items
        return Fitted.same_for_all(Linear.scores(np.zeros(items, np.float32), self.facts.scale), users)


class Asking(Coordinator):
    """Asks for all of it, and writes down the noise of each total."""

    heard: list[tuple[str, float]]

    def run(self, federation):
        Asking.heard = []
        for t in federation.rounds(2):
            for name in RELEASES if t == 0 else ("long",):
                total = federation.sum(name)
                Asking.heard.append((name, total.noise))
        return Model("shared", self.facts.scale, self.facts.item_ids, Linear.scores(total["a"], self.facts.scale))


def method(shares=SHARES) -> Method:
    """The method with these shares, or with none."""
    short, long = shares or (None, None)

    def specs(parameters, context):
        return [
            Spec("short", Normalised(("a",)), releases=RELEASES["short"], share=short),
            Spec("long", Normalised(("a", "b", "c")), releases=RELEASES["long"], share=long),
        ]

    sides = dict.fromkeys((Setting.HORIZONTAL, Setting.DEVICE), Sides(Asking, Adding, specs))
    return Method("shared", "Two sums", "Two sums that share a budget.", Parameters, sides)


def plan_of(aggregation="plain", shares=SHARES):
    """In six silos."""
    facts, section = PublicFacts(USERS, 20, Scale(1, 5), 600), AggregationSection(name=aggregation)
    return plan_run(method(shares), Parameters(), Setting.HORIZONTAL, 6, facts, PRIVACY, section, seeded=True)


def retried(retries, shares=None):
    """On devices, under secure sums that may be void."""
    facts, section = PublicFacts(USERS, 20, Scale(1, 5), 600), AggregationSection(name="secagg", retries=retries)
    return plan_run(method(shares), Parameters(), Setting.DEVICE, USERS, facts, PRIVACY, section, seeded=True)


# -- shares -----------------------------------------------------------------------------------------------------------

AGGREGATIONS = pytest.mark.parametrize("aggregation", ["plain", "ideal", "secagg"])


@AGGREGATIONS
def test_all_releases_together_cost_what_was_asked_for(aggregation):
    plan = plan_of(aggregation)
    each = [plan.terms.steps[name].event for name in ASKED]
    reached = float(epsilon(each, DELTA, Relation.ZERO_OUT))
    assert 0.99 * EPSILON < reached <= EPSILON
    assert reached == pytest.approx(plan.terms.guarantee.epsilon, rel=1e-6)


@AGGREGATIONS
def test_a_steps_part_of_what_is_learned_is_its_share(aggregation):
    """1/z² adds up over Gaussian answers; a sum in integers has noise of the same standard deviation over Δ₂."""
    plan = plan_of(aggregation)
    terms, learned = plan.terms.steps, {}
    for (name, releases), share in zip(RELEASES.items(), SHARES, strict=True):
        z, event = terms[name].multiplier, terms[name].event
        learned[name] = releases / z**2
        assert z == pytest.approx(plan.multiplier * math.sqrt(releases / share))
        drawn = event.multiplier if aggregation == "plain" else math.sqrt(event.variance) / event.l2
        assert drawn == pytest.approx(z)
    assert learned["short"] / sum(learned.values()) == pytest.approx(SHARES[0])


def test_without_shares_all_steps_have_the_same_noise():
    plan = plan_of(shares=None)
    assert {terms.multiplier for terms in plan.terms.steps.values()} == {plan.multiplier}
    assert len(set(plan.sigma().values())) == 1


@pytest.mark.parametrize(
    "shares",
    [(0.5, 0.8), (1.0, None), (None, 0.5), (1.0, 0.0), (1.2, -0.2), (0.5, math.nan)],
    ids=["too much", "one without", "one alone", "nothing", "below nothing", "no number"],
)
def test_shares_that_cannot_be_are_refused_with_one_sentence(shares):
    with pytest.raises(UsageError, match=r"^[^\n]*share the budget[^\n]*\.$") as refusal:
        plan_of(shares=shares)
    assert ". " not in str(refusal.value)


@AGGREGATIONS
def test_a_run_charges_each_release_by_its_share_and_totals_say_their_own_noise(tmp_path, aggregation):
    parties, asked = (
        partition(RATINGS, into=6),
        {"privacy": PRIVACY, "aggregation": AggregationSection(name=aggregation)},
    )
    ready = PreparedRun.of(method(), Parameters(), Facts.of(parties, 7), run="run", **asked)
    train(ready, parties, records=Records.of(ready, tmp_path))
    terms = ready.plan.terms.steps
    for rows in rows_of(tmp_path).values():
        charged = [(row.step, row.spent) for row in rows if row.step in RELEASES]
        assert charged == [(name, terms[name].event) for name in ASKED]
        reached = float(epsilon([event for _step, event in charged], DELTA, Relation.ZERO_OUT))
        assert 0.99 * EPSILON < reached <= EPSILON
    assert Asking.heard == [(name, ready.how.noise(terms[name].sigma, 6)) for name in ASKED]


@pytest.mark.parametrize("planted", ["forgotten", "for each release"])
def test_planted_shares_that_are_not_kept_are_noticed(monkeypatch, planted):
    real = plans._weight

    def weight(mechanism, count, share):
        return 1.0 if planted == "forgotten" else real(mechanism, 1, share)

    monkeypatch.setattr(plans, "_weight", weight)
    with pytest.raises(AssertionError):
        test_a_steps_part_of_what_is_learned_is_its_share("plain")


# -- retries ----------------------------------------------------------------------------------------------------------


def placements(plan, retries):
    """ε of the run for every way to divide its retries between the two sums."""
    one, other = (plan.terms.steps[name] for name in RELEASES)
    for k in range(retries + 1):
        spent = [times(one.event, RELEASES["short"] + k), times(other.event, RELEASES["long"] + retries - k)]
        yield float(epsilon(spent, DELTA, Relation.ZERO_OUT))


@pytest.mark.parametrize("shares", [None, (0.2, 0.8), (0.8, 0.2), (0.05, 0.95)])
@pytest.mark.parametrize("retries", [1, 3, 6])
def test_the_plan_covers_the_costliest_placement_of_the_retries(retries, shares):
    plan = retried(retries, shares)
    worst = max(placements(plan, retries))
    assert plan.terms.retries == retries
    assert worst <= plan.terms.guarantee.epsilon * (1 + 1e-9) <= EPSILON * (1 + 1e-9)
    assert worst > 0.9 * EPSILON  # and is not far from it


def cheapest(terms):
    least = min((one.event for one in terms.steps.values()), key=lambda event: event.l2**2 / event.variance)
    return (times(least, terms.retries),)


@pytest.mark.parametrize(("repeated", "shares"), [(lambda terms: (), None), (cheapest, (0.05, 0.95))])
def test_planted_retries_that_are_forgotten_or_the_cheaper_sums_are_noticed(monkeypatch, repeated, shares):
    monkeypatch.setattr(Terms, "repeated", property(repeated))
    with pytest.raises(AssertionError):
        test_the_plan_covers_the_costliest_placement_of_the_retries(3, shares)


# -- at a party -------------------------------------------------------------------------------------------------------


def admitted(order, retries: int) -> list[bool]:
    """Which of these releases, asked for in this order, a party makes."""
    guard = Protection(retried(retries).terms, InMemory("party-1"), Budget(EPSILON, DELTA), "run")
    made, so_far = [], Counter()
    with patch.object(Tally, "made", lambda _self: so_far):  # as if each had been recorded
        for name in order:
            try:
                guard.admit(name)
                so_far[name] += 1
                made.append(True)
            except PrivacyRefused:
                made.append(False)
    return made


def check_orders(retries: int = 2, length: int = 6) -> None:
    """In whatever order it is asked: a release that was planned, or a retry while one is left, and nothing else."""
    for order in product(RELEASES, repeat=length):
        made, left = dict.fromkeys(RELEASES, 0), retries
        for name, answered in zip(order, admitted(order, retries), strict=True):
            beyond = made[name] >= RELEASES[name]
            assert answered == (not beyond or left > 0), (order, name)
            made[name] += answered
            left -= answered and beyond


def test_a_party_makes_what_was_planned_and_the_retries_all_together():
    check_orders()


def test_planted_retries_for_each_sum_by_itself_are_noticed(monkeypatch):
    def own(self, step):
        if self._tally.made()[step] >= self.terms.releases[step]:
            raise PrivacyRefused("no more")

    monkeypatch.setattr(Protection, "admit", own)
    with pytest.raises(AssertionError):
        check_orders()


def party(folder: Path) -> tuple[Adding, Ledger]:
    """The cohort, as it starts, with its ledger as it was left."""
    (share,) = parties = partition(RATINGS, by="device", into=1)
    asked = {"privacy": PRIVACY, "aggregation": AggregationSection(name="secagg", retries=2), "run": "run"}
    ready = PreparedRun.of(method(None), Parameters(), Facts.of(parties, 7), **asked)
    ledger = Ledger(folder / "party-1.sqlite", "party-1")
    return ready.party(share, Record(ledger, Budget(3 * EPSILON, DELTA))), ledger


def ask(cohort: Adding, name: str, round: int, attempt: int):
    return cohort.answer(Request("shared", "", name, round, attempt, encode({})))


@pytest.mark.parametrize("restarts", [False, True])
def test_a_release_beyond_what_is_left_is_refused_over_restarts_too(tmp_path, restarts):
    """Two retries: one goes to each sum, and then neither gets another, however often the party starts again."""
    cohort, ledger = party(tmp_path)
    answered = [("short", 1, 0), ("short", 1, 1), ("long", 1, 0), ("long", 2, 0), ("long", 2, 1)]
    for place in answered:
        ask(cohort, *place)
        if restarts:
            ledger.close()
            cohort, ledger = party(tmp_path)
    for name, round, attempt, number, covered in (("short", 1, 2, 3, 2), ("long", 2, 2, 4, 3)):
        words = f'release {number} of step "{name}", and the run\'s guarantee covers {covered}; nothing'
        for _again in range(2):
            with pytest.raises(PrivacyRefused, match=words):
                ask(cohort, name, round, attempt)
    rows = [row for row in ledger.rows() if row.step in RELEASES]
    assert [(row.step, row.round, row.attempt) for row in rows] == answered
    spent = float(epsilon([row.spent for row in rows], DELTA, Relation.ZERO_OUT))
    assert spent <= cohort.gate.terms.guarantee.epsilon * (1 + 1e-9)
    ledger.close()


def test_a_repeated_request_costs_no_retry(tmp_path):
    cohort, ledger = party(tmp_path)
    first = ask(cohort, "short", 1, 0)
    for _again in range(5):
        assert ask(cohort, "short", 1, 0).body == first.body
    ask(cohort, "short", 1, 1)
    ask(cohort, "short", 1, 2)
    with pytest.raises(PrivacyRefused, match="release 4 of step"):
        ask(cohort, "short", 1, 3)
    ledger.close()
