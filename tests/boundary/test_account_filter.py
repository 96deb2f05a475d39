"""The veto over releases that are chosen one after another."""

import math

import pytest

from tacit.boundary import account, filters
from tacit.boundary.events import Gaussian, Laplace, NonPrivate, Public, Pure, SampledGaussian, Skellam
from tacit.boundary.filters import Filter
from tacit.errors import UsageError
from tacit.guarantee import Relation

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
RUN = SampledGaussian(2.0, 0.05, 100)
BUDGETS = [(0.1, 1e-6), (1.0, 1e-6), (5.0, 1e-9), (math.inf, 1e-6)]


@pytest.mark.parametrize(
    "event",
    [Gaussian(20.0), SampledGaussian(2.0, 0.05, 20), Skellam(1e4, 30.0, 5.0), Laplace(20.0), Pure(0.05, "exponential")],
    ids=lambda event: type(event).__name__,
)
@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_releases_are_admitted_until_the_budget_is_spent_and_not_after(event, relation):
    veto = Filter(1.5, 1e-6, relation)
    spent, readings = [], []
    while veto.admits(spent, event):
        spent.append(event)
        readings.append(veto.spent(spent))
        assert len(spent) < 2000
    assert readings == sorted(readings)
    assert spent
    assert readings[-1] <= 1.5 < veto.spent([*spent, event])
    assert account.epsilon(spent, 1e-6, relation) <= 1.5  # a fixed list of the same costs no more


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("first", [(), (RUN,)])
def test_the_shares_of_delta_add_up_to_no_more_than_delta(epsilon, delta, first):
    assert shares(Filter(epsilon, delta, ZERO_OUT, first)) <= delta * (1 + 1e-12)


def shares(veto):
    """δ over all the bounds that a veto can rest on."""
    planned = account.merged_delta(tuple(e for e in (RUN,) if veto._first), veto.epsilon, veto.relation)
    return planned + veto._mu_share + sum(veto._shares)


def test_a_veto_that_gives_every_bound_all_of_delta_would_be_noticed(monkeypatch):
    sound = filters._shared_out

    def greedy(epsilon, delta, first, relation):
        orders, _ = sound(epsilon, delta, first, relation)
        return orders, [delta] * len(orders)

    monkeypatch.setattr(filters, "_shared_out", greedy)
    assert shares(Filter(1.0, 1e-6, ZERO_OUT)) > 1e-6


def test_a_first_schedule_is_counted_tightly_until_something_is_added():
    tight = account.epsilon([RUN], 1e-6, ZERO_OUT)
    veto = Filter(3 * tight, 1e-6, ZERO_OUT, first=[RUN])
    half = SampledGaussian(RUN.multiplier, RUN.rate, 50)
    assert veto.spent([half, half]) == tight
    assert veto.spent([half]) == account.epsilon([half], 1e-6, ZERO_OUT)
    further = veto.spent([RUN] * 5)
    assert further > account.epsilon([RUN] * 5, 1e-6, ZERO_OUT)
    assert further < Filter(3 * tight, 1e-6, ZERO_OUT).spent([RUN] * 5)


def test_a_first_schedule_that_fills_the_budget_leaves_room_for_nothing():
    tight = account.epsilon([RUN], 1e-6, ZERO_OUT)
    veto = Filter(tight * (1 + 1e-9), 1e-6, ZERO_OUT, first=[RUN])
    assert veto.admits([], RUN)
    assert not veto.admits([RUN], Gaussian(1e6))
    assert veto.admits([RUN], Public())
    beyond = Filter(tight / 2, 1e-6, ZERO_OUT, first=[RUN])
    assert not beyond.admits([], RUN)
    assert shares(beyond) <= 1e-6


def test_free_facts_are_free_and_bare_data_are_vetoed():
    veto = Filter(1.0, 1e-6, ZERO_OUT)
    assert veto.spent([]) == veto.spent([Public()]) == 0
    assert veto.spent([NonPrivate()]) == math.inf
    assert not veto.admits([], NonPrivate())
    assert Filter(0.0, 1e-6, ZERO_OUT).admits([], Public())


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 1e-6), (math.nan, 1e-6), (1.0, 0.0), (1.0, 1.0)])
def test_impossible_budgets_are_refused(epsilon, delta):
    with pytest.raises(UsageError, match="budget"):
        Filter(epsilon, delta, ZERO_OUT)


# -- why the tightest bound for a fixed list makes no veto ----------------------------------------------------


def profile(event, epsilon):
    """δ(ε) of one event, for any ε, also below 0: H(−ε) = 1 − e^−ε + e^−ε·H(ε) for symmetric losses."""
    if epsilon >= 0:
        return account.delta([event], epsilon, ZERO_OUT)
    return 1 - math.exp(epsilon) + math.exp(epsilon) * account.delta([event], -epsilon, ZERO_OUT)


def after_looking(opening, if_true, if_false, epsilon):
    """δ of an analyst who sees one randomised response, and then asks one of two questions."""
    truth = 1 / (1 + math.exp(-opening.epsilon))
    return truth * profile(if_true, epsilon - opening.epsilon) + (1 - truth) * profile(
        if_false, epsilon + opening.epsilon
    )


def test_an_analyst_who_looks_first_gets_past_a_fixed_lists_bound_but_not_past_the_filter():
    """Both continuations are within (ε, δ) as fixed lists; choosing between them after a look is not."""
    opening, epsilon, delta = Pure(0.1, "randomised response"), 1.0, 0.01
    noisy, coin = Gaussian(1.915), Pure(0.926, "randomised response")
    for after in (noisy, coin):
        assert account.delta([opening, after], epsilon, ZERO_OUT) <= delta
    choices = [(noisy, noisy), (coin, coin), (noisy, coin), (coin, noisy)]
    looked = [after_looking(opening, *choice, epsilon) for choice in choices]
    assert max(looked[:2]) <= delta * 1.01
    assert max(looked[2:]) > delta * 1.2

    veto = Filter(epsilon, delta, ZERO_OUT)
    admitted = [after for after in (noisy, coin) if veto.admits([opening], after)]
    worst = max((after_looking(opening, a, b, epsilon) for a in admitted for b in admitted), default=0.0)
    assert worst <= delta
