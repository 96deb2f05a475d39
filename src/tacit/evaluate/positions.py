"""Where each test item lands among its rivals: how many score above it, how many tie. Blocked over users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.data.ratings import Ratings
from tacit.errors import DataError, UsageError
from tacit.evaluate.negatives import sample_negatives
from tacit.evaluate.rating import check_finite
from tacit.model.predictor import Predictor
from tacit.rng import id_keys

CELLS = 4_000_000  # scores held at once: 16 MB as float32, thrice that with the working copy and the masks


@dataclass(frozen=True)
class Positions:
    """The test entries of some users, and where each lands. `tied` counts the item itself.

    Attributes
    ----------
    users : (u,) int64 rows, increasing
    owner : (e,) int64, the place of each entry's user in `users`, increasing
    entries : (e,) int64, where the entry stands in the test ratings
    above, tied : (e,) int64 among the candidates: all items that the user has not seen
    candidates : (u,) int64
    sampled_above, sampled_tied : (e,) int64 among the item and the user's sampled negatives
    negatives : (u,) int64, how many could be sampled
    """

    users: np.ndarray
    owner: np.ndarray
    entries: np.ndarray
    above: np.ndarray
    tied: np.ndarray
    candidates: np.ndarray
    sampled_above: np.ndarray
    sampled_tied: np.ndarray
    negatives: np.ndarray


def find_positions(
    predictor: Predictor, test: Ratings, seen: Ratings | None, users: np.ndarray, *, negatives: int, seed: int
) -> Positions:
    """Positions of all test items of `users` (rows, increasing)."""
    m = test.n_items
    entries, owner = entries_of(test.indptr, users)
    keys = id_keys(seed, "evaluate: negatives", test.user_ids[users])
    above, tied, sampled_above, sampled_tied = np.zeros((4, len(entries)), dtype=np.int64)
    candidates, available = np.full(len(users), m), np.zeros(len(users), dtype=np.int64)
    bounds = np.concatenate(([0], np.cumsum(test.counts[users])))
    height = max(1, CELLS // m)
    for start in range(0, len(users), height):
        block = slice(start, min(start + height, len(users)))
        part = slice(bounds[block.start], bounds[block.stop])
        rows, row, column = users[block], owner[part] - start, test.items[entries[part]].astype(np.int64)
        scores = _scores(predictor, rows, m)
        own = scores[row, column]

        seen_row, seen_column = _seen_cells(seen, rows)
        indptr, known = _known(len(rows), m, row, column, seen_row, seen_column, test, rows)
        drawn = sample_negatives(indptr, known, keys[block], items=m, negatives=negatives, seed=seed)
        # −1 reads some score, which −∞ then replaces: finite scores are never below or equal to it.
        rivals = np.where(drawn >= 0, np.take_along_axis(scores, drawn, axis=1), -np.inf).astype(scores.dtype)
        rivals.sort(axis=1)
        sampled_above[part], sampled_tied[part] = _above_and_tied(rivals, row, own)

        scores[seen_row, seen_column] = -np.inf
        scores.sort(axis=1)
        above[part], tied[part] = _above_and_tied(scores, row, own)
        candidates[block] -= np.bincount(seen_row, minlength=len(rows))
        available[block] = np.count_nonzero(drawn >= 0, axis=1)
    return Positions(
        users=users,
        owner=owner,
        entries=entries,
        above=above,
        tied=tied,
        candidates=candidates,
        sampled_above=sampled_above,
        sampled_tied=sampled_tied + 1,  # the item itself is not among the negatives
        negatives=available,
    )


def entries_of(indptr: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The entries of some compressed rows, one row after the other, and each entry's place in `rows`.

    >>> entries, owner = entries_of(np.array([0, 2, 2, 5]), np.array([0, 2]))
    >>> entries.tolist(), owner.tolist()
    ([0, 1, 2, 3, 4], [0, 0, 1, 1, 1])
    """
    counts = indptr[rows + 1] - indptr[rows]
    starts = np.cumsum(counts) - counts
    owner = np.repeat(np.arange(len(rows)), counts)
    return np.repeat(indptr[rows] - starts, counts) + np.arange(len(owner)), owner


def _scores(predictor: Predictor, rows: np.ndarray, m: int) -> np.ndarray:
    """A copy of our own of all scores of some users, finite, (len(rows), m)."""
    scores = np.asarray(predictor.scores(rows))
    if scores.shape != (len(rows), m):
        raise UsageError(
            f"scores() answered {len(rows):,} users with an array of shape {scores.shape}, but the test "
            f"ratings know {m:,} items; evaluate on ratings with the training ratings' rows and columns."
        )
    check_finite(scores, f"scores of {len(rows):,} users")
    return np.array(scores, dtype=scores.dtype if scores.dtype.kind == "f" else np.float64, order="C")


def _seen_cells(seen: Ratings | None, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if seen is None:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    entries, row = entries_of(seen.indptr, rows)
    return row, seen.items[entries].astype(np.int64)


def _known(
    u: int,
    m: int,
    row: np.ndarray,
    column: np.ndarray,
    seen_row: np.ndarray,
    seen_column: np.ndarray,
    test: Ratings,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Test and seen items of each user as compressed rows; what is in both is an error."""
    cells = np.sort(np.concatenate((row * m + column, seen_row * m + seen_column)))
    both = cells[1:][cells[1:] == cells[:-1]]
    if len(both):
        user, item = test.user_ids[rows[both[0] // m]], test.item_ids[both[0] % m]
        others = f" (and {len(both) - 1:,} more pairs)" if len(both) > 1 else ""
        raise DataError(
            f"User {user!r} has item {item!r}{others} both among the test ratings and among the seen ones; "
            "pass only the training ratings as seen."
        )
    return np.searchsorted(cells, np.arange(u + 1) * m), cells % m


def _above_and_tied(rows: np.ndarray, row: np.ndarray, value: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many of rows[row[e]], each sorted upwards, are greater than value[e], and how many are equal."""
    below, up_to = _bisect(rows, row, value, np.less), _bisect(rows, row, value, np.less_equal)
    return rows.shape[1] - up_to, up_to - below


def _bisect(rows: np.ndarray, row: np.ndarray, value: np.ndarray, holds: np.ufunc) -> np.ndarray:
    """For each e the number of leading cells x of rows[row[e]] with holds(x, value[e]); all step together."""
    m = rows.shape[1]
    flat, base = rows.reshape(-1), row * m
    found = np.zeros(len(row), dtype=np.int64)
    for bit in reversed(range(m.bit_length())):
        probe = found + (1 << bit)
        inside = probe <= m
        cells = flat[base + np.minimum(probe, m) - 1]
        found += (inside & holds(cells, value)).astype(np.int64) << bit
    return found
