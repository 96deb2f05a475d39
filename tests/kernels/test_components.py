"""Principal components in a fixed order of exact operations: right, ordered, signed, and the same bits each time."""

import hashlib

import numpy as np
import pytest

from tacit.kernels.components import components, components_numpy


def sparse(dense):
    rows, columns = np.nonzero(dense)
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(dense)))))
    return (
        indptr,
        columns.astype(np.int64),
        np.ascontiguousarray(dense[rows, columns], dtype=np.float64),
        dense.shape[1],
    )


def world(m=200, d=60, seed=3):
    draw = np.random.default_rng(seed)
    return (draw.random((m, d)) < 0.15) * np.linspace(3, 0.5, d)


@pytest.mark.parametrize(("d", "k"), [(60, 5), (60, 60), (12, 5), (5, 40)])
def test_components_equal_their_twin(d, k):
    matrix = sparse(world(d=d))
    np.testing.assert_allclose(components(*matrix, k), components_numpy(*matrix, k), atol=1e-6)


def test_columns_are_centred_uncorrelated_in_order_and_signed():
    found = components(*sparse(world()), 10)
    inner = found.T @ found
    np.testing.assert_allclose(inner - np.diag(inner.diagonal()), 0, atol=1e-6)
    np.testing.assert_allclose(found.mean(axis=0), 0, atol=1e-12)
    assert np.all(np.diff(inner.diagonal()) < 0)
    assert np.all(found.max(axis=0) == np.abs(found).max(axis=0))


def test_directions_without_variance_are_left_out():
    twice = np.repeat(world(d=3), 2, axis=1)  # six columns, of which three are copies
    assert components(*sparse(twice), 6).shape == (200, 3)
    assert components(*sparse(np.ones((4, 3))), 3).shape == (4, 0)
    assert components(*sparse(np.zeros((4, 0))), 3).shape == (4, 0)


def test_equal_eigenvalues_give_the_same_bits_as_ever():
    """Every direction is alike: any rotation of the basis would do, and the one of LAPACK differs by machine."""
    found = components(*sparse(np.repeat(np.eye(24), 3, axis=0)), 4)
    assert hashlib.sha256(found.tobytes()).hexdigest() == DIGEST
    assert found.shape == (72, 4)


DIGEST = "e745e3e2de1c3c1ca7343805c3eb4fa8db790f6a1dd3b9b13afdfda7f1e70c5c"
