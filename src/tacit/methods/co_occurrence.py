"""What can be learned from noised counts of items and of pairs, which costs nothing: pure functions of released values.

Each user sends x·xᵀ/c (`boundary.co_occurrence.PairShares`), so the sum's noise on a symmetric K × K matrix has the
standard deviation σ on the diagonal and σ/√2 beside it. Its eigenvalues end at σ·√(2K), the edge; what stands above it
is signal, pushed up by the noise from w to w + edge²/(4w): the shrunken eigenvalue undoes that.
"""

import math

import numpy as np

from tacit.boundary.least_squares import unpacked
from tacit.guarantee import Unit
from tacit.methods.context import Context

#: The most items whose pairs are released, and how many of them signal must outweigh noise for, per n·μ.
MOST, PER_USER = 500, 0.35
#: With fewer items, or with more of all ratings given, pairs say nothing that counts do not.
FEWEST, DENSEST = 50, 0.2
#: How far an eigenvalue of 10 users' worth counts.
DAMPING = 10.0


def head_size(context: Context, share: float) -> int:
    """K, of how many items pairs are worth their part of the budget; 0: of none. From public quantities alone."""
    facts = context.facts
    mu = context.sum_mu / (2 if context.unit is Unit.RATING else 1)
    size = int(min(facts.items, MOST, PER_USER * facts.users * mu * math.sqrt(share)))
    dense = facts.ratings > DENSEST * facts.users * facts.items
    return 0 if size < FEWEST or dense else size


def head_of(counts: np.ndarray, size: int) -> np.ndarray:
    """The items of the largest counts, equals in the order of the catalogue; (size,) int64, increasing."""
    return np.sort(np.argsort(-counts, kind="stable")[:size])


def shrunken_factors(pairs: np.ndarray, noise: float) -> np.ndarray:
    """F with F·Fᵀ = U·diag(w'/(w' + edge + 10))·Uᵀ over the eigenpairs above the noise's edge; (K, r) float64.

        edge = σ·√(2K),   w' = (w + √(w² − edge²))/2

    `pairs` (K(K+1)/2,) is the noised upper triangle, cells beside the diagonal times √2; `noise` is σ. Fewer than two
    pairs say nothing: then r = 0.
    """
    matrix = unpacked(np.asarray(pairs, dtype=np.float64)[None])[0]
    edge = noise * math.sqrt(2 * len(matrix))
    w, U = np.linalg.eigh(matrix)
    kept = w > max(edge, 1e-9)
    if np.count_nonzero(kept) < 2:
        return np.zeros((len(matrix), 0))
    w = (w[kept] + np.sqrt(w[kept] ** 2 - edge**2)) / 2
    factors: np.ndarray = U[:, kept] * np.sqrt(w / (w + edge + DAMPING))
    return factors[:, ::-1]
