"""What a coordinator of `dpals` makes of noised statistics: item biases and factors, by regularised least squares.

All of it is computed from noised values and public facts, so it costs nothing.
"""

import numpy as np

from tacit.boundary.least_squares import unpacked


def solved(gram: np.ndarray, moment: np.ndarray, prior: np.ndarray, spread: float, noise: float) -> np.ndarray:
    """By item, x̂ of h = A·x + e, with A the noised gram made positive semidefinite; (m, p) float64.

    x ~ N(0, diag(prior)) and Cov(e) = spread·A + noise²·I, so with x whitened by its prior, in the eigenvectors of A,
    whose eigenvalues a are cut at 0,

        x̂ = a·h/(a² + spread·a + noise²)

    Without noise that is ridge regression with λ = spread, (A + λI)⁻¹·h, as published. With noise, one λ for all
    directions would leave large errors where a is small.

    Parameters
    ----------
    gram, moment : A (m, p(p+1)/2), packed, and h (m, p)
    prior : (p,) variances
    spread : the variance of what is left of a rating, times the typical weight of one
    noise : standard deviation of the noise on a cell of h
    """
    root = np.sqrt(prior)
    h = np.asarray(moment, dtype=np.float64) * root
    sizes, axes = np.linalg.eigh(unpacked(np.asarray(gram, dtype=np.float64)) * root[:, None] * root)
    sizes = np.maximum(sizes, 0)
    doubt = spread * sizes + noise**2 * prior.mean() + 1e-12
    gain = sizes / (sizes**2 + doubt)
    found: np.ndarray = np.einsum("mfj,mj->mf", axes, gain * np.einsum("mfj,mf->mj", axes, h)) * root
    return found
