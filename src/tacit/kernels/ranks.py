"""Where items land in a user's list: how many others score above, how many the same. And draws without replacement."""

import numpy as np

from tacit.kernels.jit import Array, compiled


@compiled()
def _not_finite(scores):
    bad = np.uint32(0)
    for j in range(len(scores)):
        bad += np.uint32(not (np.abs(scores[j]) < np.inf))
    return bad


@compiled()
def _ranks(scores, starts, items, seen_starts, seen, rivals, out):
    for r in range(len(scores)):
        row, known = scores[r], seen[seen_starts[r] : seen_starts[r + 1]]
        for e in range(starts[r], starts[r + 1]):
            value = row[items[e]]
            above, tied = np.uint32(0), np.uint32(0)  # 32 bits, like a score: the processor counts many at a time
            for j in range(len(row)):
                above += np.uint32(row[j] > value)
                tied += np.uint32(row[j] == value)
            out[0, e], out[1, e] = above, tied
            for j in known:
                out[0, e] -= row[j] > value
                out[1, e] -= row[j] == value
            for j in rivals[r]:
                if j >= 0:
                    out[2, e] += row[j] > value
                    out[3, e] += row[j] == value


def ranks(scores: Array, starts: Array, items: Array, seen_starts: Array, seen: Array, rivals: Array) -> Array:
    """How many scores of its row are above an item's own and how many equal it, among two sets of candidates.

    Parameters
    ----------
    scores : (u, m) float, finite
    starts, items : (u+1,) and (e,) int64, the columns to find in each row, as compressed rows
    seen_starts, seen : (u+1,) and (s,) int64, columns of each row that are no candidates; none of `items`
    rivals : (u, w) int64, a few columns of each row for the second set; −1 is no column

    Returns
    -------
    (4, e) int64: above and tied among all columns but those seen, the item itself included; above and tied among the
    rivals
    """
    out = np.zeros((4, len(items)), dtype=np.int64)
    _ranks(scores, starts, items, seen_starts, seen, rivals, out)
    return out


def ranks_numpy(scores, starts, items, seen_starts, seen, rivals):
    """The twin of `ranks`."""
    out = np.zeros((4, len(items)), dtype=np.int64)
    for r, row in enumerate(scores):
        candidates = np.delete(row, seen[seen_starts[r] : seen_starts[r + 1]])
        others = row[rivals[r][rivals[r] >= 0]]
        for e in range(starts[r], starts[r + 1]):
            value = row[items[e]]
            pairs = ((among > value, among == value) for among in (candidates, others))
            out[:, e] = [np.count_nonzero(which) for pair in pairs for which in pair]
    return out


def not_finite(scores: Array) -> int:
    """How many are NaN or infinite; scores: C-contiguous floats of any shape, fewer than 2^32."""
    return int(_not_finite(scores.reshape(-1)))


def not_finite_numpy(scores):
    """The twin of `not_finite`."""
    return int(np.count_nonzero(~np.isfinite(scores)))


@compiled()
def _floyd(numbers, unknown, wanted, taken, out):
    for r in range(len(out)):
        for step in range(wanted[r]):
            last = unknown[r] - wanted[r] + step
            pick = np.int64(numbers[r, step] * (last + 1))
            if taken[pick]:
                pick = last
            taken[pick] = True
            out[r, step] = pick
        for step in range(wanted[r]):
            taken[out[r, step]] = False


def floyd(numbers: Array, unknown: Array, wanted: Array) -> Array:
    """wanted[r] distinct numbers below unknown[r] for each row r, by Floyd's algorithm (Bentley & Floyd 1987).

    Step by step j = unknown − wanted + step; draw from 0 … j; take j itself where the draw was taken before.

    Parameters
    ----------
    numbers : (u, w) float64 in [0, 1), what each step draws with
    unknown, wanted : (u,) int64, wanted ≤ min(unknown, w)

    Returns
    -------
    (u, w) int64, −1 from column wanted[r] on
    """
    out = np.full(numbers.shape, -1, dtype=np.int64)
    _floyd(numbers, unknown, wanted, np.zeros(int(unknown.max(initial=0)), dtype=bool), out)
    return out


def floyd_numpy(numbers, unknown, wanted):
    """The twin of `floyd`."""
    out = np.full(numbers.shape, -1, dtype=np.int64)
    for step in range(int(wanted.max(initial=0))):
        active = np.flatnonzero(step < wanted)
        last = (unknown - wanted)[active] + step
        pick = (numbers[active, step] * (last + 1)).astype(np.int64)
        taken = (out[active, :step] == pick[:, None]).any(axis=1)
        out[active, step] = np.where(taken, last, pick)
    return out
