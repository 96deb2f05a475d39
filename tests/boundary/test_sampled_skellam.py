"""What sampled Skellam noise costs: Zhu and Wang's bound to the letter, and never below what is truly given away."""

import itertools
import math
from decimal import MAX_EMAX, Decimal, localcontext

import numpy as np
import pytest
import true_divergences as true

from tacit.boundary import account, events, filters, renyi
from tacit.boundary.events import Gaussian, NonPrivate, SampledSkellam, Skellam, from_json, to_json
from tacit.guarantee import Relation

ZERO_OUT, ADD_REMOVE, REPLACE = Relation.ZERO_OUT, Relation.ADD_REMOVE, Relation.REPLACE
ORDERS = (2, 3, 4, 5, 8, 17, 40)
RATES = (1e-4, 0.01, 0.1, 0.5, 0.95)
#: (variance, shift): little noise, some, much.
NOISE = ((0.7, 1), (9.0, 2), (400.0, 5), (1e4, 30))


@pytest.fixture(autouse=True)
def _nothing_kept():
    """A cost that a planted bug made must not outlive its test."""
    yield
    renyi._single.cache_clear()


def at(event, orders, relation=ZERO_OUT):
    renyi._single.cache_clear()
    return renyi.curve((event,), relation, np.array(orders, dtype=float))


# -- the formula ----------------------------------------------------------------------------------------------


def to_the_letter(event, alpha):
    """The binomial sum, to 60 digits; or without sampling, if that is less."""
    with localcontext() as digits:
        digits.prec, digits.Emax = 60, MAX_EMAX
        v, l1, square, q = (Decimal(x) for x in (event.variance, event.l1, event.l2**2, event.rate))

        def plain(order):
            fine = ((2 * order - 1) * square + 6 * l1) / (4 * v * v)
            return order * square / (2 * v) + min(fine, 3 * l1 / (2 * v))

        total = (1 - q) ** (alpha - 1) * (alpha * q - q + 1)
        for k in range(2, alpha + 1):
            total += math.comb(alpha, k) * (1 - q) ** (alpha - k) * q**k * ((k - 1) * plain(k)).exp()
        return float(min(total.ln() / (alpha - 1), plain(alpha)))


@pytest.mark.parametrize("rate", [1e-9, *RATES])
@pytest.mark.parametrize("variance", [0.3, 50.0, 1e4, 1e13])
def test_the_cost_is_the_printed_formula(variance, rate):
    orders = (2, 3, 4, 11, 64, 257)
    event = SampledSkellam(variance, 40.0, 9.0, rate)
    stated = np.array([to_the_letter(event, alpha) for alpha in orders])
    np.testing.assert_allclose(at(event, orders), stated, rtol=1e-8, atol=0)
    assert np.all(at(event, orders) >= stated * (1 - 1e-13))  # rounded up, if at all


# -- the truth ------------------------------------------------------------------------------------------------


def truly(variance, shift, rate, alpha):
    """D_α between sampled answers where one unit's record adds `shift`, in the worse direction."""
    noise = true.skellam(variance, math.ceil(40 * math.sqrt(variance)) + 40 + alpha * shift)
    without, with_it = true.shifted(noise, shift)
    mixed = (1 - rate) * without + rate * with_it
    return max(true.renyi(mixed, without, alpha), true.renyi(without, mixed, alpha))


def understated():
    """Where the accountant's cost lies below the truth."""
    found = []
    for (variance, shift), rate in itertools.product(NOISE, RATES):
        costs = at(SampledSkellam(variance, float(shift), float(shift), rate), ORDERS)
        for alpha, cost in zip(ORDERS, costs, strict=True):
            if cost < truly(variance, shift, rate, alpha) * (1 - 1e-6) - 1e-13:
                found.append((variance, shift, rate, alpha))
    return found


def test_the_cost_is_never_below_the_truth():
    assert understated() == []


SOUND = renyi.poisson_sampled
BUGS = {
    "the rate squared": lambda bound, rate, orders: SOUND(bound, rate**2, orders),
    "half of what the noise costs itself": lambda bound, rate, orders: SOUND(lambda o: bound(o) / 2, rate, orders),
    "one order too few": lambda bound, rate, orders: SOUND(bound, rate, np.maximum(orders - 1, 2)),
    "divided by the order": lambda bound, rate, orders: SOUND(bound, rate, orders) * (orders - 1) / orders,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bound_with_a_mistake_in_it_is_found(bug, monkeypatch):
    monkeypatch.setattr(renyi, "poisson_sampled", BUGS[bug])
    assert understated() != []


@pytest.mark.parametrize("rate", [0.01, 0.3])
def test_in_two_coordinates_the_cost_is_above_the_truth(rate):
    line = true.skellam(6.0, 120)
    (without, a), (_, b) = true.shifted(line, 1), true.shifted(line, 1)
    apart, together = np.outer(without, without).ravel(), np.outer(a, b).ravel()
    mixed = (1 - rate) * apart + rate * together
    for alpha, cost in zip(ORDERS, at(SampledSkellam(6.0, 2.0, math.sqrt(2), rate), ORDERS), strict=True):
        assert max(true.renyi(mixed, apart, alpha), true.renyi(apart, mixed, alpha)) <= cost


# -- replace --------------------------------------------------------------------------------------------------


def understated_under_replace(relation):
    found = []
    for (variance, shift), rate in itertools.product(NOISE, RATES):
        event = SampledSkellam(variance, float(shift), float(shift), rate)
        noise = true.skellam(variance, math.ceil(40 * math.sqrt(variance)) + 40 + 2 * 8 * shift)
        one, other = ((1 - rate) * noise + rate * np.roll(noise, s) for s in (shift, -shift))
        inside = slice(shift, -shift)
        for alpha, cost in zip((2, 3, 8), at(event, (2, 3, 8), relation), strict=True):
            if cost < true.renyi(one[inside], other[inside], alpha) * (1 - 1e-6) - 1e-13:
                found.append((variance, shift, rate, alpha))
    return found


def test_under_replace_the_cost_is_never_below_the_truth():
    assert understated_under_replace(REPLACE) == []


def test_taking_the_cost_of_an_emptied_record_for_that_of_a_replaced_one_would_be_noticed():
    assert understated_under_replace(ZERO_OUT) != []


def test_replacing_costs_no_more_than_without_sampling():
    for rate in RATES:
        costs = at(SampledSkellam(50.0, 8.0, 3.0, rate), ORDERS, REPLACE)
        assert np.all(costs <= at(Skellam(50.0, 8.0, 3.0), ORDERS, REPLACE))
        assert np.all(costs >= at(SampledSkellam(50.0, 8.0, 3.0, rate), ORDERS))
    rare = at(SampledSkellam(50.0, 8.0, 3.0, 1e-4), (2, 3, 4), REPLACE)
    assert np.all(rare < 1e-3 * at(Skellam(50.0, 8.0, 3.0), (2, 3, 4), REPLACE))


# -- beside other bounds ----------------------------------------------------------------------------------------


def test_sampling_never_adds_and_a_larger_rate_never_costs_less():
    rates = np.concatenate([np.geomspace(1e-12, 0.5, 30), 1 - np.geomspace(0.4, 1e-12, 10)])
    for variance in (0.5, 90.0, 1e6):
        costs = np.array([at(SampledSkellam(variance, 20.0, 9.0, rate), ORDERS) for rate in rates])
        assert np.all(np.diff(costs, axis=0) >= -1e-9 * costs[1:])
        assert np.all(costs <= at(Skellam(variance, 20.0, 9.0), ORDERS))


def test_sampling_everybody_is_no_sampling_and_nobody_costs_nothing():
    plain = Skellam(4.0, 3.0, 2.0)
    assert events.merge([SampledSkellam(4.0, 3.0, 2.0, 1.0, 5), plain]) == (Skellam(4.0, 3.0, 2.0, 6),)
    for silent in (SampledSkellam(4.0, 3.0, 2.0, 0.0), SampledSkellam(4.0, 0.0, 0.0, 0.5)):
        assert events.merge([silent]) == ()
    for bare in (SampledSkellam(0.0, 3.0, 2.0, 0.1), SampledSkellam(4.0, math.inf, 2.0, 0.1)):
        assert account.epsilon([bare], 1e-6, ZERO_OUT) == math.inf


# -- through the accountant -------------------------------------------------------------------------------------

STEPS = SampledSkellam(4e6, 1e5, 1e3, 0.01, 1000)  # multiplier 2


@pytest.mark.parametrize("relation", [ZERO_OUT, ADD_REMOVE, REPLACE])
def test_schedules_curves_and_filters_know_it(relation):
    epsilon = account.epsilon([STEPS], 1e-6, relation)
    assert 0.5 < epsilon < account.epsilon([Skellam(4e6, 1e5, 1e3, 1000)], 1e-6, relation) / 2
    assert account.delta([STEPS], epsilon, relation) == pytest.approx(1e-6)
    assert account.epsilon([STEPS, Gaussian(3.0)], 1e-6, relation) > epsilon
    assert account.epsilon([STEPS, NonPrivate()], 1e-6, relation) == math.inf
    planned = [(SampledSkellam(4e6, 1e5, 1e3, 0.01), 1000)]
    line = [account.epsilon_after(planned, [made], 1e-6, relation) for made in (0, 1, 10, 100, 999, 1000)]
    assert line[-1] == epsilon
    assert np.all(np.diff(line) >= 0)
    veto = filters.Filter(epsilon * 1.001, 1e-6, relation, first=[STEPS])
    assert veto.admits([], STEPS)
    assert not veto.admits([STEPS], STEPS)
    assert from_json(to_json(STEPS)) == STEPS
