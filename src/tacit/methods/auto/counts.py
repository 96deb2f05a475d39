"""How much weight each item has, from noised weights alone: empirical Bayes with public features. Costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.methods.auto.features import standardised

#: Points of the grid of possible weights, which spans so many orders of magnitude.
POINTS, DECADES = 90, 4.5
SWEEPS = 6


@dataclass(frozen=True, eq=False)
class Measured:
    """y_i = scale_i·d_i + N(0, sd²): one noised answer about the weights d; y and scale are (m,)."""

    y: np.ndarray
    scale: np.ndarray
    sd: float


def weights(measured: Sequence[Measured], features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means of d and of log d, (m,) each; log d ~ N(F·β, s²) with β and s by empirical Bayes."""
    first, m = measured[0], len(measured[0].y)
    top = 1.5 * max(float((first.y / np.maximum(first.scale, 1e-9)).max()), 3 * first.sd, 1e-3)
    grid = top * np.logspace(-DECADES, 0, POINTS)
    log = np.log(grid)
    likelihood = np.zeros((m, POINTS))
    for one in measured:
        sd = max(one.sd, 1e-3 * top * float(one.scale.max(initial=1e-9)))
        likelihood -= 0.5 * np.square((one.y[:, None] - one.scale[:, None] * grid) / sd)
    F = np.hstack([np.ones((m, 1)), standardised(features)])
    ridge = np.full(F.shape[1], 20.0)
    ridge[0] = 0.1
    centre, s = np.full(m, np.log(max(float(first.y.mean()), top * 1e-3)) - 0.5), 1.5
    for _ in range(SWEEPS):
        mass = likelihood - 0.5 * np.square((log - centre[:, None]) / s)
        mass = np.exp(mass - mass.max(axis=1, keepdims=True))
        mass /= mass.sum(axis=1, keepdims=True)
        mean = mass @ log
        variance = np.maximum(mass @ log**2 - mean**2, 0.0)
        known = np.maximum(1 - variance / s**2, 1e-3)  # the part of what can be known of log d that is known
        target = np.clip(centre + (mean - centre) / known, log[0] - 2, log[-1] + 2)
        A = (F * known[:, None]).T @ F + np.diag(ridge)
        centre = F @ np.linalg.solve(A, (F * known[:, None]).T @ target)
        s = float(np.clip(np.sqrt(np.mean(variance + np.square(mean - centre))), 0.4, 2.5))
    return mass @ grid, mean
