"""A veto and a reading count at the budget's δ and under the terms' relation: not at twice the one, nor another one."""

import pytest
from stated import promise, step_terms

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
from tacit.guarantee import Relation

Z, DELTA, REPLACE, ZERO_OUT = 4.0, 1e-5, Relation.REPLACE, Relation.ZERO_OUT
EVENTS = (Gaussian(Z, 3),)


def protection(ledger, budget=100.0, delta=DELTA, relation=ZERO_OUT, run="run-1"):
    step = step_terms(Clipped(("x",), 1.0), Z, Kind.CHAIN, answers=3)
    terms = promise(step, delta=DELTA, relation=relation, stated=9.0)
    assert terms.events == EVENTS
    return Protection(terms, ledger, Budget(budget, delta), run)


def spend(ledger, run):
    """All of a run's answers, as its ledger records them."""
    ledger.record(
        run=run,
        round=1,
        step="tell",
        attempt=0,
        kind="chain",
        request=run.encode().hex().ljust(64, "0"),
        event=EVENTS[0],
        body=b"",
        sealed=False,
        contributors=1,
        present=None,
        state=b"",
    )


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    yield ledger
    ledger.close()


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_a_first_run_would_reach_what_its_events_cost(ledger, relation):
    assert protection(ledger, relation=relation).would_reach() == epsilon(EVENTS, DELTA, relation)


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_a_second_run_would_reach_what_a_filter_says(ledger, relation):
    protection(ledger, relation=relation)
    spend(ledger, "run-1")
    second = protection(ledger, 6.0, relation=relation, run="run-2")
    assert second.would_reach() == Filter(6.0, DELTA, relation, EVENTS).spent([*EVENTS, *EVENTS])


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_a_reading_is_of_the_same_relation_and_delta(ledger, relation):
    guard = protection(ledger, relation=relation)
    spend(ledger, "run-1")
    guard = protection(ledger, relation=relation)
    assert guard.reading() == pytest.approx(epsilon(EVENTS, DELTA, relation))
    assert total_epsilon(ledger.rows(), DELTA, relation) == pytest.approx(epsilon(EVENTS, DELTA, relation))


def test_a_budget_between_two_deltas_is_refused(ledger):
    """At twice its δ the run would pass."""
    dear, cheap = (epsilon(EVENTS, delta, ZERO_OUT) for delta in (DELTA, 2 * DELTA))
    assert cheap < dear
    with pytest.raises(BudgetSpent):
        protection(ledger, (dear + cheap) / 2).check_budget()
    protection(ledger, dear * 1.001).check_budget()


def test_a_budget_between_two_relations_is_refused_with_what_would_do(ledger):
    with pytest.raises(BudgetSpent) as refusal:
        protection(ledger, 1.2 * epsilon(EVENTS, DELTA, ZERO_OUT), relation=REPLACE).check_budget()
    needed = epsilon(EVENTS, DELTA, REPLACE)
    assert f"{needed:.2f}"[:3] in str(refusal.value)


@pytest.mark.parametrize(("rate", "event"), [(0.25, SampledGaussian(Z, 0.25, 5)), (1.0, Gaussian(Z, 5))])
def test_an_answer_is_charged_at_the_rate_of_its_query(rate, event):
    query = EmbeddingGradient(Scale(1.0, 5.0, declared=True), rate, 3, users_are_public=False)
    assert event_of(query, Z, 5, Floats(1.0)) == event
