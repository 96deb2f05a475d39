"""Item biases from noised sums alone, by empirical Bayes. Everything here is post-processing: it costs nothing."""

from __future__ import annotations

import numpy as np


def item_biases(A: np.ndarray, S: np.ndarray, sigma: float, weight_sigma: float, spread: float = 0.02) -> np.ndarray:
    """b_j from A_j = S_j·b_j + noise and a noised S_j; (m,) float64.

    Parameters
    ----------
    A : (m,) noised sums of weighted deviations, from each user's own mean or from the middle of the scale
    S : (m,) noised sums of weights
    sigma, weight_sigma : standard deviations of the noise on A and on S; 0 where there is none
    spread : how much a single weighted deviation varies, per unit of weight
    """
    mean = A.sum() / max(S.sum(), 1e-9)
    if weight_sigma < 0.02 * float(np.maximum(S, 0).mean()):  # the weights are as good as known
        weights, masses = np.maximum(S, 0)[:, None], np.ones((len(S), 1))
    else:
        grid, masses = _weight_posterior(S, weight_sigma)
        weights = grid[None, :]
    best, chosen = np.inf, mean + np.zeros_like(A)
    for tau2 in np.exp(np.linspace(-6, 1, 29)):
        variance = weights**2 * tau2 + spread * weights + sigma**2 + 1e-12
        residual = A[:, None] - weights * mean
        log_likelihood = -0.5 * (np.log(variance) + residual**2 / variance)
        highest = log_likelihood.max(axis=1, keepdims=True)
        joint = masses * np.exp(log_likelihood - highest)
        evidence = np.log(joint.sum(axis=1)) + highest[:, 0]
        if -evidence.sum() < best:
            best = -evidence.sum()
            gain = tau2 * weights / variance
            chosen = mean + (joint * gain * residual).sum(axis=1) / joint.sum(axis=1)
    return chosen


def _weight_posterior(
    S: np.ndarray, sigma: float, points: int = 120, sweeps: int = 60
) -> tuple[np.ndarray, np.ndarray]:
    """A grid of true weights, and for each item its posterior over the grid, by non-parametric empirical Bayes.

    The prior over the grid is the one that makes the noised weights most likely (EM); (g,) and (m, g).
    """
    top = max(float(S.max()), sigma, 1e-6)
    grid = np.concatenate(([0.0], np.geomspace(top / 2000, top * 1.05, points - 1)))
    likelihood = np.exp(-0.5 * np.square((S[:, None] - grid[None, :]) / sigma))
    likelihood = np.maximum(likelihood, 1e-300)
    prior = np.full(points, 1 / points)
    for _ in range(sweeps):
        posterior = likelihood * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0)
    posterior = likelihood * prior
    return grid, posterior / posterior.sum(axis=1, keepdims=True)
