"""Predictions for pairs equal their twin's, and plain multiplication."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FIXED, assert_finds, assert_near, cases, copies

from tacit.kernels.predict import predict_pairs, predict_pairs_numpy
from tacit.rng import derive


def pairs(case, k):
    stream = derive(case.seed, "pairs")
    n, m = len(case.users), len(case.factors)
    k = k if n else 0
    return stream.integers(0, max(1, n), size=k), stream.integers(0, m, size=k)


def check(kernel, case, k):
    users, items = pairs(case, k)
    inputs = (case.users, case.factors, users, items)
    before = copies(*inputs)
    found = kernel(*inputs)
    assert found.dtype == np.float32
    magnitude = predict_pairs_numpy(np.abs(case.users), np.abs(case.factors), users, items)
    assert_near(found, predict_pairs_numpy(*inputs), magnitude)
    whole = case.users.astype(np.float64) @ case.factors.T.astype(np.float64)
    assert_near(found, whole[users, items], magnitude)
    for array, was in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(array, was)


@given(cases(), st.integers(0, 30))
@settings(deadline=None, max_examples=200)
def test_the_kernel_equals_its_twin(case, k):
    check(predict_pairs, case, k)


@pytest.mark.parametrize(
    "planted",
    [
        lambda u, v, users, items: predict_pairs_numpy(u, v, users, np.roll(items, 1)),
        lambda u, v, users, items: predict_pairs_numpy(u[:, 1:], v[:, 1:], users, items),  # loses a factor
        lambda u, v, users, items: predict_pairs_numpy(u, v, users, items) * np.float32(1.001),
        lambda u, v, users, items: predict_pairs_numpy(u, v, users, items).astype(np.float64),
    ],
)
def test_a_planted_bug_is_found(planted):
    assert_finds(planted, check, predict_pairs, FIXED, 10)
