"""Factor models: gradients, steps, predictions and ridge regression equal their twins and what they stand for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FIXED, FIXED_FEASIBLE, assert_finds, assert_near, cases, copies, make

from tacit.kernels.embed import embed
from tacit.kernels.predict import predict_pairs, predict_pairs_numpy
from tacit.kernels.ridge import ridge, ridge_numpy
from tacit.kernels.sgd import sgd_epoch, sgd_epoch_numpy
from tacit.kernels.squared_error import factor_gradients, factor_gradients_numpy
from tacit.rng import derive


def loss(case, users, factors):
    """Σ (r − u·v)² over the ratings of the sampled rows, rating by rating."""
    total = 0.0
    for i in case.rows:
        for e in range(case.indptr[i], case.indptr[i + 1]):
            total += (float(case.values[e]) - case.shift - float(users[i] @ factors[case.items[e]])) ** 2
    return total


def slopes(x, of):
    """∂/∂x by central differences, which are exact for a function that is quadratic in each coordinate."""
    out = np.zeros_like(x)
    for at in np.ndindex(x.shape):
        ahead, behind = copies(x, x)
        ahead[at] += 0.1
        behind[at] -= 0.1
        out[at] = (of(ahead) - of(behind)) / 0.2
    return out


def magnitudes(case):
    """The gradients' sums of absolute values, to which rounding is relative."""
    positive = replace(case, values=-np.abs(case.values - np.float32(case.shift)), shift=0.0)
    sizes = (np.abs(x).astype(np.float64) for x in (case.users, case.factors))
    return factor_gradients_numpy(*positive.ratings, case.rows, *sizes)


def check_gradients(kernel, case):
    inputs = (case.indptr, case.items, case.values, case.rows, case.users, case.factors)
    before = copies(*inputs)
    found = kernel(*case.ratings, case.rows, case.users, case.factors)
    expected = factor_gradients_numpy(*case.ratings, case.rows, case.users, case.factors)
    for actual, wanted, magnitude in zip(found, expected, magnitudes(case), strict=True):
        assert actual.dtype == np.float32
        assert_near(actual, wanted, magnitude)
    for array, was in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, was)


@given(cases())
@settings(deadline=None, max_examples=200)
def test_gradients_equal_their_twin(case):
    check_gradients(factor_gradients, case)


@given(cases(sizes=(0.0, 0.3, 1.0)))
@settings(deadline=None, max_examples=25)
def test_gradients_are_the_slopes_of_the_loss(case):
    users, factors = case.users.astype(np.float64), case.factors.astype(np.float64)
    wanted = slopes(users, lambda x: loss(case, x, factors)), slopes(factors, lambda x: loss(case, users, x))
    found = factor_gradients(*case.ratings, case.rows, case.users, case.factors)
    for actual, slope, magnitude in zip(found, wanted, magnitudes(case), strict=True):
        assert_near(actual, slope, magnitude + 1e-9)


def twin(*arguments):
    return factor_gradients_numpy(*arguments)


@pytest.mark.parametrize(
    "planted",
    [
        lambda *a: tuple(g / 2 for g in twin(*a)),  # the factor 2 is missing
        lambda *a: tuple(-g for g in twin(*a)),
        lambda indptr, items, values, shift, *a: twin(indptr, items, values, 0.0, *a),  # forgets the shift
        lambda ip, it, va, sh, rows, *a: twin(ip, it, va, sh, np.arange(len(ip) - 1), *a),  # forgets to sample
        lambda *a: (twin(*a)[0], np.roll(twin(*a)[1], 1, axis=0)),  # another item's
        lambda *a: (twin(*a)[0] * np.float32(1.001), twin(*a)[1]),
    ],
)
def test_a_planted_bug_in_gradients_is_found(planted):
    assert_finds(planted, check_gradients, factor_gradients, FIXED)


def epoch(kernel, case, rate, regularization, times=1):
    """Every rating `times` times, in random order."""
    u, v = copies(case.users, case.factors)
    order = derive(case.seed, "order").permutation(np.repeat(np.arange(len(case.items)), times))
    world = (case.entry_users, case.items, case.values, case.shift, order, u, v)
    kernel(*world, rate / case.span, regularization, case.span)
    return u, v


def check_epoch(kernel, case, rate, regularization):
    found, expected = (epoch(k, case, rate, regularization) for k in (kernel, sgd_epoch_numpy))
    for actual, wanted in zip(found, expected, strict=True):
        assert_near(actual, wanted, np.sqrt(case.span), tolerance=3e-5)


@given(cases(feasible=True), st.sampled_from([0.0, 0.01, 0.3]), st.sampled_from([0.0, 0.0125, 1.0]))
@settings(deadline=None, max_examples=100)
def test_an_epoch_equals_its_twin(case, rate, regularization):
    check_epoch(sgd_epoch, case, rate, regularization)


@given(cases(sizes=(0.0, 1.0, 1e3)), st.sampled_from([0.0, 0.3, 30.0]), st.sampled_from([0.0, 1.0]))
@settings(deadline=None, max_examples=100)
def test_an_epoch_makes_visited_rows_feasible_and_leaves_the_others(case, rate, regularization):
    u, v = epoch(sgd_epoch, case, rate, regularization, times=2)
    visited = np.unique(case.entry_users), np.unique(case.items)
    for x, before, rows in ((u, case.users, visited[0]), (v, case.factors, visited[1])):
        assert np.all(x[rows] >= 0)
        assert np.all(np.square(x[rows], dtype=np.float64).sum(axis=1) <= case.span * (1 + 1e-5))
        others = np.setdiff1d(np.arange(len(x)), rows)
        np.testing.assert_array_equal(x[others], before[others])


def wrong_epoch(us, items, values, shift, order, u, v, rate, reg, span, *, stale=True, factor=1.0, forget=False):
    """The twin with one thing changed."""
    for e in order:
        i, j = us[e], items[e]
        error = values[e] - np.float32(shift) - u[i] @ v[j]
        a, b = u[i].copy(), v[j].copy()
        u[i] = embed((a + rate * (factor * error * b - reg * a))[None], span)[0]
        step = b + rate * (factor * error * (a if stale else u[i]) - reg * b)
        v[j] = np.maximum(step, 0) if forget else embed(step[None], span)[0]


@pytest.mark.parametrize(
    "bug",
    [
        lambda *a: wrong_epoch(*a, stale=False),  # the item sees the user's new factors
        lambda *a: wrong_epoch(*a, factor=2.0),
        lambda *a: wrong_epoch(*a, forget=True),  # items are not scaled back
        lambda us, it, va, sh, *a: wrong_epoch(us, it, va, 0.0, *a),  # forgets the shift
        lambda us, it, va, sh, order, *a: wrong_epoch(us, it, va, sh, np.sort(order), *a),
        lambda *a: wrong_epoch(*a[:8], 0.0, a[9]),  # forgets the regularization
        lambda *a: None,
    ],
)
def test_a_planted_bug_in_an_epoch_is_found(bug):
    assert_finds(bug, check_epoch, sgd_epoch, FIXED_FEASIBLE, 0.3, 0.2)


def check_pairs(kernel, case, k):
    stream, n = derive(case.seed, "pairs"), len(case.users)
    users, items = (stream.integers(0, max(1, size), size=k if n else 0) for size in (n, len(case.factors)))
    found = kernel(case.users, case.factors, users, items)
    assert found.dtype == np.float32
    magnitude = predict_pairs_numpy(np.abs(case.users), np.abs(case.factors), users, items)
    assert_near(found, predict_pairs_numpy(case.users, case.factors, users, items), magnitude)
    whole = case.users.astype(np.float64) @ case.factors.T.astype(np.float64)
    assert_near(found, whole[users, items], magnitude)


@given(cases(), st.integers(0, 30))
@settings(deadline=None, max_examples=200)
def test_predictions_equal_their_twin_and_plain_multiplication(case, k):
    check_pairs(predict_pairs, case, k)


@pytest.mark.parametrize(
    "planted",
    [
        lambda u, v, users, items: predict_pairs_numpy(u, v, users, np.roll(items, 1)),
        lambda u, v, users, items: predict_pairs_numpy(u[:, 1:], v[:, 1:], users, items),  # loses a factor
        lambda u, v, users, items: predict_pairs_numpy(u, v, users, items) * np.float32(1.001),
    ],
)
def test_a_planted_bug_in_predictions_is_found(planted):
    assert_finds(planted, check_pairs, predict_pairs, FIXED, 10)


def regression(case, seed=1):
    p, stream = case.factors.shape[1], derive(seed, "ridge")
    root, weights = stream.normal(size=(p, p)), stream.random(len(case.items))
    return case.indptr, case.items, case.values.astype(np.float64), weights, case.factors, root @ root.T + np.eye(p)


@given(cases(feasible=True), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_ridge_equals_its_twin(case, seed):
    question = regression(case, seed)
    np.testing.assert_allclose(ridge(*question), ridge_numpy(*question), rtol=1e-6, atol=1e-8)


def test_ridge_is_the_dense_solution():
    indptr, items, targets, weights, factors, precision = regression(make(3, n=9, m=7, p=3, density=0.6))
    found = ridge(indptr, items, targets, weights, factors, precision)
    for i in range(9):
        mine = slice(indptr[i], indptr[i + 1])
        v = factors[items[mine]].astype(np.float64)
        expected = np.linalg.inv(precision + v.T @ np.diag(weights[mine]) @ v) @ v.T @ targets[mine]
        np.testing.assert_allclose(found[i], expected, rtol=1e-8, atol=1e-10)


def test_a_direction_without_weight_stays_0():
    factors = np.array([[1, 0, 0], [0, 0, 2]], dtype=np.float32)
    for kernel in (ridge, ridge_numpy):
        ratings = np.array([0, 2, 3, 3]), np.array([0, 1, 1]), np.array([3.0, 4.0, 4.0])
        found = kernel(*ratings, np.ones(3), factors, np.zeros((3, 3)))
        np.testing.assert_allclose(found, [[3, 0, 2], [0, 0, 2], [0, 0, 0]])
