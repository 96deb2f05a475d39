"""Unseen items, drawn without replacement for many users at once, by each user's own key."""

from __future__ import annotations

import numpy as np

from tacit.kernels.ranks import floyd
from tacit.rng import id_keys, mix


def sample_negatives(
    indptr: np.ndarray, known: np.ndarray, keys: np.ndarray, *, items: int, negatives: int, seed: int
) -> np.ndarray:
    """Up to `negatives` distinct items that a user does not know, uniform; −1 when there are no more.

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
