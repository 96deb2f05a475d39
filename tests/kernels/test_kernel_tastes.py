"""Posteriors of tastes, and slopes of item factors, equal their twins."""

import numpy as np
import pytest

from tacit.kernels.tastes import (
    explained,
    explained_numpy,
    posteriors,
    posteriors_numpy,
    slopes,
    slopes_numpy,
)
from tacit.rng import derive


def world(counts=(0, 1, 2, 7, 40), m=60, k=5, q=3):
    stream = derive(3, "tastes", k)
    items = np.concatenate([np.sort(stream.choice(m, c, replace=False)) for c in counts]).astype(np.int32)
    indptr = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return indptr, items, stream.normal(size=len(items)), stream.normal(size=(m, k)), stream.normal(size=(k, q))


@pytest.mark.parametrize("k", [1, 5])
def test_posteriors_equal_their_twin(k):
    indptr, items, targets, factors, directions = world(k=k)
    found = posteriors(indptr, items, targets, factors, 0.7, directions)
    for mine, twin in zip(found, posteriors_numpy(indptr, items, targets, factors, 0.7, directions), strict=True):
        np.testing.assert_allclose(mine, twin, rtol=1e-9, atol=1e-12)


def test_nobody_is_expected_to_have_another_taste_before_ratings_are_seen():
    indptr, items, targets, factors, directions = world()
    means, spreads = posteriors(indptr, items, targets, factors, 0.7, directions)
    assert not means[0].any()
    np.testing.assert_allclose(spreads[0], directions)


def test_a_user_whose_ratings_scatter_is_believed_less_than_one_whose_ratings_agree():
    stream = derive(4, "scatter")
    factors, taste, each = stream.normal(size=(40, 3)), np.array([0.3, -0.2, 0.1]), stream.normal(size=40)
    items, indptr = np.tile(np.arange(40, dtype=np.int32), 2), np.array([0, 40, 80], dtype=np.int64)
    each -= factors @ np.linalg.lstsq(factors, each, rcond=None)[0]  # noise of which no taste explains a part
    targets = np.concatenate([factors @ taste + 0.1 * each, factors @ taste + 3 * each])
    calm, scattered = posteriors(indptr, items, targets, factors, 1.0)[0]
    assert np.linalg.norm(scattered) < np.linalg.norm(calm) < np.linalg.norm(taste)


def test_slopes_and_what_is_explained_equal_their_twins():
    indptr, items, targets, factors, directions = world()
    means, spreads = posteriors(indptr, items, targets, factors, 0.7, directions)
    question = (indptr, items, targets, factors, means @ directions, spreads)
    np.testing.assert_allclose(slopes(*question), slopes_numpy(*question), rtol=1e-9, atol=1e-12)
    question = (indptr, items, factors, means)
    np.testing.assert_allclose(explained(*question), explained_numpy(*question), rtol=1e-9, atol=1e-12)


def test_an_empty_party_has_nobody():
    none = np.zeros(0, dtype=np.int32)
    means, spreads = posteriors(np.zeros(1, dtype=np.int64), none, np.zeros(0), np.ones((4, 2)), 1.0, np.eye(2))
    assert means.shape == (0, 2)
    assert spreads.shape == (0, 2, 2)
