"""The gradients are those of the squared error, and the kernel does what its twin does."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from kernel_cases import FIXED, assert_finds, assert_near, cases, copies

from tacit.kernels.squared_error import factor_gradients, factor_gradients_numpy


def loss(case, users, factors):
    """Σ (r − u·v)² over the ratings of the sampled rows, rating by rating."""
    total = 0.0
    for i in case.rows:
        for e in range(case.indptr[i], case.indptr[i + 1]):
            total += (float(case.values[e]) - case.shift - float(users[i] @ factors[case.items[e]])) ** 2
    return total


def slopes(case, x, of):
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
    return factor_gradients_numpy(
        *positive.ratings, case.rows, *(np.abs(x).astype(np.float64) for x in (case.users, case.factors))
    )


def check(kernel, case):
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
def test_the_kernel_equals_its_twin(case):
    check(factor_gradients, case)


@given(cases(sizes=(0.0, 0.3, 1.0)))
@settings(deadline=None, max_examples=25)
def test_the_gradients_are_the_losss_slopes(case):
    users, factors = case.users.astype(np.float64), case.factors.astype(np.float64)
    by_user = slopes(case, users, lambda x: loss(case, x, factors))
    by_item = slopes(case, factors, lambda x: loss(case, users, x))
    found = factor_gradients(*case.ratings, case.rows, case.users, case.factors)
    for actual, wanted, magnitude in zip(found, (by_user, by_item), magnitudes(case), strict=True):
        assert_near(actual, wanted, magnitude + 1e-9)


def twin(*arguments):
    return factor_gradients_numpy(*arguments)


@pytest.mark.parametrize(
    "planted",
    [
        lambda *a: tuple(g / 2 for g in twin(*a)),  # the factor 2 is missing
        lambda *a: tuple(-g for g in twin(*a)),
        lambda indptr, items, values, shift, *a: twin(indptr, items, values, 0.0, *a),  # forgets the shift
        lambda ip, it, va, sh, rows, *a: twin(ip, it, va, sh, np.arange(len(ip) - 1), *a),  # forgets to sample
        lambda ip, it, va, sh, rows, *a: twin(ip, it, va, sh, rows[1:], *a),  # loses a row
        lambda *a: (twin(*a)[0], np.roll(twin(*a)[1], 1, axis=0)),  # another item's
        lambda *a: (twin(*a)[0] * np.float32(1.001), twin(*a)[1]),
    ],
)
def test_a_planted_bug_is_found(planted):
    assert_finds(planted, check, factor_gradients, FIXED)
