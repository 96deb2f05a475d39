"""Objective perturbation: what one user can change, what an attacker can tell, and what it costs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from stated import DELTA, gate_of, nothing_promised, promise, step_terms

from tacit.boundary import Gate, account, gdp, renyi
from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.events import Gaussian, PerturbedObjective, Pure, SampledGaussian
from tacit.boundary.ledger import Ledger
from tacit.boundary.objective_perturbation import ItemObjectives, Objectives, least_in_ball
from tacit.boundary.release import Kind
from tacit.boundary.wire import decode
from tacit.data.ratings import Ratings, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.errors import UsageError
from tacit.guarantee import Relation, Unit

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
SCALE = Scale(1, 5)
SEEDS = st.integers(0, 2**32 - 1)


def made(users, items, values, n, m, scale=(1, 5)):
    ids = Vocabulary(np.arange(n), "user"), Vocabulary(np.arange(m), "item")
    columns = (np.asarray(x) for x in (users, items, values))
    return Ratings.from_columns(*columns, scale=scale, user_ids=ids[0], item_ids=ids[1], name="made")


def cohort(seed, n=6, m=5, p=3):
    draw = np.random.default_rng(seed)
    users, items = np.nonzero(draw.random((n, m)) < 0.7)
    values = draw.uniform(-3, 9, len(users)) if draw.random() < 0.5 else draw.choice([1.0, 5.0], len(users))
    return users, items, values, draw.normal(size=(n, p)) * 10 ** draw.uniform(-1, 1), draw


def terms(users, items, values, factors, theta, m=5):
    ratings = made(users, items, np.clip(values, 1, 5), len(factors), m)
    problem = Objectives(SCALE, theta, 1.0).over(ratings, factors, np.zeros((m, factors.shape[1])))
    return problem, problem.squares(np.random.default_rng(9))


@given(SEEDS, st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_emptying_a_record_moves_few_objectives_and_none_of_them_far(seed, theta):
    """Gradients anywhere in the ball differ by at most L, in at most θ items; the determinant by at most 1 + 2R/λ."""
    users, items, values, factors, draw = cohort(seed)
    gone = users != 2
    problem, (H, g) = terms(users, items, values, factors, theta)
    _, (H0, g0) = terms(users[gone], items[gone], values[gone], factors, theta)
    bound = problem.query.sensitivity(Unit.USER, ZERO_OUT)
    assert bound == 4 * 4**1.5
    touched = np.flatnonzero(np.abs(H - H0).max(axis=(1, 2)) + np.abs(g - g0).max(axis=1) > 1e-12)
    assert len(touched) <= theta
    v = draw.normal(size=(200, 3))
    v *= 2 * draw.random((200, 1)) ** 0.2 / np.linalg.norm(v, axis=1, keepdims=True)
    moved = np.einsum("mij,kj->kmi", H - H0, v) - (g - g0)
    assert np.linalg.norm(moved, axis=2).max() <= bound * (1 + 1e-12)
    for weight in (0.1, 1.0, 50.0):
        ridge = weight * np.eye(3)
        ratio = np.linalg.slogdet(H + ridge)[1] - np.linalg.slogdet(H0 + ridge)[1]
        assert ratio.max() <= math.log1p(2 * 4 / weight) + 1e-9
        assert ratio.min() >= -1e-9


def test_the_bound_is_met_and_half_of_it_is_not():
    """r = R where u·v = −R: without a sign on v the factor is 4, not 2."""
    problem, (H, g) = terms([0], [0], [5.0], np.array([[100.0]]), 1, m=1)
    moved = abs((H[0] @ [-2.0] - g[0])[0])
    assert moved == pytest.approx(problem.query.sensitivity(Unit.USER, ZERO_OUT), rel=1e-5)
    assert moved > 1.9 * 2 * 4**1.5


def test_what_bounds_nothing_claims_nothing():
    query = Objectives(SCALE, 3, 1.0)
    assert query.sensitivity(Unit.USER, ZERO_OUT) == query.sensitivity(Unit.USER, Relation.ADD_REMOVE) == 32
    assert math.isinf(query.sensitivity(Unit.USER, REPLACE))
    assert math.isinf(query.sensitivity(Unit.RATING, ZERO_OUT))
    assert query.counted(Unit.RATING) == (Unit.USER, REPLACE)
    assert query.counted(Unit.USER) == (Unit.USER, ZERO_OUT)
    whole = Objectives(SCALE, None, 1.0)
    assert math.isinf(whole.sensitivity(Unit.USER, ZERO_OUT))
    with pytest.raises(UsageError, match="trim"):
        whole.event(1.0, 1)


def test_the_absent_have_no_terms():
    users, items, values, factors, _ = cohort(11)
    ratings, centres = made(users, items, np.clip(values, 1, 5), len(factors), 5), np.zeros((5, 3))
    there = np.arange(len(factors)) != 2
    H, g = Objectives(SCALE, None, 1.0).over(ratings, factors, centres, there).squares(np.random.default_rng(9))
    kept = users != 2
    _, (H0, g0) = terms(users[kept], items[kept], values[kept], factors, None)
    np.testing.assert_allclose(H, H0, atol=1e-12)
    np.testing.assert_allclose(g, g0, atol=1e-12)


@given(st.floats(0.2, 8), st.integers(1, 40))
@settings(max_examples=15, deadline=None)
def test_the_conditions_follow_from_the_budget(epsilon, theta):
    """One multiplier says σ and λ; what it costs is at most ε, and at no smaller multiplier."""
    conditions = Objectives(SCALE, theta, 1e-3)
    z = calibrated(lambda z: [conditions.event(z, theta)], epsilon, DELTA, ZERO_OUT, cache=False)
    event = conditions.event(z, theta)
    assert event.curvature == pytest.approx(math.log1p(8 / conditions.regularization(z)))
    assert theta * event.curvature == pytest.approx(0.3 * math.sqrt(theta) / z)
    assert account.epsilon([event], DELTA, ZERO_OUT) <= epsilon
    assert account.epsilon([conditions.event(z * 0.999, theta)], DELTA, ZERO_OUT) > epsilon


COPIES, AT, CLAIMED = 40_000, 1.0, 0.15


def released(tmp_path, there, conditions, centre):
    """One release of as many copies of one item's problem as there are items; `there`: each has its own user."""
    z = calibrated(lambda z: [conditions.event(z, 1)], AT, CLAIMED, ZERO_OUT, cache=False)
    terms = promise(step_terms(conditions, z, Kind.CHAIN, step="solve"), delta=CLAIMED, stated=AT)
    some = np.arange(COPIES if there else 0)
    ratings = made(some, some, np.full(len(some), 5.0), COPIES, COPIES)
    ledger = Ledger(tmp_path / f"{there}.sqlite", "party-1")
    gate = gate_of(ledger, terms, budget=9.0, seed=int(there))
    with gate.serving("solve", 1, 0, "request"):
        release = gate.chain(ratings, np.full((COPIES, 1), 2.0), np.full((COPIES, 1), centre))
    assert [row.spent for row in ledger.rows()] == [conditions.event(z, 1)]
    return decode(release.body)["items"][:, 0]


def distinguished(tmp_path, conditions, centre):
    """A lower bound on δ at ε = 1, the same user there and not; n = 40,000, a false alarm in a thousand.

    The cells that favour one side are chosen on half of the copies and counted on the other half.
    """
    samples = [released(tmp_path, there, conditions, centre) for there in (True, False)]
    edges = np.quantile(np.concatenate(samples), np.linspace(0, 1, 41)[1:-1])
    cells = [np.searchsorted(edges, sample, side="right") for sample in samples]
    best = 0.0
    for one, other in (cells, cells[::-1]):
        half = COPIES // 2
        first = [np.bincount(x[:half], minlength=40) for x in (one, other)]
        telling = first[0] > math.exp(AT) * first[1]
        p, q = (telling[x[half:]].mean() for x in (one, other))
        room = math.sqrt(math.log(4 / 0.001) / (2 * half)) * (1 + math.exp(AT))
        best = max(best, p - math.exp(AT) * q - room)
    return best


STIFF, SOFT = (Objectives(SCALE, 1, 1e5), -1.9), (Objectives(SCALE, 1, 1e-3), 0.0)


@pytest.mark.parametrize("case", [STIFF, SOFT], ids=["stiff", "soft"])
def test_nobody_tells_more_than_the_guarantee_says(tmp_path, case):
    """A stiff problem's gradient hardly moves, and its δ is the claimed one; a soft one bends with the user's term."""
    found = distinguished(tmp_path, *case)
    assert found <= CLAIMED
    if case is STIFF:
        assert found > CLAIMED - 0.08


def test_half_the_noise_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Objectives, "sensitivity", lambda self, unit, relation: self.gradient / 2)
    assert distinguished(tmp_path, *STIFF) > CLAIMED


def test_too_small_a_lambda_is_noticed(tmp_path, monkeypatch):
    """Planted: the event is charged for λ, and the problem is solved with a hundredth of it."""
    sound = ItemObjectives.minimisers

    def careless(self, linear, multiplier, stream):
        weak = replace(self.query, least=self.query.regularization(multiplier) / 100)
        return sound(weak.over(self.ratings, self.users, self.centres), linear, None, stream)

    monkeypatch.setattr(ItemObjectives, "minimisers", careless)
    assert distinguished(tmp_path, *SOFT) > CLAIMED


def test_without_a_protection_there_is_no_noise_and_a_problem_without_a_bound_is_never_planned(tmp_path):
    ratings = made([0], [0], [4.0], 1, 1)
    asked_over = (ratings, np.full((1, 1), 1.0), np.zeros((1, 1)))
    whole = Objectives(SCALE, None, 1e-9)
    gate = Gate("party-1", 7, {}, terms=nothing_promised(whole, Kind.CHAIN, step="solve"))
    with gate.serving("solve", 1, 0, "request"):  # 3/1, in the ball of radius 2
        np.testing.assert_allclose(decode(gate.chain(*asked_over).body)["items"], [[2.0]])
    with pytest.raises(UsageError, match="trim"):
        step_terms(whole, 9.0, Kind.CHAIN, step="solve")
    terms = promise(step_terms(Objectives(SCALE, 1, 1.0), 9.0, Kind.CHAIN, step="solve"), stated=1.0)
    gate = gate_of(tmp_path, terms)
    with gate.serving("solve", 1, 0, "request"):
        gate.chain(*asked_over)
    assert len(gate.protection.ledger.rows()) == 1


def problems(seed, m=20, p=4):
    draw = np.random.default_rng(seed)
    roots = draw.normal(size=(m, p, draw.integers(1, 2 * p))) * 10 ** draw.uniform(-3, 2, size=(m, 1, 1))
    least = 10 ** draw.uniform(-2, 3)
    curvature = roots @ roots.transpose(0, 2, 1) + least * np.eye(p)
    return curvature, draw.normal(size=(m, p)) * 10 ** draw.uniform(-3, 4, size=(m, 1)), 10 ** draw.uniform(-1, 1)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_minimiser_meets_the_conditions_of_one(seed):
    """Inside, the gradient is 0; on the edge it is −ν·v with ν ≥ 0. Relative to the sizes of the gradient's terms."""
    H, g, radius = problems(seed)
    v = least_in_ball(H, g, radius)
    norms = np.linalg.norm(v, axis=1)
    assert (norms <= radius * (1 + 1e-12)).all()
    gradient = np.einsum("mij,mj->mi", H, v) - g
    inside = norms < radius * (1 - 1e-9)
    pull = np.where(inside, 0.0, np.maximum(0.0, -np.einsum("mi,mi->m", gradient, v) / norms**2))
    sizes = np.linalg.norm(H, axis=(1, 2)) * norms + np.linalg.norm(g, axis=1)
    assert (np.linalg.norm(gradient + pull[:, None] * v, axis=1) <= 1e-11 * sizes).all()


def test_a_solver_that_stops_early_is_noticed(monkeypatch):
    monkeypatch.setattr("tacit.boundary.objective_perturbation.STEPS", 1)
    with pytest.raises(AssertionError):
        test_a_minimiser_meets_the_conditions_of_one.hypothesis.inner_test(5)


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


def test_the_routes_are_asked_for_what_they_can_do():
    """Planted: an accountant that takes a perturbed objective for its Gaussian alone is below the truth."""
    event = PerturbedObjective(1.0, 3.4)
    p, q = pair(1.0, math.expm1(3.4), -0.5, [(-0.02, 0.04, 1.0)], 0.0)
    true = np.maximum(q - math.exp(1.0) * p, 0).sum()
    assert true <= account.merged_delta((event,), 1.0, ZERO_OUT)
    assert true > account.merged_delta((Gaussian(1.0),), 1.0, ZERO_OUT)


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


def test_no_noise_is_no_protection_and_no_curvature_is_a_gaussian():
    for bare in (PerturbedObjective(0.0, 0.1), PerturbedObjective(1.0, math.inf)):
        assert math.isinf(account.epsilon([bare], DELTA, ZERO_OUT))
    flat = account.epsilon([PerturbedObjective(2.0, 0.0, 4)], DELTA, ZERO_OUT)
    assert flat == pytest.approx(account.epsilon([Gaussian(2.0, 4)], DELTA, ZERO_OUT))
    assert account.epsilon([PerturbedObjective(math.inf, 0.1, 3)], DELTA, ZERO_OUT) == pytest.approx(0.3)
    assert account.epsilon([PerturbedObjective(math.inf, 0.0, 3)], DELTA, ZERO_OUT) == 0
