"""Embedding clipping is the projection onto {x ≥ 0, ‖x‖² ≤ R}, and the kernel does what its twin does."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_cases import FIXED, assert_finds, assert_near, cases

from tacit.kernels.embed import (
    descend_and_embed,
    descend_and_embed_numpy,
    embed,
    embed_numpy,
    embed_rows,
    embed_rows_numpy,
)
from tacit.rng import derive

SIZES = st.sampled_from([0.0, 1e-20, 1e-3, 1.0, 100.0, 1e15, 1e30])
SPANS = st.sampled_from([1e-3, 0.5, 4.0, 100.0])


def points(seed, size, n, p):
    return size * derive(seed, "points").standard_normal((n, p))


def feasible_points(seed, span, k, p):
    """Points of the set: at random, on its sphere, on its faces, and the origin."""
    stream = derive(seed, "feasible")
    z = stream.exponential(size=(k, p)) * (stream.random((k, p)) < 0.7)
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    radius = np.sqrt(span) * np.minimum(1, 1.3 * stream.random((k, 1)))
    return np.vstack([z / np.where(norms > 0, norms, 1) * radius, np.zeros(p)])


@given(st.integers(0, 2**32), SIZES, SPANS, st.integers(0, 5), st.integers(1, 6))
@settings(deadline=None)
def test_it_is_the_euclidean_projection(seed, size, span, n, p):
    """The variational inequality ⟨x − Πx, z − Πx⟩ ≤ 0 for all feasible z says so, and nothing else satisfies it."""
    x = points(seed, size, n, p)
    projected = embed(x, span)
    assert np.all(projected >= 0)
    assert np.all(np.square(projected).sum(axis=1) <= span * (1 + 1e-12))
    z = feasible_points(seed, span, 30, p)
    inner = np.einsum("if,ikf->ik", x - projected, z[None] - projected[:, None])
    slack = 1e-12 * np.linalg.norm(x, axis=1, keepdims=True) * np.sqrt(span)
    assert np.all(inner <= slack)


@pytest.mark.parametrize(
    "other",
    [
        lambda x, span: np.maximum(x, 0),  # forgot the ball
        lambda x, span: x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True) / np.sqrt(span)),  # forgot the cone
        lambda x, span: np.maximum(x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True) / np.sqrt(span)), 0),
        lambda x, span: embed(x, span * span),  # the span for its root
        lambda x, span: np.abs(embed(-x, span)),
    ],
)
def test_other_clippings_are_found_not_to_be_it(other):
    x, span = points(3, 5.0, 20, 3), 4.0
    y = other(x, span)
    inner = np.einsum("if,ikf->ik", x - y, feasible_points(3, span, 100, 3)[None] - y[:, None])
    feasible = np.all(y >= 0) and np.all(np.square(y).sum(axis=1) <= span * (1 + 1e-12))
    assert not (feasible and np.all(inner <= 1e-9))


def test_what_is_not_finite_becomes_zero_and_spoils_nothing_else():
    x = np.array([[np.nan, 1], [np.inf, 1], [-np.inf, 1], [3, 4], [np.nan, np.inf]], dtype=np.float32)
    expected = np.array([[0, 1], [0, 1], [0, 1], [0.6, 0.8], [0, 0]], dtype=np.float32)
    np.testing.assert_allclose(embed(x, 1.0), expected, rtol=1e-6)


def check_embed(kernel, case):
    seed, dtype, size, span = case
    x, rows = points(seed, size, 9, 7).astype(dtype), np.flatnonzero(derive(seed, "rows").random(9) < 0.5)
    x[0, :3] = np.nan, np.inf, -np.inf
    found, wanted = kernel(x, span), embed_numpy(x, span)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=8 * np.finfo(dtype).eps)
    some = embed_rows(x, rows, span)
    assert some.dtype == np.float64
    np.testing.assert_allclose(some, embed_rows_numpy(x, rows, span), rtol=8 * np.finfo(np.float64).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(st.integers(0, 2**32), SIZES, SPANS)
@settings(deadline=None)
def test_the_projection_of_all_or_some_rows_equals_its_twin(dtype, seed, size, span):
    check_embed(embed, (seed, dtype, size, span))


def test_rows_that_a_peer_sent_are_projected_whatever_their_layout():
    x = points(1, 2.0, 6, 4).astype(np.float32)
    sent = np.asfortranarray(x)
    sent.flags.writeable = False
    np.testing.assert_array_equal(embed(sent, 4.0), embed(x, 4.0))


def gradient_of(case):
    return (10 * derive(case.seed, "gradient").standard_normal(case.users.shape)).astype(np.float32)


def magnitude(case, gradient, rate, decay):
    """Rounding is relative to the two terms of the step, and shrinks with the row."""
    kept, moved = (1 - decay) * case.users.astype(np.float64), rate * gradient.astype(np.float64)
    norms = np.linalg.norm(np.maximum(kept - moved, 0), axis=1)
    shrink = np.sqrt(case.span) / np.maximum(norms, np.sqrt(case.span))
    return ((np.abs(kept) + np.abs(moved)).max(axis=1, initial=0) * shrink)[:, None]


def check(kernel, case, rate, decay):
    x, gradient = case.users.copy(), gradient_of(case)
    before = gradient.copy()
    expected = descend_and_embed_numpy(x, gradient, rate, case.span, decay)
    np.testing.assert_array_equal(x, case.users)
    found = kernel(x, gradient, rate, case.span, decay)
    assert_near(found, expected, magnitude(case, gradient, rate, decay))
    np.testing.assert_array_equal(gradient, before)
    return found, x


@given(
    cases(sizes=(0.0, 1e-6, 1.0, 1e9, 1e15)), st.sampled_from([0.0, 1e-3, 0.1, 3.0]), st.sampled_from([0.0, 0.01, 1.0])
)
@settings(deadline=None, max_examples=200)
def test_the_kernel_equals_its_twin(case, rate, decay):
    found, x = check(descend_and_embed, case, rate, decay)
    assert found is x, "in place"
    assert np.all(found >= 0)
    assert np.all(np.square(found, dtype=np.float64).sum(axis=1) <= case.span * (1 + 1e-5))


@pytest.mark.parametrize(
    "planted",
    [
        lambda x, g, rate, span, decay: embed(x, span) - np.float32(rate) * g,  # projects before the step
        lambda x, g, rate, span, decay: embed(x + np.float32(rate) * g, span),  # uphill
        lambda x, g, rate, span, decay: embed(np.float32(1 - decay) * (x - np.float32(rate) * g), span),
        lambda x, g, rate, span, decay: embed(x - np.float32(rate) * g, span),  # forgets the decay
        lambda x, g, rate, span, decay: np.maximum((1 - decay) * x - rate * g, 0),  # forgets the ball
        lambda x, g, rate, span, decay: embed((1 - decay) * x - rate * g, np.sqrt(span)),
    ],
)
def test_a_planted_bug_is_found(planted):
    assert_finds(planted, check, descend_and_embed, FIXED, 0.1, 0.2)
