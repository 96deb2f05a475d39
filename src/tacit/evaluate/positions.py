"""The position of each test item among its candidates: how many score above it, how many tie. Blocked over users."""

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
from tacit.evaluate.metrics import check_finite
from tacit.kernels.blas import one_blas_thread
from tacit.kernels.entries import entries_of
from tacit.kernels.ranks import floyd, not_finite, ranks
from tacit.model.predictor import Predictor
from tacit.rng import id_keys, mix

CELLS = 4_000_000  # scores that a thread holds at once: 16 MB as float32
DRAWS = 4_000_000  # negatives drawn at once: 32 MB


@dataclass(frozen=True)
class Positions:
    """The test entries of some users, and the position of each. `tied` counts the item itself.

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

    Blocks of users are scored in parallel, in a thread per core, independently of each other. `progress` is called with
    the fraction of users done.
    """
    m = test.n_items
    starts, entries = entries_of(test.indptr, users)
    owner = np.repeat(np.arange(len(users)), np.diff(starts))
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


def sample_negatives(
    indptr: np.ndarray, known: np.ndarray, keys: np.ndarray, *, items: int, negatives: int, seed: int
) -> np.ndarray:
    """Up to `negatives` distinct items that a user does not know, drawn uniformly; −1 when there are no more.

    Floyd's algorithm picks w of the a unknown items in w steps; the p-th unknown item is then found among the known
    columns by bisection. A user's draw depends on (seed, key, known items) alone.

    Parameters
    ----------
    indptr, known : (u+1,) int64 and (nnz,) int64; the columns each user knows, strictly increasing in a row
    keys : (u,) uint64
    items : m, the number of columns

    Returns
    -------
    (u, negatives) int64
    """
    rows = np.arange(len(keys))
    counts = np.diff(indptr)
    unknown = items - counts  # a
    wanted = np.minimum(unknown, negatives)  # w
    steps = id_keys(seed, "evaluate: step of a draw", range(negatives))
    positions = floyd(mix(keys[:, None], steps), unknown, wanted)
    # Before known[j] lie known[j] − j unknown items, so position p is column p + #{j : known[j] − j ≤ p}.
    stride = items + 1
    ahead = known - (np.arange(len(known)) - np.repeat(indptr[:-1], counts)) + np.repeat(rows * stride, counts)
    before = np.searchsorted(ahead, positions + (rows * stride)[:, None], side="right") - indptr[:-1, None]
    return np.where(positions >= 0, positions + before, -1)


def _placed(
    predictor: Predictor,
    users: np.ndarray,
    m: int,
    own: tuple[np.ndarray, np.ndarray],
    seen: tuple[np.ndarray, np.ndarray],
    drawn: np.ndarray,
    block: slice,
) -> np.ndarray:
    """`ranks` of one block of users; `own` and `seen` are compressed rows of all users."""
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
            f"scores() returned, for {len(rows):,} users, an array of shape {scores.shape}, but the test "
            f"ratings have {m:,} items; evaluate on ratings with the training ratings' rows and columns."
        )
    known = scores.dtype in (np.float32, np.float64)
    scores = np.ascontiguousarray(scores, dtype=scores.dtype if known else np.float64)
    if not_finite(scores):
        check_finite(scores, f"scores of {len(rows):,} users")
    return scores


def _rows(block: slice, starts: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    first, last = starts[block.start], starts[block.stop]
    return starts[block.start : block.stop + 1] - first, columns[first:last]


def _seen_cells(seen: Ratings | None, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if seen is None:
        return np.zeros(len(rows) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    starts, entries = entries_of(seen.indptr, rows)
    return starts, seen.items[entries].astype(np.int64)


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
