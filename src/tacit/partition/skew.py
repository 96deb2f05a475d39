"""How much the parties differ in size and in taste, for simulations."""

from __future__ import annotations

import numpy as np

from tacit.data.ratings import Feedback, Ratings
from tacit.rng import id_keys


def sizes(n: int, into: int, skew: float) -> np.ndarray:
    """`into` sizes ≥ 1 that sum to n, the largest first. Shape (into,), int64.

    Party j is about 2^(−skew·j) times as large as the first: equal for 0, each half of the one before for 1.

    >>> sizes(103, 4, 0.0).tolist(), sizes(103, 4, 1.0).tolist()
    ([26, 26, 26, 25], [54, 27, 14, 8])
    """
    weight = 2.0 ** (-skew * np.arange(into))
    share = (n - into) * weight / weight.sum()
    whole = np.floor(share).astype(np.int64)
    whole[np.argsort(whole - share, kind="stable")[: n - into - whole.sum()]] += 1
    return np.sort(1 + whole)[::-1]


def assignment_order(ratings: Ratings, by: str, skew: float, seed: int) -> np.ndarray:
    """Users (by="user") or items in the order in which they are assigned. Shape (n,) or (m,), int64.

    Each one's place is skew · its rank in taste + (1 − skew) · a random number of (seed, id).
    """
    ids = ratings.user_ids.ids if by == "user" else ratings.item_ids.ids
    keys = id_keys(seed, f"partition {by}", ids)
    if not skew:
        return np.argsort(keys, kind="stable")
    rank = np.empty(len(ids))
    rank[np.lexsort((keys, taste(ratings, seed)[by != "user"]))] = np.arange(len(ids))
    return np.lexsort((keys, skew * rank / len(ids) + (1 - skew) * (keys / 2.0**64)))


def taste(ratings: Ratings, seed: int, sweeps: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """A score of every user's and every item's taste, (n,) and (m,) float64: the first principal direction.

    A = D^−½ E C^−½ with the users' and items' weights D and C on both sides, by power iteration. For explicit
    ratings E holds the residuals of item and user means, for other feedback the logarithms of counts; √C, the
    direction of popularity, is left out. Users and items without ratings get 0.
    """
    from scipy.sparse import csr_array

    r, u = ratings, ratings.users
    e = r.values.astype(np.float64)
    if r.feedback is Feedback.EXPLICIT:
        e -= _mean(e, r.items, r.n_items)[r.items]
        e -= _mean(e, u, r.n_users)[u]
        weight = np.ones(len(e))
    else:
        weight = e = np.log1p(e)  # ten times is more than once, but not ten times as much
    d, c = np.bincount(u, weight, r.n_users), np.bincount(r.items, weight, r.n_items)
    root_d, root_c = np.sqrt(np.maximum(d, 1e-12)), np.sqrt(np.maximum(c, 1e-12))
    e /= root_d[u]
    e /= root_c[r.items]
    A = csr_array((e, r.items, r.indptr), shape=(r.n_users, r.n_items))
    common = root_c / np.linalg.norm(root_c)
    q = id_keys(seed, "taste", r.item_ids.ids) / 2.0**64 - 0.5
    for _ in range(sweeps):
        q -= common * (common @ q)
        q = np.asarray(A.T @ (A @ q))
        q /= max(float(np.linalg.norm(q)), 1e-300)
    return (A @ q) / root_d * (d > 0), q / root_c * (c > 0)


def _mean(values: np.ndarray, rows: np.ndarray, n: int) -> np.ndarray:
    return np.bincount(rows, values, n) / np.maximum(np.bincount(rows, minlength=n), 1)
