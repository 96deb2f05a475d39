"""Where factors start, and how step sizes fall: choices that depend on public quantities and the seed alone."""

from __future__ import annotations

import math

import numpy as np

from tacit.federation import Facts
from tacit.kernels.embed import embed
from tacit.rng import derive


def start_factors(facts: Facts, rows: int, factors: int, *purpose: str) -> np.ndarray:
    """Non-negative factors whose products start near the middle of the scale; (rows, factors) float32.

    Entries are uniform on [0, 2a] with factors·a² = 0.6·R, then projected.
    """
    a = math.sqrt(0.6 * facts.scale.span / factors)
    uniform = derive(facts.seed, "start", *purpose).random((rows, factors), dtype=np.float32)
    return embed(uniform * np.float32(2 * a), facts.scale.span)


def linear_decay(first: float, step: int, steps: int, last: float) -> float:
    """A rate that falls linearly from `first` to `last`·`first` over 80 % of the steps and then stays (P0, §4.3).

    >>> [round(linear_decay(1.0, s, 10, 0.2), 2) for s in (0, 4, 8, 9)]
    [1.0, 0.6, 0.2, 0.2]
    """
    return first * (1 - (1 - last) * min(1.0, step / (0.8 * steps)))
