"""Least squares in a ball: the minimisers are minimisers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary.objective_perturbation import least_in_ball

SEEDS = st.integers(0, 2**32 - 1)


def problems(seed, m=20, p=4):
    draw = np.random.default_rng(seed)
    roots = draw.normal(size=(m, p, draw.integers(1, 2 * p))) * 10 ** draw.uniform(-3, 2, size=(m, 1, 1))
    least = 10 ** draw.uniform(-2, 3)
    curvature = roots @ roots.transpose(0, 2, 1) + least * np.eye(p)
    return curvature, draw.normal(size=(m, p)) * 10 ** draw.uniform(-3, 4, size=(m, 1)), 10 ** draw.uniform(-1, 1)


@given(SEEDS)
@settings(max_examples=60, deadline=None)
def test_a_minimiser_meets_the_conditions_of_one(seed):
    """Inside, the gradient is 0; on the edge it is −ν·v with ν ≥ 0. Relative to the sizes of the gradient's terms."""
    H, g, radius = problems(seed)
    v = least_in_ball(H, g, radius)
    norms = np.linalg.norm(v, axis=1)
    assert (norms <= radius * (1 + 1e-12)).all()
    gradient = np.einsum("mij,mj->mi", H, v) - g
    inside = norms < radius * (1 - 1e-9)
    pull = np.where(inside, 0.0, np.maximum(0.0, -np.einsum("mi,mi->m", gradient, v) / norms**2))
    sizes = np.linalg.norm(H, axis=(1, 2)) * norms + np.linalg.norm(g, axis=1)
    assert (np.linalg.norm(gradient + pull[:, None] * v, axis=1) <= 1e-11 * sizes).all()


def test_a_minimiser_is_no_worse_than_any_point_of_a_grid():
    H, g, radius = problems(3, p=2)
    v = least_in_ball(H, g, radius)
    angle, length = np.meshgrid(np.linspace(0, 2 * np.pi, 200), np.linspace(0, radius, 80))
    grid = np.stack([length * np.cos(angle), length * np.sin(angle)], axis=-1).reshape(-1, 2)

    def value(x, j):
        return 0.5 * np.einsum("...i,ij,...j->...", x, H[j], x) - x @ g[j]

    for j in range(len(v)):
        assert value(v[j], j) <= value(grid, j).min() + 1e-9 * abs(value(v[j], j))


def test_a_solver_that_stops_early_is_noticed(monkeypatch):
    monkeypatch.setattr("tacit.boundary.objective_perturbation.STEPS", 1)
    with pytest.raises(AssertionError):
        test_a_minimiser_meets_the_conditions_of_one.hypothesis.inner_test(5)
