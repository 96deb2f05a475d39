"""The kernels of Bayesian sweeps and their twins."""

import numpy as np
import pytest

from tacit.kernels import posteriors as kernels
from tacit.kernels.posteriors import moment_sums, moment_sums_numpy, posteriors, posteriors_numpy


def a_world(n=12, m=9, d=5, seed=3):
    stream = np.random.default_rng(seed)
    counts = np.array([0, 1, m, *stream.integers(0, m, n - 3)])
    indptr = np.concatenate([[0], np.cumsum(counts)])
    columns = np.concatenate([np.sort(stream.permutation(m)[:c]) for c in counts]).astype(np.int32)
    means = stream.standard_normal((m, d)).astype(np.float32)
    means[:, 0] = 1
    a, b = np.triu_indices(d)
    moments = (means[:, a] * means[:, b] + 0.1 * (a == b)).astype(np.float32)
    return indptr, columns, stream.standard_normal(len(columns)).astype(np.float32), moments, means


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_moments_equal_their_twin(dtype):
    indptr, columns, values, moments, means = a_world()
    given = indptr, columns, values, moments.astype(dtype), means.astype(dtype)
    for fast, slow in zip(moment_sums(*given), moment_sums_numpy(*given), strict=True):
        assert fast.dtype == slow.dtype == dtype
        np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("fixed", [0, 1])
def test_posteriors_equal_their_twin(fixed):
    world = a_world()
    sums, targets = moment_sums(*world)
    n, d = targets.shape
    stream = np.random.default_rng(4)
    root = stream.standard_normal((d - 1, d - 1))
    given = (
        sums,
        targets,
        stream.random(n) + 0.5,
        fixed,
        stream.standard_normal((n, d - 1)),
        root @ root.T + np.eye(d - 1),
    )
    for fast, slow in zip(posteriors(*given), posteriors_numpy(*given), strict=True):
        np.testing.assert_allclose(fast, slow, rtol=2e-4, atol=2e-5)


def test_a_row_without_entries_has_its_prior():
    indptr, columns, values, moments, means = a_world()
    sums, targets = moment_sums(indptr, columns, values, moments, means)
    prior = np.arange(len(sums) * 4, dtype=np.float64).reshape(-1, 4)
    found, second = posteriors(sums, targets, np.ones(len(sums)), 1, prior, 2 * np.eye(4))
    np.testing.assert_allclose(np.delete(found[0], 1), prior[0], rtol=1e-6)
    a, b = np.triu_indices(5)
    expected = np.outer(found[0], found[0]) + 0.5 * np.diag([1, 0, 1, 1, 1])
    np.testing.assert_allclose(second[0], expected[a, b], rtol=1e-6)


def test_blocks_of_rows_change_nothing(monkeypatch):
    world = a_world(n=40)
    whole = moment_sums(*world)
    monkeypatch.setattr(kernels, "SMALL", 0)
    monkeypatch.setattr(kernels, "THREADS", 3)
    for one, other in zip(whole, moment_sums(*world), strict=True):
        np.testing.assert_array_equal(one, other)
