"""One epoch of SGD beside Surprise's SVD without biases: the same model and the same ratings, one at a time.

Surprise visits the ratings user by user, in double precision and without embedding clipping; Tacit visits them in
random order, which is slower and learns better, and for comparison here also user by user. Both run in one thread.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.common.result import Missing, Result
from benchmarks.common.shapes import like_ml_1m
from benchmarks.common.stopwatch import best_of
from tacit.data.ratings import Ratings
from tacit.kernels.sgd import sgd_epoch
from tacit.rng import derive

FACTORS, RATE, REGULARIZATION = 20, 0.08, 0.05
REPETITIONS = 15


def measure() -> list[Result]:
    """Milliseconds per million ratings."""
    try:
        import surprise
    except ImportError:
        raise Missing("Surprise is not installed; install it with: pip install 'tacit[bench]'") from None

    ratings, stream = like_ml_1m(), derive(7, "benchmarks", "peers")
    trainset = as_trainset(ratings)
    data = (ratings.users, ratings.items, ratings.values, ratings.scale.low)
    orders = {"in random order": stream.permutation(ratings.n_ratings), "user by user": np.arange(ratings.n_ratings)}
    sizes = (ratings.n_users, ratings.n_items)
    start = [stream.random((size, FACTORS), dtype=np.float32) * np.float32(0.6) for size in sizes]

    def ours(order: np.ndarray) -> None:
        u, v = (block.copy() for block in start)
        sgd_epoch(*data, order, u, v, RATE, REGULARIZATION, ratings.scale.span)

    def theirs() -> None:
        surprise.SVD(n_factors=FACTORS, n_epochs=1, biased=False, random_state=7).fit(trainset)

    contestants = {words: partial(ours, order) for words, order in orders.items()} | {"theirs": theirs}
    seconds = best_of(contestants, REPETITIONS)
    milliseconds = {name: 1e9 * time / ratings.n_ratings for name, time in seconds.items()}
    peer = f"Surprise {surprise.__version__}, SVD(biased=False)"
    return [
        Result(f"one epoch per million ratings, {words}", milliseconds[words], "ms", peer, milliseconds["theirs"])
        for words in orders
    ]


def as_trainset(ratings: Ratings) -> Any:
    """The same ratings as Surprise keeps them: lists of (place, rating) by user and by item."""
    from surprise import Trainset

    by_user: dict[int, list[tuple[int, float]]] = {user: [] for user in range(ratings.n_users)}
    by_item: dict[int, list[tuple[int, float]]] = {item: [] for item in range(ratings.n_items)}
    columns = (ratings.users, ratings.items, ratings.values)
    for user, item, value in zip(*(column.tolist() for column in columns), strict=True):
        by_user[user].append((item, value))
        by_item[item].append((user, value))
    scale = (ratings.scale.low, ratings.scale.high)
    users, items = ({i: i for i in range(n)} for n in (ratings.n_users, ratings.n_items))
    return Trainset(by_user, by_item, ratings.n_users, ratings.n_items, ratings.n_ratings, scale, users, items)
