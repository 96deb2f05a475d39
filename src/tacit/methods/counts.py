"""How often each item is chosen, from noised counts alone: empirical Bayes with public features. Costs nothing.

Inputs are sums that were released and charged, and public features; no rating of anyone is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

#: Points of the grid of possible counts, and how far the smallest is below the largest.
POINTS, RANGE = 128, 3e4
#: The rounds of empirical Bayes, the ridge of its regression, and bounds of the prior's deviation of log d.
SWEEPS, RIDGE, DEVIATION = 6, 20.0, (0.4, 2.5)
#: Principal components of public features that popularity is regressed on, at most.
COMPONENTS = 80


@dataclass(frozen=True, eq=False)
class Measured:
    """y_i = scale_i·d_i + N(0, sd²): one noised answer about the counts d; y and scale are (m,).

    `scale` is public or computed from noised values; 0 where an item was not measured.
    """

    y: np.ndarray
    scale: np.ndarray
    sd: float


def posterior_counts(measured: Sequence[Measured], features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Posterior means of d and of log d, (m,) float64 each; log d_i ~ N(β·f_i, s²), β and s by empirical Bayes.

    The first measurement sets the range of d. Each sweep integrates every posterior on a grid of log d; β is a ridge
    regression of what the data say, weighted by how much they say, and s² the mean of (log d − β·f)². Counts are above
    0, and nothing is taken as known more finely than the grid's steps.

    Parameters
    ----------
    features : f, (m, d), public; standardised here. Without columns the prior is the same for all items
    """
    first, m = measured[0], len(measured[0].y)
    top = max(1.5 * float(first.y.max()), 10 * first.sd, 1e-9)
    log = np.linspace(np.log(top / RANGE), np.log(top), POINTS)
    grid, step = np.exp(log), log[1] - log[0]
    likelihood = np.zeros((m, POINTS))
    for one in measured:
        known = np.hypot(one.sd, np.maximum(step * np.maximum(one.y, 0), 1e-12))
        likelihood -= 0.5 * np.square((one.y[:, None] - one.scale[:, None] * grid) / known[:, None])
    F, ridge = _standard(features), np.full(features.shape[1] + 1, RIDGE)
    ridge[0] = 0.1
    prior, s = np.full(m, np.log(max(float(first.y.mean()), top / 1e4)) - 0.5), 1.5
    for _ in range(SWEEPS):
        mass = likelihood - 0.5 * np.square((log - prior[:, None]) / s)
        mass = np.exp(mass - mass.max(axis=1, keepdims=True))
        mass /= mass.sum(axis=1, keepdims=True)
        mean = mass @ log
        variance = np.maximum(mass @ log**2 - mean**2, 0.0)
        told = np.maximum(1 - variance / s**2, 1e-3)  # the part of the prior's variance that the data take away
        target = np.clip(prior + (mean - prior) / told, log[0] - 3, log[-1] + 1)
        prior = F @ np.linalg.solve((F * told[:, None]).T @ F + np.diag(ridge), F.T @ (told * target))
        s = float(np.clip(np.sqrt(np.mean(variance + np.square(mean - prior))), *DEVIATION))
    return mass @ grid, mean


def _standard(features: np.ndarray) -> np.ndarray:
    """[1, (f − mean)/deviation], (m, 1 + d) float64; 0 where all are equal."""
    f = features.astype(np.float64)
    deviation = f.std(axis=0)
    return np.hstack([np.ones((len(f), 1)), (f - f.mean(axis=0)) / np.where(deviation > 1e-9, deviation, 1.0)])
