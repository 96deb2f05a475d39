"""The veto over releases that are chosen one after another, and ε along the way: never too low."""

import math

import numpy as np
import pytest

from tacit.boundary import account, filters
from tacit.boundary.account import epsilon, prefix_costs
from tacit.boundary.events import (
    Gaussian,
    Laplace,
    Metrics,
    NonPrivate,
    PerturbedObjective,
    Public,
    Pure,
    SampledGaussian,
    SampledSkellam,
    Skellam,
)
from tacit.boundary.filters import Filter
from tacit.errors import UsageError
from tacit.guarantee import Relation

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
RUN = SampledGaussian(2.0, 0.05, 100)
BUDGETS = [(0.1, 1e-6), (1.0, 1e-6), (5.0, 1e-9), (math.inf, 1e-6)]


@pytest.mark.parametrize(
    "event",
    [
        *(Gaussian(20.0), SampledGaussian(2.0, 0.05, 20), Skellam(1e4, 30.0, 5.0), Laplace(20.0)),
        *(SampledSkellam(4e6, 1e5, 1e3, 0.01, 50), Pure(0.05, "exponential"), PerturbedObjective(20.0, 0.01)),
    ],
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


STEP = SampledGaussian(1.5, 0.02)
KINDS = {
    "sampled": (STEP, 300),
    "plain": (Gaussian(30.0), 2000),
    "skellam": (Skellam(1e6, 100.0, 30.0), 700),
    "sampled skellam": (SampledSkellam(4e6, 1e5, 1e3, 0.01), 300),
    "mixed": ([STEP, Gaussian(50.0)], 60),
}


def curve_of(event, steps, relation=ZERO_OUT, delta=1e-5, points=12):
    """ε after 0, 1, … `steps` releases of everything in `event`."""
    planned = [(one, steps) for one in (event if isinstance(event, list) else [event])]
    every = (account.epsilon_after(planned, [t] * len(planned), delta, relation, points) for t in range(steps + 1))
    return np.array(list(every))


def after(event, steps, relation):
    events = [event] if not isinstance(event, list) else event
    return account.epsilon(events * steps, 1e-5, relation)


def too_low(curve, event, relation, at):
    return [t for t in at if curve[t] < after(event, t, relation) * (1 - 1e-9)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_the_curve_is_never_too_low_never_falls_and_ends_exactly(kind, relation):
    event, steps = KINDS[kind]
    curve = curve_of(event, steps, relation, points=6)
    assert curve.shape == (steps + 1,)
    assert curve[0] == 0
    assert np.all(np.diff(curve) >= 0)
    assert curve[-1] == after(event, steps, relation)
    assert too_low(curve, event, relation, (1, 2, steps // 3)) == []
    assert curve[steps // 3] < 1.5 * after(event, steps // 3, relation)


def test_steps_of_which_unequally_many_were_made_are_each_counted():
    """Nine of ten rounds, a step that was made once of twice, and one that was not made yet."""
    planned = [(STEP, 10), (SampledGaussian(1.0, 0.05), 2), (SampledGaussian(1.0, 0.1), 1)]
    reached = account.epsilon_after(planned, [9, 1, 0], 1e-5, ZERO_OUT, points=4)
    assert reached >= account.epsilon([STEP] * 9 + [SampledGaussian(1.0, 0.05)], 1e-5, ZERO_OUT)
    whole = [STEP] * 10 + [SampledGaussian(1.0, 0.05)] * 2 + [SampledGaussian(1.0, 0.1)]
    at_last = account.epsilon_after(planned, [10, 2, 1], 1e-5, ZERO_OUT)
    assert reached < at_last == account.epsilon(whole, 1e-5, ZERO_OUT)


def test_a_straight_line_between_points_would_be_too_low():
    whole = account.epsilon_after([(STEP, 300)], [300], 1e-5, ZERO_OUT)
    straight = np.interp(np.arange(301), [0, 300], [0.0, whole])
    assert too_low(straight, STEP, ZERO_OUT, (30, 100)) == [30, 100]


def test_edges():
    assert curve_of(STEP, 0).tolist() == [0]
    assert curve_of(Public(), 3).tolist() == [0, 0, 0, 0]
    assert curve_of(NonPrivate(), 2).tolist() == [0, math.inf, math.inf]
    assert curve_of(Laplace(10.0), 4, delta=0.0) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    for made in ([-1], [4], [1, 1]):
        with pytest.raises(UsageError, match="not possible"):
            account.epsilon_after([(STEP, 3)], made, 1e-5, ZERO_OUT)


SAMPLED = SampledGaussian(3.0, 0.01, 10)


def test_the_first_of_a_hundred_releases_costs_what_one_costs():
    costs = prefix_costs([SAMPLED] * 102, 1e-6, ZERO_OUT)
    for n in (1, 2, 31):
        alone = epsilon([SampledGaussian(3.0, 0.01, 10 * n)], 1e-6, ZERO_OUT)
        assert alone <= costs[n - 1] <= 1.01 * alone
    for n in (33, 64, 97, 102):
        alone = epsilon([SampledGaussian(3.0, 0.01, 10 * n)], 1e-6, ZERO_OUT)
        assert alone <= costs[n - 1] <= 1.05 * alone
    assert costs == sorted(costs)


def test_what_comes_later_changes_nothing():
    mixed = [SAMPLED, Gaussian(20.0), Public(), SampledGaussian(2.5, 0.01, 3)] * 8
    whole = prefix_costs(mixed, 1e-6, ZERO_OUT)
    for n in (0, 1, 5, 31):
        assert prefix_costs(mixed[:n], 1e-6, ZERO_OUT) == whole[:n]
    assert whole == sorted(whole)


def test_the_end_of_the_first_schedule_costs_exactly_what_was_planned():
    planned = SampledGaussian(3.0, 0.01, 450)
    costs = prefix_costs([SAMPLED] * 46, 1e-6, ZERO_OUT, [planned])
    assert costs[44] == epsilon([planned], 1e-6, ZERO_OUT)
    assert costs[45] > costs[44]
    assert max(costs[:45]) == costs[44]


def test_thousands_of_releases_are_few_compositions(monkeypatch):
    asked, composed = set(), account.merged_epsilon

    def counted(events, *how):
        asked.add(events)
        return composed(events, *how[:2]) if len(asked) < 3 else 0.0

    monkeypatch.setattr(account, "merged_epsilon", counted)
    assert len(prefix_costs([SampledGaussian(3.0, 0.01, 200), *[SAMPLED] * 5000], 1e-6, ZERO_OUT)) == 5001
    assert len(asked) < 200


def test_plain_gaussians_are_exact_and_discrete_noise_is_counted():
    costs = prefix_costs([Gaussian(30.0)] * 200, 1e-6, ZERO_OUT)
    assert costs[99] == epsilon([Gaussian(30.0, 100)], 1e-6, ZERO_OUT)
    skellam = Skellam(1e6, 100.0, 50.0)
    assert prefix_costs([skellam] * 3, 1e-6, ZERO_OUT)[2] == epsilon([Skellam(1e6, 100.0, 50.0, 3)], 1e-6, ZERO_OUT)


@pytest.mark.parametrize("free", [Public(), Metrics()])
def test_what_is_free_changes_nothing_and_what_is_bare_is_infinite_for_good(free):
    one = epsilon([Gaussian(10.0)], 1e-6, ZERO_OUT)
    costs = prefix_costs([free, Gaussian(10.0), free, NonPrivate(), Gaussian(10.0)], 1e-6, ZERO_OUT)
    assert costs == [0.0, one, one, math.inf, math.inf]
    assert prefix_costs([], 1e-6, ZERO_OUT) == []
