"""A sweep of Bayesian ALS beside implicit's ALS, and its kernels beside their NumPy twins.

A sweep updates all users and then all items, at the size of MovieLens 1M. implicit's solves by three steps of conjugate
gradients and finds means only; Tacit's solves exactly and finds covariances too, at the same number of columns. Both
use all cores.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.shapes import like_ml_1m
from benchmarks.common.stopwatch import best_of
from tacit.data.ratings import Ratings
from tacit.kernels.posteriors import moment_sums, moment_sums_numpy, posteriors, posteriors_numpy
from tacit.methods.als.statistics import ByItem, from_middle
from tacit.rng import derive

#: Columns of x and y with their two biases, and what the ratio to implicit's sweep may be.
COLUMNS = {20: 0.5, 32: 3.0}
REPETITIONS = 5


def measure() -> list[Result]:
    """Seconds per sweep."""
    ratings, found = like_ml_1m(), []
    peers = implicit_sweeps(ratings)
    for columns, target in COLUMNS.items():
        ours = Sweep(ratings, columns)
        contestants: dict[str, Any] = {"ours": ours}
        if peers is not None:
            contestants["theirs"] = peers(columns)
        seconds = best_of(contestants, REPETITIONS)
        what = f"one sweep over a million ratings, {columns} columns"
        if "theirs" in seconds:
            found.append(Result(what, seconds["ours"], "s", "implicit, ALS", seconds["theirs"], most_ratio=target))
        else:
            print(f"als: implicit is not installed, so {what} took {seconds['ours']:.3f} s beside nothing")
    few = ratings.select_users(np.arange(200))
    small = Sweep(few, 32)
    seconds = best_of({"ours": small, "twin": partial(small, moment_sums_numpy, posteriors_numpy)}, 3)
    found.append(Result("one sweep of 200 users, 32 columns", seconds["ours"], "s", "NumPy twins", seconds["twin"]))
    return found


class Sweep:
    """Users' posteriors given random items, then items' given these users."""

    def __init__(self, ratings: Ratings, columns: int) -> None:
        stream = derive(7, "benchmarks", "als")
        self.ratings, self.by_item, self.v = ratings, ByItem.of(ratings), from_middle(ratings.values, ratings.scale)
        self.v = self.v.astype(np.float32)
        self.items = stream.standard_normal((ratings.n_items, columns), dtype=np.float32) * np.float32(0.3)
        self.items[:, 0] = 1
        a, b = np.triu_indices(columns)
        self.moments, self.precision = self.items[:, a] * self.items[:, b], np.eye(columns - 1)

    def __call__(self, sums: Any = moment_sums, solve: Any = posteriors) -> None:
        r, by_item, k = self.ratings, self.by_item, len(self.precision)
        found = sums(r.indptr, r.items, self.v, self.moments, self.items)
        x, xx = solve(*found, np.ones(r.n_users), 1, np.zeros((r.n_users, k)), self.precision)
        found = sums(by_item.indptr, by_item.users, self.v[by_item.entries], xx, x)
        solve(*found, np.ones(r.n_items), 0, np.zeros((r.n_items, k)), self.precision)


def implicit_sweeps(ratings: Ratings) -> Any:
    """By number of factors, one iteration of implicit's ALS over the same entries; None where it is not installed."""
    try:
        from implicit.als import AlternatingLeastSquares
    except ImportError:
        return None
    from scipy.sparse import csr_matrix

    shape = (ratings.n_users, ratings.n_items)
    matrix = csr_matrix((ratings.values, ratings.items, ratings.indptr), shape=shape)

    def sweeps(factors: int) -> Any:
        model = AlternatingLeastSquares(factors=factors, iterations=1, use_gpu=False, random_state=7)
        return partial(model.fit, matrix, show_progress=False)

    return sweeps
