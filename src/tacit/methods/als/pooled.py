"""`als` where one holder has all ratings that it learns from: the same sweeps, and no messages."""

from collections.abc import Iterator

import numpy as np

from tacit.data.ratings import Ratings
from tacit.methods.als.learner import Learner
from tacit.methods.als.parameters import ALSParameters, rank
from tacit.methods.als.statistics import ByItem, UserStatistics, from_middle
from tacit.model.bayesian import Bayesian


def sweeps(
    ratings: Ratings, features: np.ndarray, parameters: ALSParameters, stream: np.random.Generator
) -> Iterator[tuple[Bayesian, np.ndarray]]:
    """The model and the users' states after each sweep over all ratings; at the end users are folded into the model.

    `features` are the items' public ones, (m, d).
    """
    by_item, n, m = ByItem.of(ratings), ratings.n_users, ratings.n_items
    sums = np.bincount(ratings.items, weights=from_middle(ratings.values, ratings.scale), minlength=m)
    factors, count = parameters.factors or rank(ratings.n_ratings, n, m), parameters.sweeps
    learner = Learner.start(ratings.scale, n, ratings.item_counts, sums, factors, features, stream)
    noise = np.full(n, learner.form.noise)
    if not count:
        yield learner.form, learner.form.fold_in(*rows(ratings))
    for t in range(count):
        statistics = UserStatistics.at(learner.form, ratings, by_item, noise)
        noise = statistics.found.noise
        learner = learner.updated(statistics.totals(None))
        last = t == count - 1
        states = learner.form.fold_in(*rows(ratings)) if last else statistics.found.states
        yield learner.form, states


def rows(ratings: Ratings) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ratings as a form's `fold_in` takes them."""
    return ratings.indptr, ratings.items, ratings.values
