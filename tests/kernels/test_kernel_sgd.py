"""One epoch of stochastic gradient descent keeps factors feasible, and the kernel does what its twin does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FIXED_FEASIBLE, assert_finds, assert_near, cases, copies

from tacit.kernels.embed import embed
from tacit.kernels.sgd import sgd_epoch, sgd_epoch_numpy
from tacit.rng import derive


def order_of(case, times=1):
    """Every rating `times` times, shuffled."""
    return derive(case.seed, "order").permutation(np.repeat(np.arange(len(case.items)), times))


def epoch(kernel, case, rate, regularization, order=None):
    u, v = copies(case.users, case.factors)
    order = order_of(case) if order is None else order
    kernel(
        case.entry_users, case.items, case.values, case.shift, order, u, v, rate / case.span, regularization, case.span
    )
    return u, v


def check(kernel, case, rate, regularization):
    found, expected = (epoch(k, case, rate, regularization) for k in (kernel, sgd_epoch_numpy))
    for actual, wanted in zip(found, expected, strict=True):
        assert_near(actual, wanted, np.sqrt(case.span), tolerance=3e-5)


@given(cases(feasible=True), st.sampled_from([0.0, 0.01, 0.3]), st.sampled_from([0.0, 0.0125, 1.0]))
@settings(deadline=None, max_examples=100)
def test_the_kernel_equals_its_twin(case, rate, regularization):
    check(sgd_epoch, case, rate, regularization)


@given(cases(sizes=(0.0, 1.0, 1e3)), st.sampled_from([0.0, 0.3, 30.0]), st.sampled_from([0.0, 1.0]))
@settings(deadline=None, max_examples=100)
def test_every_row_that_was_visited_is_feasible(case, rate, regularization):
    u, v = epoch(sgd_epoch, case, rate, regularization, order_of(case, times=2))
    visited = np.unique(case.entry_users), np.unique(case.items)
    for x, before, rows in ((u, case.users, visited[0]), (v, case.factors, visited[1])):
        assert np.all(x[rows] >= 0)
        assert np.all(np.square(x[rows], dtype=np.float64).sum(axis=1) <= case.span * (1 + 1e-5))
        others = np.setdiff1d(np.arange(len(x)), rows)
        np.testing.assert_array_equal(x[others], before[others])


def planted(
    users, items, values, shift, order, u, v, rate, regularization, span, *, stale=True, factor=1.0, forget=False
):
    """The twin with one thing changed."""
    for e in order:
        i, j = users[e], items[e]
        error = values[e] - np.float32(shift) - u[i] @ v[j]
        a, b = u[i].copy(), v[j].copy()
        u[i] = embed((a + rate * (factor * error * b - regularization * a))[None], span)[0]
        source = a if stale else u[i]
        step = b + rate * (factor * error * source - regularization * b)
        v[j] = np.maximum(step, 0) if forget else embed(step[None], span)[0]


@pytest.mark.parametrize(
    "bug",
    [
        lambda *a: planted(*a, stale=False),  # the item sees the user's new factors
        lambda *a: planted(*a, factor=2.0),
        lambda *a: planted(*a, forget=True),  # items are not scaled back
        lambda users, items, values, shift, *a: planted(users, items, values, 0.0, *a),  # forgets the shift
        lambda us, it, va, sh, order, *a: planted(us, it, va, sh, np.sort(order), *a),  # forgets the order
        lambda us, it, va, sh, order, u, v, rate, reg, span: planted(us, it, va, sh, order, u, v, rate, 0.0, span),
        lambda us, it, va, sh, order, u, v, rate, reg, span: None,
    ],
)
def test_a_planted_bug_is_found(bug):
    assert_finds(bug, check, sgd_epoch, FIXED_FEASIBLE, 0.3, 0.2)
