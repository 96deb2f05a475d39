"""The accountant against runs of the mechanism itself: losses drawn, added up, and averaged."""

import math

import numpy as np
import pytest

from tacit.boundary import account
from tacit.boundary.events import SampledGaussian
from tacit.guarantee import Relation
from tacit.rng import derive

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE
#: Draws, and how many standard errors a mean may be off: one false alarm in a million tests.
RUNS, FAR = 40_000, 4.9


def drawn_delta(losses, epsilon):
    """The mean of (1 − e^(ε − L))₊ over drawn losses, and its standard error."""
    values = np.maximum(-np.expm1(epsilon - losses), 0)
    return values.mean(), values.std() / math.sqrt(len(values))


def sampled_losses(z, rate, steps, relation, stream):
    """The total loss of `steps` sampled answers when the unit is there, over runs."""
    total = np.zeros(RUNS)
    for _ in range(steps):
        x = z * stream.standard_normal(RUNS) + (stream.random(RUNS) < rate)
        here = np.log1p(rate * np.expm1((x - 0.5) / z**2))
        there = np.log1p(rate * np.expm1((-x - 0.5) / z**2)) if relation is REPLACE else 0.0
        total += here - there
    return total


@pytest.mark.parametrize("relation", [ZERO_OUT, REPLACE])
def test_sampled_steps_lose_what_the_accountant_says(relation):
    """z = 1, q = 0.05, 60 steps: δ at three ε, each within `FAR` standard errors of RUNS draws."""
    losses = sampled_losses(1.0, 0.05, 60, relation, derive(7, "losses", str(relation)))
    for epsilon in (0.5, 1.0, 2.0):
        mean, error = drawn_delta(losses, epsilon)
        assert account.delta([SampledGaussian(1.0, 0.05, 60)], epsilon, relation) == pytest.approx(
            mean, abs=FAR * error + 1e-4 * mean
        )


@pytest.mark.parametrize(
    "mistaken", [SampledGaussian(1.0, 0.05, 30), SampledGaussian(1.0, 0.04, 60), SampledGaussian(1.15, 0.05, 60)]
)
def test_a_mistaken_schedule_would_be_noticed(mistaken):
    losses = sampled_losses(1.0, 0.05, 60, ZERO_OUT, derive(7, "losses", "zero-out"))
    mean, error = drawn_delta(losses, 1.0)
    assert account.delta([mistaken], 1.0, ZERO_OUT) < mean - FAR * error
