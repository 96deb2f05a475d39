"""Item factors beyond what public features say, from noised slopes alone."""

from __future__ import annotations

import numpy as np

from tacit.methods.auto.features import standardised

#: What the marginal likelihood chooses from, for each direction: prior variances, and how they follow popularity.
VARIANCES = (0.0, 0.0002, 0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.03, 0.06)
TILTS = (-0.6, 0.0, 0.6)


def strongest(factors: np.ndarray, popularity: np.ndarray, count: int) -> np.ndarray:
    """The directions of taste along which ratings vary most, (k, q) orthonormal."""
    weighted = (factors * popularity[:, None]).T @ factors
    return np.ascontiguousarray(np.linalg.eigh(weighted)[1][:, ::-1][:, :count])


def corrected(slopes: np.ndarray, curvature: np.ndarray, noise: np.ndarray, popularity: np.ndarray) -> np.ndarray:
    """What to add to item factors, (m, q): slopes over curvature, shrunk direction by direction.

    y_ij = slope_ij/curvature_ij = c_ij + N(0, v_ij), c_ij ~ N(0, τ_j·exp(γ_j·z(log d_i))), with τ_j and γ_j those that
    make direction j most likely. Items of curvature 0 stay as they are.

    Parameters
    ----------
    slopes, curvature, noise : (m, q); noise is the variance of each slope
    popularity : (m,), log d
    """
    z, found = standardised(popularity), np.zeros_like(slopes)
    for j in range(slopes.shape[1]):
        known = curvature[:, j] > 0
        if not known.any():
            continue
        y = slopes[known, j] / curvature[known, j]
        v = noise[known, j] / np.square(curvature[known, j])
        best, gain = -np.inf, np.zeros(len(y))
        for tau in VARIANCES:
            for tilt in TILTS if tau else (0.0,):
                each = tau * np.exp(tilt * z[known])
                fit = -0.5 * (np.log(each + v) + y**2 / (each + v)).sum()
                if fit > best:
                    best, gain = fit, each / (each + v)
        found[known, j] = gain * y
    return found
