"""ε along the way: never too low, exact at the end."""

import math

import numpy as np
import pytest

from tacit.boundary import account, curves
from tacit.boundary.events import Gaussian, Laplace, NonPrivate, Public, SampledGaussian, Skellam
from tacit.errors import UsageError
from tacit.guarantee import Relation

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
STEP = SampledGaussian(1.5, 0.02)
KINDS = {
    "sampled": (STEP, 300),
    "plain": (Gaussian(30.0), 2000),
    "skellam": (Skellam(1e6, 100.0, 30.0), 700),
    "mixed": ([STEP, Gaussian(50.0)], 60),
}


def after(event, steps, relation):
    events = [event] if not isinstance(event, list) else event
    return account.epsilon(events * steps, 1e-5, relation)


def too_low(curve, event, relation, at):
    return [t for t in at if curve[t] < after(event, t, relation) * (1 - 1e-9)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_the_curve_is_never_too_low_never_falls_and_ends_exactly(kind, relation):
    event, steps = KINDS[kind]
    curve = curves.epsilon_curve(event, steps, 1e-5, relation, points=6)
    assert curve.shape == (steps + 1,)
    assert curve[0] == 0
    assert np.all(np.diff(curve) >= 0)
    assert curve[-1] == after(event, steps, relation)
    assert too_low(curve, event, relation, (1, 2, steps // 3)) == []
    assert curve[steps // 3] < 1.35 * after(event, steps // 3, relation)


def test_a_straight_line_between_points_would_be_too_low():
    curve = curves.epsilon_curve(STEP, 300, 1e-5, ZERO_OUT)
    straight = np.interp(np.arange(301), [0, 300], [0.0, curve[-1]])
    assert too_low(straight, STEP, ZERO_OUT, (30, 100)) == [30, 100]


def test_a_short_curve_is_exact_up_to_the_coarse_grid():
    curve = curves.epsilon_curve(STEP, 3, 1e-5, ZERO_OUT)
    assert curve[1:] == pytest.approx([after(STEP, t, ZERO_OUT) for t in (1, 2, 3)], rel=0.02)


def test_edges():
    assert curves.epsilon_curve(STEP, 0, 1e-5, ZERO_OUT).tolist() == [0]
    assert curves.epsilon_curve(Public(), 3, 1e-5, ZERO_OUT).tolist() == [0, 0, 0, 0]
    assert curves.epsilon_curve(NonPrivate(), 2, 1e-5, ZERO_OUT).tolist() == [0, math.inf, math.inf]
    assert curves.epsilon_curve(Laplace(10.0), 4, 0.0, ZERO_OUT) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert len(curves.epsilon_curve(Gaussian(1e3), 10**6, 1e-5, ZERO_OUT)) == 10**6 + 1
    with pytest.raises(UsageError, match="not possible"):
        curves.epsilon_curve(STEP, -1, 1e-5, ZERO_OUT)
