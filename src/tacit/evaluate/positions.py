"""Where each test item lands among its rivals: how many score above it, how many tie. Blocked over users."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np

from tacit.data.ratings import Ratings
from tacit.errors import DataError, UsageError
from tacit.evaluate.negatives import sample_negatives
from tacit.evaluate.rating import check_finite
from tacit.kernels.blas import one_blas_thread
from tacit.kernels.ranks import not_finite, ranks
from tacit.model.predictor import Predictor
from tacit.rng import id_keys

CELLS = 4_000_000  # scores that a thread holds at once: 16 MB as float32
DRAWS = 4_000_000  # negatives drawn at once: 32 MB


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
    predictor: Predictor,
    test: Ratings,
    seen: Ratings | None,
    users: np.ndarray,
    *,
    negatives: int,
    seed: int,
    progress: Callable[[float], None] | None = None,
) -> Positions:
    """Positions of all test items of `users` (rows, increasing).

    Blocks of users are scored side by side, in a thread per core; what a block finds does not depend on the others.
    `progress` hears which part of the users is done.
    """
    m = test.n_items
    entries, owner = entries_of(test.indptr, users)
    starts = np.concatenate(([0], np.cumsum(test.counts[users])))
    found = np.zeros((4, len(entries)), dtype=np.int64)
    candidates, available = np.full(len(users), m), np.zeros(len(users), dtype=np.int64)
    height = max(1, CELLS // m)
    span = max(1, DRAWS // negatives)
    with _threads(len(users) > height) as apart:
        for first in range(0, len(users), span):
            some = users[first : first + span]
            mine = slice(starts[first], starts[first + len(some)])
            columns = test.items[entries[mine]].astype(np.int64)
            seen_starts, seen_columns = _seen_cells(seen, some)
            known = _known(owner[mine] - first, columns, seen_starts, seen_columns, test, some)
            keys = id_keys(seed, "evaluate: negatives", test.user_ids[some])
            drawn = sample_negatives(*known, keys, items=m, negatives=negatives, seed=seed)
            candidates[first : first + span] -= np.diff(seen_starts)
            available[first : first + span] = np.count_nonzero(drawn >= 0, axis=1)
            own = (starts[first : first + len(some) + 1] - starts[first], columns)
            placed = partial(_placed, predictor, some, m, own, (seen_starts, seen_columns), drawn)
            blocks = [slice(start, min(start + height, len(some))) for start in range(0, len(some), height)]
            for block, result in zip(blocks, apart(placed, blocks), strict=True):
                found[:, starts[first + block.start] : starts[first + block.stop]] = result
                if progress is not None:
                    progress((first + block.stop) / len(users))
    return Positions(
        users=users,
        owner=owner,
        entries=entries,
        above=found[0],
        tied=found[1],
        candidates=candidates,
        sampled_above=found[2],
        sampled_tied=found[3] + 1,  # the item itself is not among the negatives
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


def _placed(
    predictor: Predictor,
    users: np.ndarray,
    m: int,
    own: tuple[np.ndarray, np.ndarray],
    seen: tuple[np.ndarray, np.ndarray],
    drawn: np.ndarray,
    block: slice,
) -> np.ndarray:
    """What `ranks` finds for one block of users; `own` and `seen` are compressed rows of them all."""
    scores = _scores(predictor, users[block], m)
    return ranks(scores, *_rows(block, *own), *_rows(block, *seen), drawn[block])


@contextmanager
def _threads(many: bool) -> Iterator[Callable[..., Iterator[np.ndarray]]]:
    """A `map` over several threads, each with one thread of BLAS; over this thread alone for a single block."""
    workers = os.cpu_count() or 1
    if not many or workers == 1:
        yield map
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tacit-evaluate")
    try:
        with one_blas_thread():
            yield pool.map
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _scores(predictor: Predictor, rows: np.ndarray, m: int) -> np.ndarray:
    """All scores of some users, finite and row after row, (len(rows), m)."""
    scores = np.asarray(predictor.scores(rows))
    if scores.shape != (len(rows), m):
        raise UsageError(
            f"scores() answered {len(rows):,} users with an array of shape {scores.shape}, but the test "
            f"ratings know {m:,} items; evaluate on ratings with the training ratings' rows and columns."
        )
    known = scores.dtype in (np.float32, np.float64)
    scores = np.ascontiguousarray(scores, dtype=scores.dtype if known else np.float64)
    if not_finite(scores):
        check_finite(scores, f"scores of {len(rows):,} users")
    return scores


def _rows(block: slice, starts: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Some of the compressed rows."""
    first, last = starts[block.start], starts[block.stop]
    return starts[block.start : block.stop + 1] - first, columns[first:last]


def _seen_cells(seen: Ratings | None, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What some users have seen, as compressed rows."""
    if seen is None:
        return np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    entries, _row = entries_of(seen.indptr, rows)
    return np.concatenate(([0], np.cumsum(seen.counts[rows]))), seen.items[entries].astype(np.int64)


def _known(
    row: np.ndarray,
    column: np.ndarray,
    seen_starts: np.ndarray,
    seen_column: np.ndarray,
    test: Ratings,
    rows: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Test and seen items of each user as compressed rows; what is in both is an error."""
    m = test.n_items
    seen_row = np.repeat(np.arange(len(rows)), np.diff(seen_starts))
    cells = np.sort(np.concatenate((row * m + column, seen_row * m + seen_column)))
    both = cells[1:][cells[1:] == cells[:-1]]
    if len(both):
        user, item = test.user_ids[rows[both[0] // m]], test.item_ids[both[0] % m]
        others = f" (and {len(both) - 1:,} more pairs)" if len(both) > 1 else ""
        raise DataError(
            f"User {user!r} has item {item!r}{others} both among the test ratings and among the seen ones; "
            "pass only the training ratings as seen."
        )
    return np.searchsorted(cells, np.arange(len(rows) + 1) * m), cells % m
