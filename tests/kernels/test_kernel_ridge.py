"""Ridge regression for many users: the kernel finds what a dense solver finds, and does what its twin does."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import cases, make

from tacit.kernels.ridge import ridge, ridge_numpy
from tacit.rng import derive


def asked(case, seed=1, weight=1.0):
    """A ridge regression over a case's ratings and factors."""
    p, stream = case.factors.shape[1], derive(seed, "ridge")
    root = stream.normal(size=(p, p))
    weights = weight * stream.random(len(case.items))
    return case.indptr, case.items, case.values.astype(np.float64), weights, case.factors, root @ root.T + np.eye(p)


@given(cases(feasible=True), st.integers(0, 1000))
@settings(deadline=None, max_examples=60)
def test_it_equals_its_twin(case, seed):
    question = asked(case, seed)
    np.testing.assert_allclose(ridge(*question), ridge_numpy(*question), rtol=1e-6, atol=1e-8)


def test_it_is_the_dense_solution():
    case = make(3, n=9, m=7, p=3, density=0.6)
    indptr, items, targets, weights, factors, precision = asked(case)
    found = ridge(indptr, items, targets, weights, factors, precision)
    for i in range(9):
        mine = slice(indptr[i], indptr[i + 1])
        v = factors[items[mine]].astype(np.float64)
        expected = np.linalg.inv(precision + v.T @ np.diag(weights[mine]) @ v) @ v.T @ targets[mine]
        np.testing.assert_allclose(found[i], expected, rtol=1e-8, atol=1e-10)


def test_a_direction_of_which_nothing_is_known_stays_0():
    factors = np.array([[1, 0, 0], [0, 0, 2]], dtype=np.float32)
    for kernel in (ridge, ridge_numpy):
        ratings = np.array([0, 2, 3, 3]), np.array([0, 1, 1]), np.array([3.0, 4.0, 4.0])
        found = kernel(*ratings, np.ones(3), factors, np.zeros((3, 3)))
        np.testing.assert_allclose(found, [[3, 0, 2], [0, 0, 2], [0, 0, 0]])
