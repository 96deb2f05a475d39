"""Small worlds for the tests of evaluation: dense matrices in, ratings and predictors out."""

import numpy as np

from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.vocabulary import Vocabulary


class Table:
    """A predictor that reads its predictions off a dense matrix (n, m)."""

    def __init__(self, table: np.ndarray, rates: bool = True) -> None:
        self.table, self.rates = np.asarray(table), rates

    def predict(self, users: np.ndarray, items: np.ndarray) -> np.ndarray:
        return self.table[users, items]

    def scores(self, users: np.ndarray) -> np.ndarray:
        return self.table[users]


def ratings_of(
    dense: np.ndarray, *, scale: tuple[float, float] = (1, 5), feedback: Feedback = Feedback.EXPLICIT
) -> Ratings:
    """The cells of (n, m) that are not NaN. Users are "u00" …, items "i00" …"""
    dense = np.asarray(dense, dtype=np.float64)
    n, m = dense.shape
    rows, columns = np.nonzero(~np.isnan(dense))
    users = np.array([f"u{u:05d}" for u in range(n)], dtype=object)
    items = np.array([f"i{i:05d}" for i in range(m)], dtype=object)
    return Ratings.from_columns(
        users[rows],
        items[columns],
        dense[rows, columns],
        scale=Scale(*scale),
        user_ids=Vocabulary(users, "user"),
        item_ids=Vocabulary(items, "item"),
        feedback=feedback,
    )


def random_world(
    stream: np.random.Generator, n: int, m: int, seen: float, test: float
) -> tuple[np.ndarray, np.ndarray]:
    """Dense seen and test ratings on 1…5, disjoint; every user has a test rating."""
    state = stream.random((n, m))
    state[np.arange(n), stream.integers(0, m, n)] = seen  # in the test part
    values = stream.integers(1, 6, (n, m)).astype(np.float64)
    return np.where(state < seen, values, np.nan), np.where((state >= seen) & (state < seen + test), values, np.nan)
