"""Sampled Skellam noise and shuffling: published numbers, and never below what is truly given away."""

import itertools
import math
from decimal import MAX_EMAX, Decimal, localcontext

import numpy as np
import pytest
import true_divergences as true

from tacit.boundary import account, events, renyi
from tacit.boundary import shuffle_amplification as shuffling
from tacit.boundary.events import SampledSkellam, Shuffled, Skellam
from tacit.errors import UsageError
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
    """Taking the cost of an emptied record for that of a replaced one would be noticed."""
    assert understated_under_replace(REPLACE) == []
    assert understated_under_replace(ZERO_OUT) != []


def test_replacing_costs_no_more_than_without_sampling():
    for rate in RATES:
        costs = at(SampledSkellam(50.0, 8.0, 3.0, rate), ORDERS, REPLACE)
        assert np.all(costs <= at(Skellam(50.0, 8.0, 3.0), ORDERS, REPLACE))
        assert np.all(costs >= at(SampledSkellam(50.0, 8.0, 3.0, rate), ORDERS))
    rare = at(SampledSkellam(50.0, 8.0, 3.0, 1e-4), (2, 3, 4), REPLACE)
    assert np.all(rare < 1e-3 * at(Skellam(50.0, 8.0, 3.0), (2, 3, 4), REPLACE))


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


EPSILONS = (0.0, 0.05, 0.2, 0.5, 1.0)


def amplified(local, crowd, delta, count=1):
    return account.epsilon([Shuffled(local, crowd, count)], delta, REPLACE)


def closed_form(local, crowd, delta):
    """Theorem 3.1 of "Hiding Among the Clones", in the form of the authors' own code."""
    grown = math.exp(local)
    spread = 8 * math.sqrt(grown * math.log(4 / delta) / crowd) + 8 * grown / crowd
    return math.log1p((1 - 1 / grown) / (1 + 1 / (grown * (1 + spread))) * spread)


def test_the_authors_own_numbers_come_out():
    """Apple's ml-shuffling-amplification, example.py: n = 1e5, ε₀ = 4, δ = 1e-6."""
    assert 0.1675385583317841 <= amplified(4.0, 10**5, 1e-6) <= 0.172790550755978
    assert closed_form(4.0, 10**5, 1e-6) == pytest.approx(0.5378040242374512, rel=1e-12)


def test_the_numerical_bound_is_tighter_than_the_closed_form():
    for local, crowd, delta in ((1.0, 1000, 1e-6), (2.0, 10**4, 1e-6), (5.0, 10**6, 1e-8), (0.5, 10**5, 1e-10)):
        assert 0 < amplified(local, crowd, delta) < closed_form(local, crowd, delta) < local


def test_a_crowd_of_one_hides_nothing():
    for count in (1, 3):
        reached = account.epsilon([Shuffled(0.5, 1, count)], 1e-12, REPLACE)
        assert reached == pytest.approx(0.5 * count, abs=1e-3)
    assert account.epsilon([Shuffled(0.5, 1, 4)], 0.0, REPLACE) == 2.0
    assert amplified(0.0, 10, 1e-6) == 0
    assert amplified(1.0, 10, 0.0) == 1.0


@pytest.mark.parametrize(("local", "crowd"), [(1.0, 30), (0.3, 12), (3.0, 60)])
def test_the_numerical_bound_is_the_divergence_of_the_clones(local, crowd):
    p, q = true.clones(local, crowd)
    at = np.linspace(0, local * 0.99, 9)
    direct = [true.hockey_stick(p, q, e) for e in at]
    np.testing.assert_allclose(shuffling.delta(local, crowd, at), direct, rtol=1e-8, atol=1e-15)
    assert shuffling.delta(local, crowd, np.array([local, 2 * local])).tolist() == [0, 0]


def test_grouping_large_crowds_rounds_up_by_little(monkeypatch):
    at = np.array([0.02, 0.05, 0.1])
    grouped = shuffling.delta(2.0, 40_000, at)
    monkeypatch.setattr(shuffling, "GROUPS", 10_000)
    exact = shuffling.delta(2.0, 40_000, at)
    assert np.all(grouped >= exact)
    np.testing.assert_allclose(grouped, exact, rtol=0.05)


def shown_beyond(local, crowd, count=1, claimed=None):
    """Crowds of real randomisers, in full, whose δ exceeds the bound: (what was sent, ε) for each."""
    others = crowd - 1
    worlds = {
        "bits, all others 0": [true.shuffled_bits(local, 0, others, mine) for mine in (1, 0)],
        "bits, all others 1": [true.shuffled_bits(local, others, 0, mine) for mine in (1, 0)],
        "bits, half and half": [true.shuffled_bits(local, others // 2, others - others // 2, m) for m in (1, 0)],
        "letters, all others elsewhere": [true.shuffled_letters(local, [2] * others, mine) for mine in (0, 1)],
        "letters, spread": [true.shuffled_letters(local, [k % 3 for k in range(others)], mine) for mine in (0, 1)],
    }
    found = []
    for name, pair in worlds.items():
        repeated = pair if count == 1 else [true.twice(d) for d in pair]
        for epsilon in EPSILONS:
            bound = account.delta([claimed or Shuffled(local, crowd, count)], epsilon, REPLACE)
            if max(true.hockey_stick(*repeated, epsilon), true.hockey_stick(*repeated[::-1], epsilon)) > bound + 1e-12:
                found.append((name, epsilon))
    return found


@pytest.mark.parametrize(("local", "crowd", "count"), [(1.0, 20, 1), (2.0, 25, 1), (0.5, 8, 2), (2.0, 6, 2)])
def test_no_randomiser_shows_more_than_the_bound(local, crowd, count):
    assert shown_beyond(local, crowd, count) == []


MISTAKES = {
    "half of the reports' ε": ((1.0, 20), Shuffled(0.5, 20)),
    "reports counted as devices": ((1.0, 20), Shuffled(1.0, 20 * 8)),
    "one shuffle for two": ((2.0, 6, 2), Shuffled(2.0, 6, 1)),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_crowd_would_be_noticed(mistake):
    true_crowd, claimed = MISTAKES[mistake]
    assert shown_beyond(*true_crowd, claimed=claimed) != []


def test_shuffles_compose_below_the_sum_and_with_other_events():
    once, often = (account.epsilon([Shuffled(4.0, 10**5, k)], 1e-6, REPLACE) for k in (1, 100))
    assert 5 * once < often < 20 * once
    assert account.epsilon([Shuffled(4.0, 10**5, 100), Skellam(1e6, 300.0, 100.0)], 1e-6, REPLACE) > often


def test_renyi_costs_of_a_shuffle_cover_its_clones():
    p, q = true.clones(2.0, 40)
    orders = np.array([1.5, 2.0, 8.0, 64.0])
    costs = shuffling.renyi(2.0, 40, orders)
    assert all(true.renyi(p, q, a) <= c <= 2.0 for a, c in zip(orders, costs, strict=True))


def test_emptying_a_record_is_one_way_to_replace_it():
    event = Shuffled(1.0, 1000, 5)
    assert account.epsilon([event], 1e-6, Relation.ZERO_OUT) == account.epsilon([event], 1e-6, REPLACE)


@pytest.mark.parametrize(("local", "crowd"), [(-1.0, 10), (math.nan, 10), (math.inf, 10), (1.0, 0)])
def test_impossible_crowds_are_refused(local, crowd):
    with pytest.raises(UsageError, match="not possible"):
        shuffling.delta(local, crowd, np.ones(1))


@pytest.mark.parametrize("local", [15.0, 25.0, 33.0, 100.0, 499.0, 501.0, 1000.0])
def test_a_report_that_tells_nearly_everything_is_not_lost_in_any_crowd(local):
    """Nobody else looks like a clone then: with probability near 1 − e^(ε − ε₀) the report stands alone."""
    crowd = 1000
    alone = (1 - math.exp(-local)) ** (crowd - 1)
    for below in (0.5, 1.0, 3.0):
        stated = float(shuffling.delta(local, crowd, np.array([local - below]))[0])
        assert stated >= alone * -math.expm1(-below) * (1 - math.exp(-local)) - 1e-12
