"""Skellam noise costs no less than it gives away, by way of rounded Gaussian noise; and next to nothing more."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import true_divergences as true
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary import account, calibrate, renyi
from tacit.boundary import loss_distributions as losses
from tacit.boundary import skellam_as_gaussian as compared
from tacit.boundary.events import DiscreteGaussian, Gaussian, SampledGaussian, SampledSkellam, Skellam
from tacit.guarantee import Relation

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE


def pair(variance, deviations=14):
    """Skellam noise and rounded Gaussian noise of about that variance, on the same integers around 0."""
    reach = int(deviations * math.sqrt(variance))
    edges = np.arange(-reach - 0.5, reach + 1)
    return true.skellam(variance, reach), true.normal(edges, 0.0, math.sqrt(variance - 1 / 12))


@pytest.mark.parametrize("variance", [1000.0, 1234.5, 4000.0, 3e4, 1e5])
def test_the_lemma_holds_at_every_integer_in_its_reach(variance):
    p, g = pair(variance, min(14.0, math.sqrt(variance) / 4))
    y = np.abs(np.arange(len(p)) - len(p) // 2) / math.sqrt(variance)
    known = (p > 1e-290) & (g > 1e-290)
    truth = np.log(p[known] / g[known])
    off = np.abs(truth - (y**4 - 6 * y**2 + 3)[known] / 24 / variance)
    allowed = (y**6 / 80 + y**4 / 7 + 5.2 * y**2 + 0.5)[known] / variance**2
    assert np.all(off < allowed + 1e-12)
    low, high = compared._log_ratios(y[known], y[known], variance)
    assert np.all((low - 1e-12 <= truth) & (truth <= high + 1e-12))


def test_the_lemma_without_its_main_term_would_be_noticed():
    p, g = pair(1e4, 8)
    y = (np.arange(len(p)) - len(p) // 2) / 100
    assert np.any(np.abs(np.log(p / g)) > (y**6 / 80 + y**4 / 7 + 5.2 * y**2 + 0.5) / 1e8)


def cells_apart(variance, cells, eta):
    """The larger of Σ (P − e^η·G)₊ and Σ (G − e^η·P)₊ over one or two cells."""
    p, g = (np.outer(law, law) if cells == 2 else law for law in pair(variance, 10))
    return max(true.hockey_stick(p, g, eta), true.hockey_stick(g, p, eta))


@pytest.mark.parametrize(
    ("variance", "tau", "cells"), [(4000.0, 1e-9, 1), (4000.0, 1e-9, 2), (2e4, 1e-9, 1), (1e5, 1e-12, 1)]
)
def test_the_slack_covers_the_difference_of_the_two_laws(variance, tau, cells):
    eta = compared.slack([(variance, float(cells))], math.log(tau))
    assert cells_apart(variance, cells, eta) <= tau
    assert cells_apart(variance, cells, eta / 10) > tau  # and a tenth of it would not do


def released(variance, shift, epsilon, noise=None):
    """The true δ of integer answers that differ by `shift`, in either order, losses rounded down to a grid.

    Coordinates are put together by convolution; rounding down makes it less than the truth, never more.
    """
    step, reach = 4e-3, int(11 * math.sqrt(variance))
    law = true.skellam(variance, reach) if noise is None else noise
    total, start = np.ones(1), 0
    for s in shift:
        p, q = true.shifted(law, s)
        known = (p > 0) & (q > 0)
        loss = np.floor(np.log(p[known] / q[known]) / step).astype(int)
        one = np.bincount(loss - loss.min(), weights=p[known])
        total, start = np.convolve(total, one), start + loss.min()
    gone = 1 - math.prod(float(p[(q > 0)].sum()) for p, q in (true.shifted(law, s) for s in shift))
    losses = (start + np.arange(len(total))) * step
    return float((total * np.maximum(-np.expm1(epsilon - losses), 0)).sum()) + max(0.0, gone - 1e-12)


SHIFTS = [(100,), (-100,), (71, -70), (58, 58, 57), (99, 14), (1, 99, -1), (50, 50, 50, 50), (25,) * 16]


def event_of(shift, variance, count=1):
    return Skellam(variance, float(sum(map(abs, shift))), math.hypot(*shift), count)


def too_cheap(variance, epsilons, noise=None):
    """The shifts and ε at which the accountant's δ is below the truth."""
    return [
        (shift, epsilon)
        for shift in SHIFTS
        for epsilon in epsilons
        if released(variance, shift, epsilon, noise) > account.delta([event_of(shift, variance)], epsilon, ZERO_OUT)
    ]


@pytest.mark.parametrize(("variance", "epsilons"), [(5000.0, (3.0, 8.0)), (4e4, (0.5, 1.0, 2.5))])
def test_no_shift_gives_away_more_than_is_charged(variance, epsilons):
    assert too_cheap(variance, epsilons) == []


def test_less_noise_than_stated_would_be_noticed():
    assert too_cheap(4e4, (1.0,), true.skellam(3.9e4, 2200)) != []


def test_a_sampler_that_cuts_its_tails_would_be_noticed():
    law = true.skellam(4e4, 2200)
    law[np.abs(np.arange(-2200, 2201)) > 1000] = 0  # five deviations
    assert too_cheap(4e4, (2.5,), law / law.sum()) != []


@pytest.mark.parametrize("mistake", [{"l2": 0.5}, {"variance": 1.1}], ids=["half of Δ₂", "more noise"])
def test_a_mistake_in_the_comparison_would_be_noticed(mistake, monkeypatch):
    ((name, factor),), sound = mistake.items(), compared.with_gaussians

    def wrong(events, relation):
        return sound([replace(event, **{name: factor * getattr(event, name)}) for event in events], relation)

    monkeypatch.setattr(compared, "with_gaussians", wrong)
    account.merged_delta.cache_clear()
    assert too_cheap(4e4, (1.0,)) != []
    monkeypatch.undo()
    account.merged_delta.cache_clear()


def test_releases_that_depend_on_each_other_are_charged_together():
    event = event_of((30, 40), 4e4)
    eightfold = released(4e4, (30, 40) * 8, 2.0)
    assert eightfold <= account.delta([replace(event, count=8)], 2.0, ZERO_OUT) <= 1.5 * eightfold


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_a_secret_sample_is_charged_as_a_sampled_gaussian_and_covers_its_neighbours(relation, monkeypatch):
    monkeypatch.setattr(losses, "INTERVAL", 1e-3)  # larger by a little, and ten times as fast
    variance, rate = 1e4, 0.2
    noise = true.skellam(variance, 1200)
    event = SampledSkellam(variance, 100.0, 100.0, rate)
    there, here = true.shifted(noise, 100)
    gone = true.shifted(noise, -100)[1] if relation is REPLACE else there
    one, other = ((1 - rate) * there + rate * x for x in (here, gone))
    for epsilon in (0.5,):
        truth = max(true.hockey_stick(one, other, epsilon), true.hockey_stick(other, one, epsilon))
        assert truth <= account.delta([event], epsilon, relation) <= 1.1 * truth
        gaussian = account.delta([SampledGaussian(1.0, rate)], epsilon, relation)
        assert account.delta([event], epsilon, relation) == pytest.approx(gaussian, rel=0.1)


@pytest.mark.parametrize(("relation", "moved"), [(ZERO_OUT, 10), (REPLACE, 20)])
def test_the_cells_that_can_differ_are_those_of_all_answers_before_and_after(relation, moved):
    """Δ₁ of them an answer where a record is emptied, and under replace Δ₁ that go and Δ₁ that come."""
    events = [Skellam(4e4, 10.0, 5.0, 3), Gaussian(1.0), SampledSkellam(5e4, 10.0, 5.0, 0.1, 7)]
    found, cells = compared.with_gaussians(events, relation)
    assert cells == [(4e4, 3.0 * moved), (5e4, 7.0 * moved)]
    assert [(type(event), event.count) for event in found] == [(Gaussian, 3), (Gaussian, 1), (SampledGaussian, 7)]


@pytest.mark.parametrize("variance", [1000.0, 4e4, 1e9])
@pytest.mark.parametrize("l2", [1.0, 5.0, 256.0])
def test_rounding_takes_a_twelfth_of_the_variance_and_no_less(variance, l2):
    """In fractions: it is Gaussian noise of variance v − 1/12 that has the variance v once it is rounded."""
    (found, sampled), _cells = compared.with_gaussians(
        [Skellam(variance, 300.0, l2), SampledSkellam(variance, 300.0, l2, 0.1)], ZERO_OUT
    )
    squared, allowed = (Fraction(found.multiplier) * Fraction(l2)) ** 2, Fraction(variance) - Fraction(1, 12)
    assert allowed * (1 - Fraction(1, 10**15)) ** 2 < squared <= allowed
    assert (sampled.multiplier, sampled.rate) == (found.multiplier, 0.1)


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
@pytest.mark.parametrize("event", [Skellam(4e4, 100.0, 100.0), Skellam(1e6, 1e4, 300.0, 20)], ids=["few", "many"])
def test_an_epsilon_by_way_of_the_gaussian_leaves_room_for_the_tails(event, relation):
    """e^η·δ + (1 + e^(ε + η))·τ at the Gaussian's ε, which going from P to G and back costs, is within the δ given."""
    delta, costs = 1e-6, []

    def cost(events, left, relation):
        costs.append(account.merged_epsilon(events, left, relation))
        return costs[-1]

    bound = renyi.epsilon(renyi.curve((event,), relation), delta)
    found = account._compared_epsilon((event,), delta, relation, bound, cost)
    replaced, cells = compared.with_gaussians([event], relation)
    tau = compared.SHARE * delta / (1 + math.exp(bound))
    eta = compared.slack(cells, math.log(tau))
    gaussian = found - 2 * eta
    assert 0 < costs[0] == pytest.approx(gaussian, rel=1e-12)
    spent = math.exp(eta) * account.merged_delta(tuple(replaced), gaussian, relation)
    spent += (1 + math.exp(gaussian + eta)) * tau
    assert (1 - 2 * compared.SHARE) * delta < spent <= delta


def test_small_noise_and_other_discrete_noise_are_left_to_renyi():
    assert compared.with_gaussians([Skellam(999.0, 10.0, 10.0)], ZERO_OUT) is None
    assert compared.with_gaussians([Skellam(1e6, 10.0, 10.0), DiscreteGaussian(1e3, 1.0, 1)], ZERO_OUT) is None
    assert compared.with_gaussians([Gaussian(1.0)], ZERO_OUT) is None
    assert compared.slack([(1000.0, 10.0)], math.log(1e-30)) == math.inf  # its tails are out of reach
    assert compared.slack([(1e30, 1e9)], -3000.0) == math.inf


@given(log_v=st.floats(9, 25), log_n=st.floats(0, 15), log_tau=st.floats(-60, -5), more=st.floats(1.0, 30.0))
@settings(max_examples=25, deadline=None)
def test_the_slack_falls_with_the_variance_and_grows_with_the_cells(log_v, log_n, log_tau, more):
    """What lets retries be planned at their costliest."""
    v, n = math.exp(log_v), math.exp(log_n)
    eta = compared.slack([(v, n)], log_tau)
    assert 0 <= compared.slack([(v * more, n)], log_tau) <= eta <= compared.slack([(v, n * more)], log_tau)
    assert eta <= compared.slack([(v, n)], log_tau - 1)


@pytest.mark.parametrize(("epsilon", "most"), [(0.25, 1.0002), (1.0, 1.0003), (4.0, 1.001), (8.0, 1.002)])
def test_integer_noise_needs_no_more_than_the_gaussian_by_a_thousandth(epsilon, most):
    """A clip of 256 steps over 20 cells, the coarsest grid that is used; Rényi's price was 7 % at ε = 1."""
    z = calibrate.multiplier(lambda z: [Skellam((256 * z) ** 2, 1145.0, 256.0)], epsilon, 1e-6, ZERO_OUT, cache=False)
    gaussian = calibrate.multiplier(lambda z: [Gaussian(z)], epsilon, 1e-6, ZERO_OUT, cache=False)
    assert gaussian <= z <= most * gaussian
