"""`ease` where one holder has all ratings that it learns from: the same closed form, and no messages."""

import numpy as np

from tacit.data.ratings import Ratings
from tacit.kernels.pairs import add_pairs
from tacit.methods.co_occurrence import head_of
from tacit.methods.ease import SILO_HEAD, EaseParameters, between_items, inverse, ridge, weighted
from tacit.model import ItemItem


def between_items_of(ratings: Ratings, parameters: EaseParameters) -> ItemItem:
    """The weights between the most popular items; by default at most 4,000, and none that nobody rated.

    With X ∈ {0, 1}^(n × K), fewer users than items, and D = λI + δ·diag(G), the inverse has n rows to work on:

        P = (XᵀX + D)⁻¹ = D⁻¹ − D⁻¹Xᵀ(I + X·D⁻¹·Xᵀ)⁻¹X·D⁻¹
    """
    counts = ratings.item_counts.astype(np.float32)
    size = min(SILO_HEAD, int((counts > 0).sum())) if parameters.head is None else min(parameters.head, len(counts))
    head = head_of(counts, size)
    inside = np.zeros(len(counts), dtype=bool)
    inside[head] = True
    kept = inside[ratings.items]
    indptr = np.concatenate([[0], np.cumsum(kept)])[ratings.indptr]
    places = (np.cumsum(inside) - 1)[ratings.items[kept]]
    n = ratings.n_users
    if n >= size:
        pairs = add_pairs(indptr, places, np.ones(n), np.ones(n), size)
        return weighted(counts, inverse(pairs, parameters.model_copy(update={"head": size})), size)
    return between_items(counts, dual_inverse(indptr, places, counts[head].astype(np.float64), parameters))


def dual_inverse(indptr: np.ndarray, places: np.ndarray, counts: np.ndarray, parameters: EaseParameters) -> np.ndarray:
    """P from compressed rows of X, by the n × n system; (K, K) float64."""
    from scipy.linalg import solve_triangular

    D = ridge(counts, parameters)
    X = np.zeros((len(indptr) - 1, len(D)))
    X[np.repeat(np.arange(len(X)), np.diff(indptr)), places] = 1
    root = np.linalg.cholesky(np.eye(len(X)) + (X / D) @ X.T)
    Z = solve_triangular(root, X / D, lower=True, overwrite_b=True)
    P = -(Z.T @ Z)
    P[np.diag_indices(len(D))] += 1 / D
    return P
