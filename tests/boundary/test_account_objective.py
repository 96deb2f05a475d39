"""What perturbed objectives cost, against known answers and against true divergences."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from tacit.boundary import account, gdp, renyi
from tacit.boundary.events import Gaussian, PerturbedObjective, Pure, SampledGaussian
from tacit.boundary.filters import Filter
from tacit.guarantee import Relation

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE

# -- the theorem --------------------------------------------------------------------------------------------------

GRID = np.linspace(-12, 12, 48_001)


def plain_delta(at, mu):
    """δ of N(0, 1) against N(μ, 1) at any real ε."""
    return norm.cdf(mu / 2 - at / mu) - math.exp(at) * norm.cdf(-mu / 2 - at / mu)


def pair(mu, steepest, low, stretches, start):
    """φ(t) and φ(h(t))·h′(t) for an h = t + d(t) whose d rises within [low, low + μ], at most that steeply."""
    step = GRID[1] - GRID[0]
    slope = np.zeros_like(GRID)
    for left, width, share in stretches:
        slope[(left < GRID) & (left + width > GRID)] = steepest * share
    d = low + start * mu + np.cumsum(slope) * step
    slope[d >= low + mu] = 0
    h = GRID + np.minimum(d, low + mu)
    return norm.pdf(GRID) * step, norm.pdf(h) * (1 + slope) * step


@given(
    st.floats(0.05, 4),
    st.floats(0.01, 30),
    st.floats(0, 1),
    st.lists(st.tuples(st.floats(-4, 4), st.floats(0.01, 3), st.sampled_from([0.3, 1.0])), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.2, 0.5, 1.0]),
    st.floats(-4, 6),
)
@settings(max_examples=100, deadline=None)
def test_no_rising_shift_beats_the_bound_in_either_direction(mu, steepest, part, stretches, start, epsilon):
    """The step of the proof that is about one number t: every h that it allows, every ε, below 0 too."""
    p, q = pair(mu, steepest, -part * mu, stretches, start)
    for one, other in ((p, q), (q, p)):
        stick = np.maximum(one - math.exp(epsilon) * other, 0).sum()
        assert stick <= plain_delta(epsilon - math.log1p(steepest), mu) + 1e-5


@pytest.mark.parametrize("part", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_two_items_of_one_user_compose_as_the_bound_says(part, epsilon):
    """The product of two pairs, cell by cell; sums over 601² cells instead of integrals, so to 10⁻³."""
    p, q = (x[::80] * 80 for x in pair(1.2, 0.4, -part * 1.2, [(-3.0, 5.0, 1.0)], 0.0))
    for one, other in ((p, q), (q, p)):
        stick = np.maximum(np.outer(one, one) - math.exp(epsilon) * np.outer(other, other), 0).sum()
        assert stick <= plain_delta(epsilon - 2 * math.log1p(0.4), 1.2 * math.sqrt(2)) + 1e-3


def test_without_the_curvature_the_bound_would_be_false():
    p, q = pair(1.0, 30.0, -0.5, [(-0.02, 0.04, 1.0)], 0.0)
    assert np.maximum(q - math.exp(1.0) * p, 0).sum() > plain_delta(1.0, 1.0) + 0.01


def test_the_routes_are_asked_for_what_they_can_do():
    """Planted: an accountant that takes a perturbed objective for its Gaussian alone is below the truth."""
    event = PerturbedObjective(1.0, 3.4)
    p, q = pair(1.0, math.expm1(3.4), -0.5, [(-0.02, 0.04, 1.0)], 0.0)
    true = np.maximum(q - math.exp(1.0) * p, 0).sum()
    assert true <= account.merged_delta((event,), 1.0, ZERO_OUT)
    assert true > account.merged_delta((Gaussian(1.0),), 1.0, ZERO_OUT)


# -- what it costs ------------------------------------------------------------------------------------------------

DELTA = 1e-6


@pytest.mark.parametrize("relation", [ZERO_OUT, Relation.ADD_REMOVE])
def test_alone_it_is_a_gaussian_whose_losses_are_shifted(relation):
    events = [PerturbedObjective(4.0, 0.01, 10), PerturbedObjective(8.0, 0.02, 3)]
    mu = math.hypot(math.sqrt(10) / 4, math.sqrt(3) / 8)
    assert account.epsilon(events, DELTA, relation) == pytest.approx(gdp.epsilon(DELTA, mu) + 0.16, rel=1e-9)
    assert account.delta(events, 1.0, relation) == pytest.approx(plain_delta(1.0 - 0.16, mu), rel=1e-6)
    assert account.delta(events, 0.05, relation) == pytest.approx(plain_delta(0.05 - 0.16, mu), rel=1e-6)
    others = [SampledGaussian(1.0, 0.01, 100), Pure(0.1, "a proof")]
    beside = account.epsilon([*others, Gaussian(4.0, 10), Gaussian(8.0, 3)], DELTA, relation)
    assert account.epsilon([*others, *events], DELTA, relation) == pytest.approx(beside + 0.16, rel=1e-9)


def test_under_replace_it_goes_by_way_of_the_emptied_record():
    """ε is where (1 + e^(ε/2))·δ(ε/2) comes down to δ, or Rényi's, if that is less."""
    events = [PerturbedObjective(4.0, 0.01, 10)]
    reached = account.epsilon(events, DELTA, REPLACE)
    twice, at = account.to_replace(reached / 2, account.delta(events, reached / 2, ZERO_OUT))
    triangle = renyi.epsilon(renyi.curve(events, REPLACE), DELTA)
    assert twice == pytest.approx(reached)
    assert at == pytest.approx(DELTA, rel=1e-4) or reached == pytest.approx(triangle)
    assert 2 * account.epsilon(events, DELTA, ZERO_OUT) <= reached <= triangle
    assert account.delta(events, reached, REPLACE) <= DELTA * (1 + 1e-6)
    assert account.epsilon([*events, Gaussian(5.0)], DELTA, REPLACE) > reached


@given(st.floats(0.5, 20), st.integers(1, 30))
@settings(max_examples=25, deadline=None)
def test_under_replace_it_is_never_below_the_gaussian_in_it(z, count):
    """Without curvature it *is* a Gaussian, whose cost under replace is known exactly: 2μ."""
    exact = gdp.epsilon(DELTA, 2 * math.sqrt(count) / z)
    assert account.epsilon([PerturbedObjective(z, 0.0, count)], DELTA, REPLACE) >= exact
    assert account.delta([PerturbedObjective(z, 0.0, count)], exact, REPLACE) >= DELTA * (1 - 1e-6)


def test_orders_go_up_by_the_weak_triangle_inequality_under_replace():
    """(α − ½)/(α − 1)·D_2α + D_(2α−1), checked on three Gaussians, for which D_α(N(0), N(2/z)) = 2α/z² is known."""
    alpha, z = np.array([1.5, 2.0, 8.0]), 3.0
    bound = renyi.perturbed_objective(PerturbedObjective(z, 0.0), alpha, REPLACE)
    assert (bound >= 2 * alpha / z**2).all()
    np.testing.assert_allclose(bound, (alpha - 0.5) / (alpha - 1) * alpha / z**2 + (2 * alpha - 1) / 2 / z**2)


def test_a_filter_counts_it():
    objective = PerturbedObjective(20.0, 0.01)
    veto = Filter(1.0, DELTA, ZERO_OUT)
    assert veto.admits([], objective)
    assert not veto.admits([objective] * 40, objective)
    assert veto.spent([objective] * 3) >= account.epsilon([objective] * 3, DELTA, ZERO_OUT)
    assert Filter(9.0, DELTA, REPLACE).spent([objective]) > Filter(9.0, DELTA, ZERO_OUT).spent([objective])
    scheduled = Filter(1.0, DELTA, ZERO_OUT, first=[replace(objective, count=5)])
    assert scheduled.spent([objective] * 5) == account.epsilon([objective] * 5, DELTA, ZERO_OUT)


def test_no_noise_is_no_protection_and_no_curvature_is_a_gaussian():
    for bare in (PerturbedObjective(0.0, 0.1), PerturbedObjective(1.0, math.inf)):
        assert math.isinf(account.epsilon([bare], DELTA, ZERO_OUT))
    flat = account.epsilon([PerturbedObjective(2.0, 0.0, 4)], DELTA, ZERO_OUT)
    assert flat == pytest.approx(account.epsilon([Gaussian(2.0, 4)], DELTA, ZERO_OUT))
    assert account.epsilon([PerturbedObjective(math.inf, 0.1, 3)], DELTA, ZERO_OUT) == pytest.approx(0.3)
    assert account.epsilon([PerturbedObjective(math.inf, 0.0, 3)], DELTA, ZERO_OUT) == 0
