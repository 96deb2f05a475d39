"""Train, test and support parts of ratings.

Choices depend on (seed, user id, item id) alone. So a site that holds some of the users computes its part of the
whole's split on its own; with "random", "cold-users" and "cold-items" so does a site that holds some of the items.
Only "temporal" needs all ratings: its cut is one moment for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from tacit.data.ratings import Ratings
from tacit.errors import DataError, UsageError, check_type, did_you_mean, is_number
from tacit.rng import id_keys, mix

BLOCK = 1 << 20  # pairs worked on at a time
SUPPORT = 0.8  # the part of a cold user's ratings that the model may see when it meets the user


@dataclass(frozen=True, eq=False)
class Split:
    """Parts of one whole, all with its users, items and attributes; `train, test = split(…)` unpacks it.

    `support` are ratings of cold users that a model may fold in before its test; None for other splits.
    """

    train: Ratings
    test: Ratings
    support: Ratings | None
    description: str

    def __iter__(self) -> Iterator[Ratings]:
        return iter((self.train, self.test))


def split(ratings: Ratings, by: str = "random", test: float = 0.1, seed: int = 7, partial: bool = False) -> Split:
    """Hold some ratings out.

    Parameters
    ----------
    by : what is held out
        "random"         each rating with probability `test`
        "leave-one-out"  one rating, at random, of every user who has two or more
        "latest"         the latest rating of every user who has two or more
        "temporal"       the latest `test` of all ratings: everything from one moment on
        "cold-users"     all ratings of about `test` of the users; four fifths of them become `support`
        "cold-items"     all ratings of about `test` of the items
    test : fraction in (0, 1); without effect on "leave-one-out" and "latest"
    partial : whether a part may be empty, as of one device's few ratings; else that is an error

    >>> from tacit.data.synthetic import demo
    >>> train, test = split(demo(), test=0.1, seed=7)
    >>> train.n_ratings + test.n_ratings
    50000
    """
    if by not in KINDS:
        raise UsageError(f'There is no split "{by}"; there are {", ".join(KINDS)}.{did_you_mean(by, KINDS)}')
    check_type(ratings, Ratings, "split", "ratings, as tacit.load returns them")
    if not is_number(test) or not 0 < test < 1:
        raise UsageError(f"test = {test!r} is not possible; it is a fraction between 0 and 1, such as 0.1.")
    if not ratings.n_ratings:
        raise DataError(f"There are no ratings to split in {ratings.name}.")
    held, supports, sentence = KINDS[by](ratings, float(test), seed)
    tested = held if supports is None else held & ~supports
    parts = {"train": ratings.keep(~held), "test": ratings.keep(tested)}
    for name, part in parts.items():
        if not part.n_ratings and not partial:
            raise DataError(
                f'The split "{by}" leaves no rating for {name}: {ratings.name} has {ratings.n_ratings:,} of '
                f"{ratings.n_users:,} users and {ratings.n_items:,} items; try another split, test or seed."
            )
    counted = f"{sentence} ({parts['test'].n_ratings:,} of {ratings.n_ratings:,} ratings in the test)."
    return Split(parts["train"], parts["test"], None if supports is None else ratings.keep(supports), counted)


Choice = tuple[np.ndarray, np.ndarray | None, str]  # held out (nnz,) bool; of these, the support; a sentence


def _random(r: Ratings, test: float, seed: int) -> Choice:
    return _pair_keys(r, seed) < test, None, f"Each rating is held out with probability {test:g}"


def _leave_one_out(r: Ratings, test: float, seed: int) -> Choice:
    held = _lowest_of_each_user(r, _pair_keys(r, seed), np.ones(r.n_ratings, dtype=bool))
    return held, None, "One random rating of every user with two or more is held out"


def _latest(r: Ratings, test: float, seed: int) -> Choice:
    times = _times(r, "latest")
    last = np.zeros(r.n_users, dtype=np.int64)
    active = r.counts > 0
    last[active] = np.maximum.reduceat(times, r.indptr[:-1][active])
    held = _lowest_of_each_user(r, _pair_keys(r, seed), times == np.repeat(last, r.counts))
    return held, None, "The latest rating of every user with two or more is held out"


def _temporal(r: Ratings, test: float, seed: int) -> Choice:
    """The cut lies between two moments, where the test part comes nearest to the requested fraction."""
    times, n = _times(r, "temporal"), r.n_ratings
    wanted = min(max(round(n * (1 - test)), 1), n - 1) if n > 1 else 0
    moment = np.partition(times, wanted)[wanted]
    before, through = int(np.sum(times < moment)), int(np.sum(times <= moment))
    from_moment = through == n or (before > 0 and wanted - before <= through - wanted)
    held = times >= moment if from_moment else times > moment
    return held, None, f"The latest {100 * test:g} % of all ratings, by one moment for everyone, are held out"


def _cold_users(r: Ratings, test: float, seed: int) -> Choice:
    held = np.repeat(_uniform(id_keys(seed, "cold user", r.user_ids.ids)) < test, r.counts)
    supports = held & (_pair_keys(r, seed) < SUPPORT)
    share = f"{100 * SUPPORT:g} % of their ratings support fold-in, the others are the test"
    return held, supports, f"{100 * test:g} % of the users are unknown in training; about {share}"


def _cold_items(r: Ratings, test: float, seed: int) -> Choice:
    held = (_uniform(id_keys(seed, "cold item", r.item_ids.ids)) < test)[r.items]
    return held, None, f"All ratings of {100 * test:g} % of the items are held out"


KINDS: dict[str, Callable[[Ratings, float, int], Choice]] = {
    "random": _random,
    "leave-one-out": _leave_one_out,
    "latest": _latest,
    "temporal": _temporal,
    "cold-users": _cold_users,
    "cold-items": _cold_items,
}


def _pair_keys(r: Ratings, seed: int) -> np.ndarray:
    """A uniform number in [0, 1) per rating, (nnz,), a function of seed, user id and item id alone."""
    users, items = id_keys(seed, "split user", r.user_ids.ids), id_keys(seed, "split item", r.item_ids.ids)
    rows, keys = r.users, np.empty(r.n_ratings)
    for start in range(0, r.n_ratings, BLOCK):  # mix needs several temporary numbers a pair
        part = slice(start, start + BLOCK)
        keys[part] = mix(users[rows[part]], items[r.items[part]])
    return keys


def _uniform(keys: np.ndarray) -> np.ndarray:
    return (keys >> np.uint64(11)) * 2.0**-53


def _lowest_of_each_user(r: Ratings, keys: np.ndarray, eligible: np.ndarray) -> np.ndarray:
    """Marks the eligible rating of lowest key of every user with two ratings or more. Shape (nnz,) bool."""
    keys = np.where(eligible, keys, 2.0)
    several = r.counts > 1
    active = r.counts > 0
    lowest = np.full(r.n_users, -1.0)
    lowest[active] = np.minimum.reduceat(keys, r.indptr[:-1][active])
    found = np.flatnonzero(keys == np.repeat(np.where(several, lowest, -1.0), r.counts))
    # Where two keys of one user are equal, the first is taken.
    chosen = np.zeros(r.n_ratings, dtype=bool)
    chosen[found[np.unique(r.users[found], return_index=True)[1]]] = True
    return chosen


def _times(r: Ratings, by: str) -> np.ndarray:
    if r.times is None:
        raise DataError(f'The split "{by}" needs timestamps, and {r.name} has none; choose another split.')
    return r.times
