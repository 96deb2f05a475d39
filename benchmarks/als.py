"""Sweeps of ALS beside implicit's, and their kernels beside their NumPy twins.

A sweep updates all users and then all items, at the size of MovieLens 1M. A plain sweep solves the same least squares
as implicit's, exactly, where implicit does three steps of conjugate gradients; a Bayesian one also finds covariances,
at the same number of columns. All use all cores, and BLAS one thread in each, as in a run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.common.result import Result
from benchmarks.common.shapes import like_ml_1m
from benchmarks.common.stopwatch import best_of
from tacit.data.ratings import Ratings
from tacit.kernels.blas import one_blas_thread
from tacit.kernels.posteriors import moment_sums, moment_sums_numpy, posteriors, posteriors_numpy
from tacit.methods.als.implicit import REACH, TakenSums, form, solved
from tacit.methods.als.parameters import EitherParameters
from tacit.methods.als.statistics import ByItem, from_middle
from tacit.rng import derive

#: Factors of a plain sweep, columns of a Bayesian one with its two biases, and what their ratios to implicit's may be.
PLAIN, PLAIN_RATIO = 20, 0.5
COLUMNS, RATIO = 32, 3.0
REPETITIONS = 15


def measure() -> list[Result]:
    """Seconds per sweep."""
    ratings = like_ml_1m()
    peers = implicit_sweeps(ratings)
    plain, bayesian = Plain(ratings, PLAIN), Sweep(ratings, COLUMNS)
    with one_blas_thread():
        found = beside(f"one plain sweep over a million ratings, {PLAIN} factors", plain, peers, PLAIN_RATIO)
        found += beside(f"one Bayesian sweep over them, {COLUMNS} columns", bayesian, peers, RATIO)
    few = ratings.select_users(np.arange(200))
    small = Sweep(few, COLUMNS)
    seconds = best_of({"ours": small, "twin": partial(small, moment_sums_numpy, posteriors_numpy)}, 3)
    found.append(Result("one sweep of 200 users, 32 columns", seconds["ours"], "s", "NumPy twins", seconds["twin"]))
    return found


def beside(what: str, ours: Any, peers: Any, most: float) -> list[Result]:
    """Ours and implicit's by turns, the best of many; nothing where implicit is not installed."""
    contestants: dict[str, Any] = {"ours": ours}
    if peers is not None:
        contestants["theirs"] = peers(ours.columns)
    seconds = best_of(contestants, REPETITIONS)
    if "theirs" not in seconds:
        print(f"als: implicit is not installed, so {what} took {seconds['ours']:.3f} s beside nothing")
        return []
    return [Result(what, seconds["ours"], "s", "implicit, ALS", seconds["theirs"], most_ratio=most)]


class Plain:
    """Users' factors given random items', then items' given these users': every pair counts, as in implicit's."""

    def __init__(self, ratings: Ratings, columns: int) -> None:
        stream, self.columns = derive(7, "benchmarks", "plain"), columns
        self.ratings, self.by_item = ratings, ByItem.of(ratings)
        self.items = 0.1 * stream.standard_normal((ratings.n_items, columns), dtype=np.float32)
        self.parameters = EitherParameters(factors=columns)

    def __call__(self) -> None:
        r, query = self.ratings, TakenSums(REACH)
        users = form(self.parameters, self.items).fold_in(r.indptr, r.items, r.values)
        sums = query.over(self.by_item, users).exact({}, derive(7, "unused"))
        solved(sums["gram"], sums["moment"], sums["whole"], self.parameters)


class Sweep:
    """Users' posteriors given random items, then items' given these users."""

    def __init__(self, ratings: Ratings, columns: int) -> None:
        stream, self.columns = derive(7, "benchmarks", "als"), columns
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
