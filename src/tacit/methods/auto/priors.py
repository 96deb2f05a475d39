"""What is expected of tastes before ratings are seen, from noised sums alone: their spread and their mean."""

from __future__ import annotations

import numpy as np

from tacit.boundary.least_squares import unpacked

#: Tastes' variances are moved within these bounds, and by this power of what was measured: posteriors understate it.
SMALLEST, LARGEST, POWER = 0.05, 8.0, 3.0
#: How much users' mean item factors vary, over how much items' do.
BETWEEN = 0.4


def spread_map(pairs: np.ndarray, noise: float, users: int) -> np.ndarray:
    """The symmetric k × k map L by which item factors are multiplied, so that tastes are N(0, I) again.

    `pairs` is the noised sum of users' E[zzᵀ] − I, packed: 1 + its eigenvalues over n, to the power 3/2. What noise of
    that standard deviation would show by itself is taken off first.
    """
    excess = shrunk(unpacked(pairs[None].astype(np.float64))[0] / users, noise / users)
    sizes, axes = np.linalg.eigh(np.eye(len(excess)) + excess)
    return (axes * np.clip(sizes, SMALLEST, LARGEST) ** (POWER / 2)) @ axes.T


def shrunk(matrix: np.ndarray, noise: float) -> np.ndarray:
    """A symmetric matrix less its noise, of standard deviation `noise` on the diagonal and noise/√2 elsewhere.

    Diagonal and rest are each shrunk towards their mean, 0 for the rest, by the part that noise has in their variance.
    """
    diagonal = np.diag(matrix)
    middle, rest = float(diagonal.mean()), matrix - np.diag(diagonal)
    around = diagonal - middle
    kept = _gain(around, noise**2, len(around)) * around + middle
    return _gain(rest, noise**2 / 2, rest.size - len(rest)) * rest + np.diag(kept)


def _gain(x: np.ndarray, noise: float, count: int) -> float:
    """The part of the variance of so many numbers that is not noise."""
    whole = float(np.square(x).sum()) / max(count, 1)
    return max(whole - noise, 0.0) / max(whole, 1e-300)


def reliability(factors: np.ndarray, popularity: np.ndarray, ratings: float, noise: float) -> np.ndarray:
    """How much of taste is known from so many ratings of items chosen by popularity: A·(A + s²·I)⁻¹, (k, k)."""
    A = ratings * (factors * popularity[:, None]).T @ factors
    return A @ np.linalg.inv(A + noise * np.eye(len(A)))


def profile_map(factors: np.ndarray, popularity: np.ndarray, ratings: float, most: int) -> np.ndarray:
    """The map (2 + k, p) of raw profiles to numbers of about mean 0 and variance 1, the first of them a constant.

    Raw ones are [1, log(1 + n_u), mean factors]; mean factors vary among users about .4 as much as items do.
    """
    k, middle = factors.shape[1], popularity @ factors
    around = factors - middle
    sizes, axes = np.linalg.eigh((around * popularity[:, None]).T @ around)
    sizes, axes = sizes[::-1][:most], axes[:, ::-1][:, :most]
    scale = np.where(sizes > 1e-9, 1 / (BETWEEN * np.sqrt(np.maximum(sizes, 1e-9))), 0.0)
    found = np.zeros((2 + k, 2 + most))
    found[0, 0] = 1.0
    found[0, 1], found[1, 1] = -(np.log(ratings) - 0.5) / 1.1, 1 / 1.1
    found[2:, 2:] = axes * scale
    found[0, 2:] = -(middle @ axes) * scale
    return found


def mean_map(
    cross: np.ndarray, pairs: np.ndarray, known: np.ndarray, noise: float, product_weight: float, users: int
) -> np.ndarray:
    """B (p, e) with E z = Bᵀf: from noised sums of z·fᵀ and of weighted f·fᵀ.

    The moments of z are divided by how much of each direction is known. Each profile column's are shrunk by the part
    that noise has in them.

    Parameters
    ----------
    cross : (e, p) noised Σ_u z·fᵀ
    pairs : packed noised Σ_u weight·f·fᵀ
    known : (e,) the part of each taste that a typical user's ratings reveal
    noise : standard deviation of the noise on each cell
    """
    moments, each = cross.astype(np.float64) / users, (noise / users) ** 2
    size = np.square(moments).sum(axis=0)
    moments *= np.maximum(1 - len(known) * each / np.maximum(size, 1e-300), 0.0)
    second = unpacked(pairs[None].astype(np.float64))[0] / users / product_weight
    sizes, axes = np.linalg.eigh(second)
    floor = 0.05 + noise / users / product_weight
    inverse = (axes / (np.maximum(sizes, 0) + floor)) @ axes.T
    return (inverse @ moments.T) / np.maximum(known, 0.15)
