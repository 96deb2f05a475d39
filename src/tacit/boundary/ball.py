"""Least squares in a ball, solved exactly: for many small problems at once.

    min ½·vᵀHv − g·v   over ‖v‖ ≤ ρ,   H ⪰ λI with λ > 0

In the eigenvectors of H the minimiser is g̃/(h + ν) with the one ν ≥ 0 that fits: 0 where that lies in the ball, and
else the root of the secular equation ‖g̃/(h + ν)‖ = ρ. 1/‖g̃/(h + ν)‖ grows with ν and is concave (Moré and Sorensen
1983), so that Newton's steps on it, from a ν that is too small, rise to the root and never pass it.
"""

from __future__ import annotations

import numpy as np

from tacit.boundary.wire import Array

#: The most steps of Newton's, and the relative width of ν at which they end; five or six are usual.
STEPS, STILL = 100, 1e-15


def least_in_ball(curvature: Array, slope: Array, radius: float) -> Array:
    """The minimisers; curvature (m, p, p) is H, symmetric, slope (m, p) is g; (m, p) float64.

    Their residual: the projected gradient v − Π(v − (Hv − g)/‖H‖), Π onto the ball, has norm at most 1e-12·ρ.
    """
    h, axes = np.linalg.eigh(curvature)
    g = np.einsum("mji,mj->mi", axes, slope)
    sizes = np.linalg.norm(g, axis=1)
    outside = np.linalg.norm(g / h, axis=1) > radius
    multiplier = np.where(outside, np.maximum(0.0, sizes / radius - h[:, -1]), 0.0)
    active = np.flatnonzero(outside)
    for _ in range(STEPS):
        if not len(active):
            break
        shifted = h[active] + multiplier[active, None]
        v = g[active] / shifted
        squares = np.einsum("mi,mi->m", v, v)
        norms = np.sqrt(squares)
        step = squares / np.einsum("mi,mi,mi->m", v, v, 1 / shifted) * (norms - radius) / radius
        multiplier[active] += np.maximum(step, 0.0)
        active = active[step > STILL * shifted[:, -1]]
    v = g / (h + multiplier[:, None])
    v *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(v, axis=1), np.finfo(float).tiny))[:, None]
    found: Array = np.einsum("mij,mj->mi", axes, v)
    return found
