"""`als` where one holder has all ratings that it learns from: the same sweeps, and no messages."""

from collections.abc import Iterator

import numpy as np

from tacit.data.ratings import Ratings
from tacit.methods.als.learner import Learner
from tacit.methods.als.statistics import ByItem, UserStatistics
from tacit.model.bayesian import Bayesian


def sweeps(ratings: Ratings, features: np.ndarray, factors: int, count: int, stream: np.random.Generator) -> Iterator[Bayesian]:
    """The model after each of `count` sweeps over all ratings; `features` are the items' public ones, (m, d)."""
    scale, by_item = ratings.scale, ByItem.of(ratings)
    v = (np.clip(ratings.values, scale.low, scale.high) - (scale.low + scale.high) / 2) / (scale.span / 4)
    sums = np.bincount(ratings.items, weights=v, minlength=ratings.n_items)
    learner = Learner.start(scale, ratings.n_users, ratings.item_counts, sums, factors, features, stream)
    noise = np.full(ratings.n_users, learner.form.noise)
    for _ in range(count):
        statistics = UserStatistics.at(learner.form, ratings, by_item, noise)
        noise = statistics.found.noise
        learner = learner.updated(statistics.totals(None))
        yield learner.form
