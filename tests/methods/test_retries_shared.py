"""Two hidden sums share a run's retries: the plan covers whichever of them is void, and no party makes one more."""

from collections import Counter
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from sgdmf_talks import InMemory

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
from tacit.errors import PrivacyRefused
from tacit.federation import Facts, Floats, Party, Schema, step
from tacit.federation.messages import Request
from tacit.guarantee import Relation
from tacit.methods.method import Method, Parameters, Sides
from tacit.partition import Setting, partition
from tacit.prepare.plan import plan_run
from tacit.prepare.prepared import PreparedRun, Record

EPSILON, DELTA, DEVICES = 2.0, 1e-6, 60
RELEASES = {"short": 1, "long": 2}
PARTIES = partition(demo(users=DEVICES, items=20, ratings=600), by="device", into=1)


class Adding(Party):
    """One cohort of devices, which adds one number an item, or three."""

    def _added(self, *channels):
        return self.gate.sum(self.ratings, {name: np.ones(self.ratings.n_ratings, np.float32) for name in channels})

    @step(Kind.SUM, takes=Schema(), gives=Schema(a=Floats("items")), what="one number an item")
    def short(self):
        return self._added("a")

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(a=Floats("items"), b=Floats("items"), c=Floats("items")),
        what="three numbers an item",
    )
    def long(self):
        return self._added("a", "b", "c")


def method(shares) -> Method:
    def specs(parameters, context):
        return [
            Spec("short", Normalised(("a",)), releases=RELEASES["short"], share=shares and shares[0]),
            Spec("long", Normalised(("a", "b", "c")), releases=RELEASES["long"], share=shares and shares[1]),
        ]

    sides = Sides(None, Adding, specs)
    return Method("retried", "Two sums", "Two sums that may be void.", Parameters, {Setting.DEVICE: sides})


def plan_of(retries, shares=None):
    facts, privacy = PublicFacts(DEVICES, 20, Scale(1, 5), 600), PrivacySection(epsilon=EPSILON, delta=DELTA)
    section = AggregationSection(name="secagg", retries=retries)
    return plan_run(method(shares), Parameters(), Setting.DEVICE, DEVICES, facts, privacy, section, seeded=True)


def placements(plan, retries):
    """ε of the run for every way to divide its retries between the two sums."""
    one, other = (plan.terms.steps[name] for name in RELEASES)
    for k in range(retries + 1):
        spent = [times(one.event, RELEASES["short"] + k), times(other.event, RELEASES["long"] + retries - k)]
        yield float(epsilon(spent, DELTA, Relation.ZERO_OUT))


SHARES = pytest.mark.parametrize("shares", [None, (0.2, 0.8), (0.8, 0.2), (0.05, 0.95)])


@SHARES
@pytest.mark.parametrize("retries", [1, 3, 6])
def test_the_plan_covers_the_costliest_placement_of_the_retries(retries, shares):
    plan = plan_of(retries, shares)
    worst = max(placements(plan, retries))
    assert plan.terms.retries == retries
    assert worst <= plan.terms.guarantee.epsilon * (1 + 1e-9) <= EPSILON * (1 + 1e-9)
    assert worst > 0.9 * EPSILON  # and is not far from it


def test_planted_retries_that_are_forgotten_are_noticed(monkeypatch):
    monkeypatch.setattr(Terms, "repeated", property(lambda self: ()))
    with pytest.raises(AssertionError):
        test_the_plan_covers_the_costliest_placement_of_the_retries(3, None)


def test_planted_retries_of_the_cheaper_sum_are_noticed(monkeypatch):
    def cheapest(self):
        least = min((t.event for t in self.steps.values()), key=lambda event: event.l2**2 / event.variance)
        return (times(least, self.retries),)

    monkeypatch.setattr(Terms, "repeated", property(cheapest))
    with pytest.raises(AssertionError):
        test_the_plan_covers_the_costliest_placement_of_the_retries(3, (0.05, 0.95))


# -- at a party -------------------------------------------------------------------------------------------------------


def admitted(order, retries: int) -> list[bool]:
    """Which of these releases, asked for in this order, a party makes."""
    guard = Protection(plan_of(retries).terms, InMemory("party-1"), Budget(EPSILON, DELTA), "run")
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


def party(folder: Path, run: str = "run") -> tuple[Adding, Ledger]:
    """The cohort, as it starts, with its ledger as it was left."""
    privacy, section = PrivacySection(epsilon=EPSILON, delta=DELTA), AggregationSection(name="secagg", retries=2)
    asked = method(None), Parameters(), Facts.of(PARTIES, 7)
    ready = PreparedRun.of(*asked, privacy=privacy, aggregation=section, run=run)
    ledger = Ledger(folder / "party-1.sqlite", "party-1")
    return ready.party(PARTIES[0], Record(ledger, Budget(3 * EPSILON, DELTA))), ledger


def ask(cohort: Adding, name: str, round: int, attempt: int):
    return cohort.answer(Request("retried", "", name, round, attempt, encode({})))


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
