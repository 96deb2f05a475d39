"""Priors by empirical Bayes: factors regressed on features, from sums of products alone.

With h = (f, z), where f are a row's features and z its factors, all that is needed of many rows is J = Σ E[h·hᵀ]:

    B = (J_ff + ridge)⁻¹·J_fz,   Σ = (J_zz − J_zf·B − Bᵀ·J_fz + Bᵀ·J_ff·B)/n

Rows of z that are uncertain count with their posterior covariance, since J_zz is a sum of E[z·zᵀ].
"""

import math
from dataclasses import dataclass

import numpy as np

#: How strongly coefficients are shrunk: as if so many rows had none, every feature at one standard deviation.
RIDGE = 10.0
#: The smallest variance of a prior, in any direction.
LEAST = 1e-4


@dataclass(frozen=True, eq=False)
class Prior:
    """z ~ N(Bᵀf, Σ): `coefficients` (F, K) and `covariance` (K, K), float64."""

    coefficients: np.ndarray
    covariance: np.ndarray

    @classmethod
    def unknown(cls, features: int, factors: int, variance: float) -> "Prior":
        """Before anything is known: mean 0, and the same variance for every factor."""
        return cls(np.zeros((features, factors)), variance * np.eye(factors))

    @property
    def precision(self) -> np.ndarray:
        return np.linalg.inv(self.covariance)

    @classmethod
    def fitted(cls, J: np.ndarray, features: int, n: float, noise: float = 0.0) -> "Prior":
        """From J = Σ E[h·hᵀ] over n rows; the first of the features is 1. Ridge acts on features as if standardised.

        `noise` is the standard deviation of the noise on a cell of J; what it could have made is not believed.
        """
        ff, fz, zz = J[:features, :features], J[:features, features:], J[features:, features:]
        variance = np.diag(ff) / n - np.square(ff[0] / n)
        ridge = RIDGE * np.where(variance > 1e-9, variance, 1.0)
        ridge[0] = 1e-6 * n
        if noise:
            ff, ridge = positive(ff, 0.0), ridge + 2 * math.sqrt(features) * noise
        B = np.linalg.solve(ff + np.diag(ridge), fz)
        S = (zz - fz.T @ B - B.T @ fz + B.T @ ff @ B) / n
        return cls(B, positive(S, LEAST + math.sqrt(len(S)) * noise / n))

    def means(self, features: np.ndarray) -> np.ndarray:
        """Bᵀf of every row."""
        return features @ self.coefficients


def positive(S: np.ndarray, least: float) -> np.ndarray:
    """The nearest symmetric matrix whose eigenvalues are at least `least`."""
    sizes, axes = np.linalg.eigh((S + S.T) / 2)
    nearest: np.ndarray = (axes * np.maximum(sizes, least)) @ axes.T
    return nearest


def products(f: np.ndarray, z: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Σ w·h·hᵀ over rows h = (f, z), without what is uncertain about z; float64."""
    h = np.concatenate([f, z], axis=1, dtype=np.float64)
    joint: np.ndarray = h.T @ (h if weights is None else h * weights[:, None])
    return joint


def item_features(counts: np.ndarray, features: np.ndarray) -> np.ndarray:
    """f_i = [1, log(1 + n_i), its square, public features], standardised but for the 1; (m, 3 + d) float64."""
    rest = np.concatenate([how_often(counts), features], axis=1, dtype=np.float64)
    return np.concatenate([np.ones((len(rest), 1)), standardised(rest, rest.mean(axis=0), rest.std(axis=0))], axis=1)


def how_often(counts: np.ndarray) -> np.ndarray:
    """log(1 + n_i) and its square, (m, 2) float64."""
    often = np.log1p(np.maximum(counts, 0).astype(np.float64))
    return np.stack([often, often**2], axis=1)


def standardised(columns: np.ndarray, mean: np.ndarray, deviation: np.ndarray) -> np.ndarray:
    """Columns in standard deviations from their means; constant ones are 0."""
    found: np.ndarray = (columns - mean) / np.where(deviation > 1e-9, deviation, 1.0)
    return found
