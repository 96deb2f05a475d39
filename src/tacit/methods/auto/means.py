"""Item means from noised measurements alone, and how to weigh items in the next one. Costs nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.methods.auto.features import standardised

#: What the marginal likelihood chooses from: prior variances, how they follow popularity, and ridges.
VARIANCES = (0.02, 0.04, 0.07, 0.1, 0.15, 0.2, 0.3)
TILTS = (-0.6, -0.3, 0.0, 0.3, 0.6)
RIDGES = (30.0, 100.0, 300.0, 1000.0, 3000.0)


@dataclass(frozen=True, eq=False)
class Means:
    """Posterior means and variances of item means, (m,) each."""

    mean: np.ndarray
    variance: np.ndarray


def item_means(y: np.ndarray, v: np.ndarray, features: np.ndarray, popularity: np.ndarray, tilted: bool) -> Means:
    """y_i = b_i + N(0, v_i) with b_i ~ N(F_i·β, τ_i), τ_i = τ·exp(γ·z(log d_i)), by marginal likelihood.

    F has public features, z(log d) and its square. τ, γ and the ridge of β are those that make y most likely; γ = 0
    unless `tilted`.
    """
    z = standardised(popularity)
    F = np.hstack([np.ones((len(y), 1)), standardised(np.column_stack([features, z, z**2]))])
    best, chosen = -np.inf, None
    for tau in VARIANCES:
        for tilt in TILTS if tilted else (0.0,):
            each = tau * np.exp(tilt * z)
            w = 1 / (v + each)
            weighted = F * w[:, None]
            A0, b = weighted.T @ F, weighted.T @ y
            rest = 0.5 * np.log(w).sum() - 0.5 * float(w @ y**2)
            for strength in RIDGES:
                ridge = np.full(F.shape[1], strength)
                ridge[0] = 0.1
                A = A0 + np.diag(ridge)
                beta = np.linalg.solve(A, b)
                fit = rest + 0.5 * (np.log(ridge).sum() - np.linalg.slogdet(A)[1] + float(b @ beta))
                if fit > best:
                    best, chosen = fit, (each, beta)
    assert chosen is not None
    each, beta = chosen
    prior = F @ beta
    return Means(prior + (y - prior) * each / (each + v), each * v / (each + v))


def water_filling(counts: np.ndarray, variance: np.ndarray, noise: float, spread: float, users: int) -> np.ndarray:
    """Weights a_i of items in a normalised sum that lessen Σ_i counts_i·variance_i most; (m,), 0 where it is useless.

    a_i² = (c·N_i − 1/variance_i)₊·(noise/N_i)², with c so that Σ_i N_i/n·a_i²·spread = 1, a contribution's size.
    """
    N, p, low, high = np.maximum(counts, 1e-9), np.maximum(variance, 1e-12), -60.0, 60.0
    noise = max(noise, 1e-6)
    for _ in range(100):
        middle = (low + high) / 2
        squares = np.maximum(np.exp(middle) * N - 1 / p, 0) * np.square(noise / N)
        low, high = (low, middle) if (N * squares).sum() / users * spread > 1 else (middle, high)
    squares = np.maximum(np.exp(high) * N - 1 / p, 0) * np.square(noise / N)
    return np.sqrt(squares)
