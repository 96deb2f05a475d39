"""A veto counts what a run costs at the budget's δ, under the terms' relation, and within the budget's period."""

import json
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest
from stated import promise, record, step_terms

import tacit
from tacit.boundary import ledger as ledgers
from tacit.boundary import protection as protections
from tacit.boundary.account import epsilon
from tacit.boundary.clipped_gradients import EmbeddingGradient
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import Floats
from tacit.boundary.events import Gaussian, SampledGaussian
from tacit.boundary.filters import Filter
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, BudgetSpent, Protection, total_epsilon
from tacit.boundary.release import Kind
from tacit.boundary.spec import event_of
from tacit.data.ratings import Scale
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused, TacitError
from tacit.guarantee import Relation

Z, DELTA, REPLACE, ZERO_OUT = 4.0, 1e-5, Relation.REPLACE, Relation.ZERO_OUT
EVENTS = (Gaussian(Z, 3),)
RELATIONS = pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    yield ledger
    ledger.close()


def protection(ledger, budget=100.0, relation=ZERO_OUT, run="run-1", days=None):
    step = step_terms(Clipped(("x",), 1.0), Z, Kind.CHAIN, answers=3)
    terms = promise(step, delta=DELTA, relation=relation, stated=9.0)
    assert terms.events == EVENTS
    return Protection(terms, ledger, Budget(budget, DELTA, days), run)


@RELATIONS
def test_a_first_run_reaches_what_its_events_cost(ledger, relation):
    cost = epsilon(EVENTS, DELTA, relation)
    assert protection(ledger, relation=relation).would_reach() == cost
    record(ledger, event=EVENTS[0])
    assert protection(ledger, relation=relation).reading() == pytest.approx(cost)
    assert total_epsilon(ledger.rows(), DELTA, relation) == pytest.approx(cost)


@RELATIONS
def test_a_second_run_reaches_what_a_filter_says(ledger, relation):
    protection(ledger, relation=relation)
    record(ledger, event=EVENTS[0])
    second = protection(ledger, 6.0, relation, "run-2")
    assert second.would_reach() == Filter(6.0, DELTA, relation, EVENTS).spent([*EVENTS, *EVENTS])


def test_a_budget_between_two_deltas_is_refused(ledger):
    """At twice its δ the run would pass."""
    dear, cheap = (epsilon(EVENTS, delta, ZERO_OUT) for delta in (DELTA, 2 * DELTA))
    assert cheap < dear
    with pytest.raises(BudgetSpent):
        protection(ledger, (dear + cheap) / 2).check_budget()
    protection(ledger, dear * 1.001).check_budget()


def test_a_budget_between_two_relations_is_refused_with_what_would_do(ledger):
    with pytest.raises(BudgetSpent) as refusal:
        protection(ledger, 1.2 * epsilon(EVENTS, DELTA, ZERO_OUT), REPLACE).check_budget()
    assert f"{epsilon(EVENTS, DELTA, REPLACE):.2f}"[:3] in str(refusal.value)


@pytest.mark.parametrize(("rate", "event"), [(0.25, SampledGaussian(Z, 0.25, 5)), (1.0, Gaussian(Z, 5))])
def test_an_answer_is_charged_at_the_rate_of_its_query(rate, event):
    query = EmbeddingGradient(Scale(1.0, 5.0, declared=True), rate, 3, users_are_public=False)
    assert event_of(query, Z, 5, Floats(1.0)) == event


def test_a_run_that_is_refused_leaves_no_budget_behind(tmp_path):
    parties = tacit.partition(demo(users=40, items=12, ratings=300), into=1)
    for reached, budget in ((0.9, 1.0), (0.8, 0.9)):
        privacy = tacit.DP(reached, 1e-6, ledger=str(tmp_path / "kept"), budget=budget, on_refusal="stop")
        with suppress(TacitError):
            tacit.Bias(privacy=privacy).fit(parties)
    with closing(Ledger.open(tmp_path / "kept" / "party-1.sqlite")) as ledger:
        assert len({row.run for row in ledger.rows() if row.kind == "sum"}) == 1
        assert json.loads(ledger._about()["budgets"]) == [[1.0, 1e-6, None]]


# -- a budget for a period trusts the site's clock, and refuses one that has gone back ------------------------------

NOON = datetime(2026, 3, 14, 12, tzinfo=UTC)
ONE_RUN = 1.4 * epsilon(EVENTS, DELTA, ZERO_OUT)


@pytest.fixture
def site(ledger, monkeypatch):
    """A function that checks, some hours after the ledger's first release, whether one more run is affordable."""

    def at(hours: float, days: float | None = 30.0, run: str = "run-2") -> None:
        now = NOON + timedelta(hours=hours)
        monkeypatch.setattr(protections, "clock", lambda: now)
        monkeypatch.setattr(ledgers, "now", lambda: now.isoformat(timespec="seconds"))
        protection(ledger, ONE_RUN, run=run, days=days).check_budget()

    at(0, run="run-1")
    record(ledger, event=EVENTS[0])
    return at


def test_a_clock_that_has_gone_back_is_refused(site):
    with pytest.raises(PrivacyRefused, match=r"clock says 2026-03-14 11:54 UTC .* last release is of 2026-03-14 12:00"):
        site(-0.1)
    with pytest.raises(PrivacyRefused, match="set the clock right"):
        site(-24 * 40)


@pytest.mark.parametrize(("hours", "days"), [(-0.05, 30.0), (24 * 29, 30.0), (-24 * 40, None)])
def test_a_release_counts_within_the_period_and_for_a_lifetime_without_a_clock(site, hours, days):
    """A clock may go back by a few minutes, when it is set right."""
    with pytest.raises(BudgetSpent, match="its budget is"):
        site(hours, days)
    site(24 * 31)
