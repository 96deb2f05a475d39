"""A user's own factors: descent never climbs, folding in finds the minimum, kernels do what their twins do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FIXED_FEASIBLE, assert_finds, assert_near, cases, copies, make

from tacit.kernels.embed import embed
from tacit.kernels.users import fold_in, fold_in_numpy, user_descent, user_descent_numpy
from tacit.rng import derive


def descend(kernel, case, steps, users=None):
    users = case.users.copy() if users is None else users
    return kernel(*case.ratings, case.rows, users, case.factors, case.span, steps)


def check_descent(kernel, case, steps):
    expected = descend(user_descent_numpy, case, steps)
    assert_near(descend(kernel, case, steps), expected, np.sqrt(case.span), tolerance=3e-5)


def losses(case, users):
    """½·Σ (r − u·v)² of each user, (n,) float64."""
    i, users, factors = case.entry_users, users.astype(np.float64), case.factors.astype(np.float64)
    errors = case.values - case.shift - np.einsum("ef,ef->e", users[i], factors[case.items])
    return np.bincount(i, 0.5 * errors**2, minlength=len(users))


@given(cases(feasible=True), st.sampled_from([0, 1, 2, 10]))
@settings(deadline=None, max_examples=100)
def test_descent_equals_its_twin(case, steps):
    check_descent(user_descent, case, steps)


@given(cases(feasible=True))
@settings(deadline=None, max_examples=100)
def test_no_step_increases_the_loss_and_every_step_is_feasible(case):
    users = case.users.copy()
    before = losses(case, users)
    for _ in range(8):
        assert descend(user_descent, case, 1, users) is users, "in place"
        after = losses(case, users)
        assert np.all(after <= before * (1 + 1e-5) + 1e-6 * case.span**2)
        assert np.all(users >= 0)
        assert np.all(np.square(users, dtype=np.float64).sum(axis=1) <= case.span * (1 + 1e-5))
        before = after


def test_descent_moves_only_sampled_users_with_ratings_and_no_input():
    case = make(4, n=6, feasible=True)
    counts = np.diff(case.indptr)
    case.indptr[2:] -= counts[1]  # user 1 has no ratings; the last entries belong to nobody
    rows = np.array([0, 1, 3])
    inputs = (case.indptr, case.items, case.values, rows, case.factors)
    before, users = copies(*inputs), case.users.copy()
    user_descent(*case.ratings, rows, users, case.factors, case.span, 3)
    moved = np.flatnonzero(np.any(users != case.users, axis=1))
    assert moved.tolist() == [0, 3]
    for array, was in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, was)


def bad_descent(indptr, items, values, shift, rows, users, factors, span, steps, *, count=True, project=True):
    users = users.copy()
    for i in rows:
        mine = slice(indptr[i], indptr[i + 1])
        v, r = factors[items[mine]], values[mine] - np.float32(shift)
        for _ in range(steps if len(r) else 0):
            new = users[i] - (users[i] @ v.T - r) @ v / (span * (len(r) if count else 1))
            users[i] = embed(new[None], span)[0] if project else new
    return users


@pytest.mark.parametrize(
    "bug",
    [
        lambda *a: bad_descent(*a, count=False),
        lambda *a: bad_descent(*a, project=False),
        lambda ip, it, va, sh, *a: bad_descent(ip, it, va, 0.0, *a),  # forgets the shift
        lambda ip, it, va, sh, rows, *a: bad_descent(ip, it, va, sh, np.arange(len(ip) - 1), *a),
        lambda *a: bad_descent(*a[:-1], a[-1] + 1),
        lambda *a: bad_descent(*a[:-1], a[-1] - 1),
    ],
)
def test_a_planted_bug_in_descent_is_found(bug):
    assert_finds(bug, check_descent, user_descent, FIXED_FEASIBLE, 2)


def prior_of(case, size=0.5):
    return size * np.sqrt(case.span) * derive(case.seed, "prior").random(case.factors.shape[1])


def fold(kernel, case, regularization, steps=1000):
    return kernel(*case.ratings, case.factors, prior_of(case), regularization, case.span, steps)


def check_fold(kernel, case, regularization, steps=1000):
    before = copies(case.indptr, case.items, case.values, case.factors)
    found, expected = (fold(k, case, regularization, steps) for k in (kernel, fold_in_numpy))
    for array, was in zip((case.indptr, case.items, case.values, case.factors), before, strict=True):
        np.testing.assert_array_equal(array, was)
    assert found.dtype == np.float32
    assert_near(found, expected, np.sqrt(case.span), tolerance=3e-5)


def problem(case, i, regularization):
    """The matrix and the vector of user i's least squares, in float64."""
    mine = slice(case.indptr[i], case.indptr[i + 1])
    v, r = case.factors[case.items[mine]].astype(np.float64), case.values[mine].astype(np.float64) - case.shift
    return v.T @ v + regularization * np.eye(v.shape[1]), v.T @ r + regularization * prior_of(case)


@given(cases(feasible=True), st.sampled_from([0.01, 0.1, 1.0, 100.0]), st.sampled_from([0, 1, 5, 1000]))
@settings(deadline=None, max_examples=100)
def test_folding_in_equals_its_twin(case, regularization, steps):
    check_fold(fold_in, case, regularization, steps)


@given(cases(feasible=True), st.sampled_from([0.1, 1.0, 100.0]))
@settings(deadline=None, max_examples=100)
def test_folding_in_ends_where_no_projected_step_leads_away(case, regularization):
    """u = Π(u − s·∇F(u)) is the optimality (KKT) condition of a convex problem over a convex set."""
    found = fold(fold_in, case, regularization).astype(np.float64)
    for i, u in enumerate(found):
        a, b = problem(case, i, regularization)
        again = embed((u - (a @ u - b) / np.linalg.norm(a, 2))[None], case.span)[0]
        assert np.abs(again - u).max() <= 1e-6 * np.sqrt(case.span)


@pytest.mark.parametrize("regularization", [0.0, 1.0])
def test_without_ratings_the_prior_is_kept_and_projected(regularization):
    nothing = np.zeros(3, dtype=np.int64), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32)
    factors = make(1).factors
    for prior, expected in (([0.1, 0.2, 0.3], [0.1, 0.2, 0.3]), ([-1.0, 3.0, 4.0], [0.0, 1.2, 1.6])):
        for kernel in (fold_in, fold_in_numpy):
            found = kernel(*nothing, 1.0, factors, np.array(prior), regularization, 4.0)
            np.testing.assert_allclose(found, [expected, expected], rtol=1e-5)


@pytest.mark.parametrize(
    "bug",
    [
        lambda *a: fold_in_numpy(*a[:6], 2 * a[6], *a[7:]),
        lambda *a: fold_in_numpy(*a[:7], 1e9, a[8]),  # forgets the ball
        lambda ip, it, va, sh, *a: fold_in_numpy(ip, it, va, 0.0, *a),  # forgets the shift
        lambda ip, it, va, sh, fa, prior, *a: fold_in_numpy(ip, it, va, sh, fa, 0 * prior, *a),  # forgets the prior
        lambda *a: fold_in_numpy(*a[:-1], 1),  # stops early
        lambda *a: np.roll(fold_in_numpy(*a), 1, axis=0),
    ],
)
def test_a_planted_bug_in_folding_in_is_found(bug):
    assert_finds(bug, check_fold, fold_in, FIXED_FEASIBLE, 1.0)
