"""Small worlds whose answers are known by construction."""

import numpy as np

from tacit.data.ratings import Feedback, Ratings
from tacit.data.vocabulary import Vocabulary
from tacit.rng import derive


def checkerboard(users: int = 80, items: int = 60, seen: float = 0.7, seed: int = 7) -> tuple[Ratings, Ratings]:
    """Ratings of 5 where user and item are of one colour and 1 where not; a part is seen, the rest is the test.

    A model of rank 2 predicts it exactly; means predict nothing.
    """
    i, j = np.divmod(np.arange(users * items), items)
    values = np.where((i + j) % 2 == 0, 5.0, 1.0)
    ratings = Ratings.from_columns(i, j, values, scale=(1, 5), name="checkerboard")
    shown = derive(seed, "checkerboard").random(ratings.n_ratings) < seen
    return ratings.keep(shown), ratings.keep(~shown)


def lonely(seed: int = 7, feedback: Feedback = Feedback.EXPLICIT) -> Ratings:
    """The edges of ordinary data: a user with one rating, one with none, an item that nobody rated, one rated once."""
    explicit = feedback is Feedback.EXPLICIT
    stream = derive(seed, "lonely")
    i, j = np.nonzero(stream.random((12, 9)) < 0.6)
    i, j = np.append(i, 12), np.append(j, 9)
    values = stream.integers(1, 6, len(i)).astype(np.float32) if explicit else np.ones(len(i), dtype=np.float32)
    return Ratings.from_columns(
        i,
        j,
        values,
        scale=(1, 5) if explicit else (0, 1),
        feedback=feedback,
        user_ids=Vocabulary(np.arange(14), "user"),
        item_ids=Vocabulary(np.arange(11), "item"),
        name="lonely",
    )
