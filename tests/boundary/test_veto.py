"""What was spent: a tally of every row, whoever wrote it, and a veto at the budget's δ, relation and period."""

import json
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stated import promise, record, step_terms

import tacit
from tacit.boundary import ledger as ledgers
from tacit.boundary import protection as protections
from tacit.boundary.account import delta, epsilon
from tacit.boundary.clipped_gradients import EmbeddingGradient
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import Floats
from tacit.boundary.events import Gaussian, Laplace, Public, SampledGaussian, merge
from tacit.boundary.filters import Filter
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, BudgetSpent, Protection, Tally, total_epsilon
from tacit.boundary.release import Kind
from tacit.boundary.spec import event_of
from tacit.data.ratings import Scale
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused, TacitError
from tacit.guarantee import Relation

SOME = [Gaussian(2.0), Gaussian(2.0, 3), SampledGaussian(1.5, 0.1, 10), Laplace(4.0), Public()]
OLD, NEW = "2020-01-01T00:00:00+00:00", datetime.now(UTC).isoformat(timespec="seconds")


def write(ledger, event, run="run-1", admit=None):
    return record(ledger, len(ledger.rows()) + 1, event=event, run=run, admit=admit)


def counted(ledger, mine, days=None):
    """The same from all rows."""
    rows = [row for row in ledger.rows() if (row.run == "run-1") == mine and (days is None or row.moment != OLD)]
    return merge(row.spent for row in rows)


def agrees(tally, ledger):
    return all(
        (tally.spent(days).mine if mine else tally.spent(days).earlier) == counted(ledger, mine, days)
        for mine in (True, False)
        for days in (None, 30.0)
    )


ROWS = st.lists(
    st.tuples(st.sampled_from(SOME), st.sampled_from(["run-1", "run-2"]), st.sampled_from([OLD, NEW]), st.booleans()),
    max_size=6,
)


@given(ROWS)
@settings(deadline=None, max_examples=25)
def test_it_is_the_sum_of_all_rows_after_every_row_and_writer(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("tally") / "party-1.sqlite"
    own, other = Ledger(path, "party-1"), Ledger(path, "party-1")
    tally = Tally(own, "run-1")
    assert agrees(tally, own)
    with pytest.MonkeyPatch.context() as patch:
        for event, run, moment, by_another in rows:
            patch.setattr("tacit.boundary.ledger.now", lambda moment=moment: moment)
            write(other if by_another else own, event, run)
            assert agrees(tally, own)
    own.close()
    other.close()


def test_a_tally_that_does_not_look_for_other_writers_is_found(tmp_path, monkeypatch):
    own, other = (Ledger(tmp_path / "party-1.sqlite", "party-1") for _ in range(2))
    write(own, Gaussian(2.0))
    tally = Tally(own, "run-1")
    tally.spent()
    other._database.execute("update releases set event = ?", ('{"count":7,"kind":"Gaussian","multiplier":2.0}',))
    assert tally.spent().mine == (Gaussian(2.0, 7),)
    monkeypatch.setattr(Ledger, "version", (0, 0))
    blind = Tally(own, "run-1")
    blind.spent()
    other._database.execute("update releases set event = ?", ('{"count":9,"kind":"Gaussian","multiplier":2.0}',))
    assert blind.spent().mine == (Gaussian(2.0, 7),)


def test_a_row_that_was_taken_back_is_not_counted(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    tally = Tally(ledger, "run-1")

    def refuse():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write(ledger, Gaussian(2.0), admit=refuse)
    assert tally.spent().mine == ()
    write(ledger, Gaussian(2.0))
    assert tally.spent().mine == (Gaussian(2.0),)


def test_the_first_schedule_is_the_one_that_stands(tmp_path):
    own, other = (Ledger(tmp_path / "party-1.sqlite", "party-1") for _ in range(2))
    tally = Tally(own, "run-1")
    assert tally.spent().first == ()
    own.first_schedule([Gaussian(2.0, 5)])
    assert tally.spent().first == (Gaussian(2.0, 5),)
    other.first_schedule([Gaussian(3.0, 5)])
    assert tally.spent().first == (Gaussian(3.0, 5),)
    record(own)
    other.first_schedule([Gaussian(1.0, 500)])  # after the first release that cost, it is fixed
    assert tally.spent().first == (Gaussian(3.0, 5),)


def test_beyond_the_first_schedule_the_tightest_composition_is_not_used():
    """It is for a list that was fixed beforehand; what was chosen in the light of answers costs a filter's ε."""
    first, twice = (SampledGaussian(1.0, 0.01, 200),), [SampledGaussian(1.0, 0.01, 400)]
    veto = Filter(4.0, 1e-5, Relation.ZERO_OUT, first)
    assert veto.spent(first) == epsilon(first, 1e-5, Relation.ZERO_OUT)
    assert veto.spent(twice) > 1.05 * epsilon(twice, 1e-5, Relation.ZERO_OUT)


@pytest.mark.parametrize("first", [(), (Gaussian(4.0, 3),), (SampledGaussian(1.0, 0.01, 200),)])
def test_a_filters_bounds_share_one_delta_with_the_first_schedule(first):
    """Each bound may fail with its own part of δ; together they may fail with δ, and no more."""
    total = 1e-5
    reached = epsilon(first, total / 2, Relation.ZERO_OUT) if first else 1.0
    veto = Filter(reached, total, Relation.ZERO_OUT, first)
    taken = delta(first, reached, Relation.ZERO_OUT)
    assert taken + veto._mu_share + sum(veto._shares) <= total * (1 + 1e-9)
    assert taken > total / 4 or not first  # so that a δ that is counted twice would show


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
