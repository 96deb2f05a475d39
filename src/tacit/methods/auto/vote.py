"""Which of two rankings finds an item that a user hides from both. At home; only a noised sum of votes leaves."""

from __future__ import annotations

import numpy as np

from tacit.data.ratings import Ratings
from tacit.model import CoOccurrence

#: A hidden item is found where fewer than so many others come before it.
LENGTH = 10
#: Which of n items, in the catalogue's order, is hidden: ⌊n·(n·GOLDEN mod 1)⌋, spread evenly over users.
GOLDEN = 0.6180339887498949
#: Scores that are held at a time.
AT_ONCE = 4_000_000


def votes(ratings: Ratings, first: CoOccurrence, second: CoOccurrence) -> np.ndarray:
    """Per user, whether `first` finds their hidden item, less whether `second` does; (n,) of −1, 0 and 1.

    A user's vote is a function of their own items and of the two rankings. Who has fewer than two items has none: with
    one hidden nothing is left to rank by.
    """
    n, indptr = ratings.counts, ratings.indptr
    voters = n >= 2
    hidden = np.minimum(indptr[:-1] + (n * (n * GOLDEN % 1)).astype(np.int64), max(len(ratings.items) - 1, 0))
    kept, found = np.ones(len(ratings.items), dtype=bool), np.zeros(len(n))
    kept[hidden[voters]] = False
    items, starts = ratings.items[kept], np.concatenate([[0], np.cumsum(kept)])[indptr]
    size = max(1, AT_ONCE // max(1, ratings.n_items))
    for ranking, sign in ((first, 1), (second, -1)):
        states = ranking.fold_in(starts, items, np.ones(len(items)))
        for some in (np.arange(at, min(at + size, len(n))) for at in range(0, len(n), size)):
            own = slice(indptr[some[0]], indptr[some[-1] + 1])
            scores = ranking.rank(states, some)
            before = scores > scores[np.arange(len(some)), ratings.items[hidden[some]]][:, None]
            before[np.repeat(some - some[0], n[some]), ratings.items[own]] = False
            found[some] += sign * (before.sum(axis=1) < LENGTH)
    return np.where(voters, found, 0.0)
