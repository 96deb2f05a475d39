"""What each prefix of a ledger costs."""

import math

import pytest

from tacit.boundary import account
from tacit.boundary.account import epsilon, prefix_costs
from tacit.boundary.events import Gaussian, Metrics, NonPrivate, Public, SampledGaussian, Skellam
from tacit.guarantee import Relation

ZERO = Relation.ZERO_OUT
SAMPLED = SampledGaussian(3.0, 0.01, 10)


def test_the_first_of_a_hundred_releases_costs_what_one_costs():
    costs = prefix_costs([SAMPLED] * 102, 1e-6, ZERO)
    for n in (1, 2, 31):
        alone = epsilon([SampledGaussian(3.0, 0.01, 10 * n)], 1e-6, ZERO)
        assert alone <= costs[n - 1] <= 1.01 * alone
    for n in (33, 64, 97, 102):
        alone = epsilon([SampledGaussian(3.0, 0.01, 10 * n)], 1e-6, ZERO)
        assert alone <= costs[n - 1] <= 1.05 * alone
    assert costs == sorted(costs)


def test_what_comes_later_changes_nothing():
    mixed = [SAMPLED, Gaussian(20.0), Public(), SampledGaussian(2.5, 0.01, 3)] * 8
    whole = prefix_costs(mixed, 1e-6, ZERO)
    for n in (0, 1, 5, 31):
        assert prefix_costs(mixed[:n], 1e-6, ZERO) == whole[:n]
    assert whole == sorted(whole)


def test_the_end_of_the_first_schedule_costs_exactly_what_was_planned():
    planned = SampledGaussian(3.0, 0.01, 450)
    costs = prefix_costs([SAMPLED] * 46, 1e-6, ZERO, [planned])
    assert costs[44] == epsilon([planned], 1e-6, ZERO)
    assert costs[45] > costs[44]
    assert max(costs[:45]) == costs[44]


def test_thousands_of_releases_are_few_compositions(monkeypatch):
    asked, composed = set(), account.merged_epsilon

    def counted(events, *how):
        asked.add(events)
        return composed(events, *how[:2]) if len(asked) < 3 else 0.0

    monkeypatch.setattr(account, "merged_epsilon", counted)
    assert len(prefix_costs([SampledGaussian(3.0, 0.01, 200), *[SAMPLED] * 5000], 1e-6, ZERO)) == 5001
    assert len(asked) < 200


def test_plain_gaussians_are_exact_and_discrete_noise_is_counted():
    costs = prefix_costs([Gaussian(30.0)] * 200, 1e-6, ZERO)
    assert costs[99] == epsilon([Gaussian(30.0, 100)], 1e-6, ZERO)
    skellam = Skellam(1e6, 100.0, 50.0)
    assert prefix_costs([skellam] * 3, 1e-6, ZERO)[2] == epsilon([Skellam(1e6, 100.0, 50.0, 3)], 1e-6, ZERO)


@pytest.mark.parametrize("free", [Public(), Metrics()])
def test_what_is_free_changes_nothing_and_what_is_bare_is_infinite_for_good(free):
    one = epsilon([Gaussian(10.0)], 1e-6, ZERO)
    costs = prefix_costs([free, Gaussian(10.0), free, NonPrivate(), Gaussian(10.0)], 1e-6, ZERO)
    assert costs == [0.0, one, one, math.inf, math.inf]
    assert prefix_costs([], 1e-6, ZERO) == []
