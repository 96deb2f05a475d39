"""`ease` in MovieLens 1M's shape: pairs of items counted and the closed form solved, beside NumPy.

NumPy multiplies the dense 0/1 matrix of users and items with itself and inverts in single precision, all cores in use.
Tacit counts pairs user by user, in integers, as a silo does for its gate, and inverts in double precision by Cholesky.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.shapes import like_ml_1m
from benchmarks.common.stopwatch import best_of
from tacit.boundary.co_occurrence import PairCounts
from tacit.data.ratings import Ratings
from tacit.methods.co_occurrence import head_of
from tacit.methods.ease import EaseParameters, inverse
from tacit.rng import derive

HEADS, REPETITIONS = (1_000, 3_706), 2


def measure() -> list[Result]:
    """Seconds from ratings to P, for a device's head and for the whole catalogue."""
    ratings, found = like_ml_1m(), []
    for size in HEADS:
        head = head_of(np.bincount(ratings.items, minlength=ratings.n_items).astype(np.float32), size)
        seconds = best_of(
            {"ours": lambda h=head: closed_form(ratings, h), "numpy": lambda h=head: dense(ratings, h)}, REPETITIONS
        )
        what = f"pairs of {size:,} items over a million ratings, and their inverse"
        found.append(Result(what, seconds["ours"], "s", "NumPy, dense", seconds["numpy"]))
    return found


def closed_form(ratings: Ratings, head: np.ndarray) -> np.ndarray:
    """As a silo and the coordinator do, without the messages between them."""
    pairs = PairCounts().over(ratings, head).exact({}, derive(7, "benchmarks", "ease"))["pairs"]
    return inverse(pairs, EaseParameters(head=len(head)))


def dense(ratings: Ratings, head: np.ndarray) -> np.ndarray:
    """The same by definition."""
    x = np.zeros((ratings.n_users, ratings.n_items), dtype=np.float32)
    x[ratings.users, ratings.items] = 1
    x = x[:, head]
    G = x.T @ x
    counts = G.diagonal().copy()
    G[np.diag_indices(len(G))] += 20 * np.sqrt(counts.mean()) + 0.5 * counts
    return np.linalg.inv(G)
