"""Round contributions to integers and add them up; a contribution that became too long is marked instead.

What a contribution holds at several places alike is a row, which is rounded once and added at each.
"""

import numpy as np

from tacit.kernels.jit import Array, compiled


# No flag lets the compiler assume that numbers are finite: what is not counts as 0, whatever arrives.
@compiled()
def _round_and_add(starts, cells, values, coins, step, most, most_together, before, total):
    too_long = np.zeros(len(starts) - 1, dtype=np.bool_)
    met = np.full(len(total), -1, dtype=np.int32)
    for a in range(len(starts) - 1):
        squares, together, twice = before[a, 0], before[a, 1], False
        for e in range(starts[a], starts[a + 1]):
            twice = twice or met[cells[e]] == a
            met[cells[e]] = a
            x = values[e] / step
            whole = np.floor((x if np.isfinite(x) else 0.0) + coins[e])
            squares += whole * whole
            together += abs(whole)
        if twice or squares > most or together > most_together:
            too_long[a] = True
            continue
        for e in range(starts[a], starts[a + 1]):
            x = values[e] / step
            total[cells[e]] += np.int64(np.floor((x if np.isfinite(x) else 0.0) + coins[e]))
    return too_long


def round_and_add(
    starts: Array,
    cells: Array,
    values: Array,
    coins: Array,
    step: float,
    most: float,
    most_together: float,
    before: Array,
    total: Array,
) -> Array:
    """total[cell] += ⌊value/step + coin⌋ for every entry of each contribution that is not too long after rounding.

    Its squares add up to at most `most`, its absolute values to at most `most_together`, with what it holds besides:
    `before`, (k, 2). A contribution with a cell twice counts as too long, since its numbers would add up there.

    starts: (k+1,) int64, contribution a has entries starts[a] : starts[a+1]; cells, values, coins: (nnz,); total:
    int64, in place. Returns (k,) bool: the contributions that were too long and were not added.
    """
    return _round_and_add(starts, cells, values, coins, float(step), float(most), float(most_together), before, total)


def round_and_add_numpy(starts, cells, values, coins, step, most, most_together, before, total):
    """The twin of `round_and_add`."""
    whole = _rounded(values, coins, step)
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    squares, together = (np.bincount(owners, weights=x, minlength=len(starts) - 1) for x in (whole**2, np.abs(whole)))
    twice = _twice(owners, cells, len(total), len(starts) - 1)
    too_long = twice | (before[:, 0] + squares > most) | (before[:, 1] + together > most_together)
    kept = ~too_long[owners]
    np.add.at(total, cells[kept], whole[kept].astype(np.int64))
    return too_long


@compiled()
def _round_rows(starts, places, rows, coins, step, most, most_together, met, whole, lengths):
    width = rows.shape[1]
    for a in range(len(starts) - 1):
        count, twice, squares, together = starts[a + 1] - starts[a], False, 0.0, 0.0
        for e in range(starts[a], starts[a + 1]):
            twice = twice or met[places[e]] == a
            met[places[e]] = a
        for f in range(width):
            x = rows[a, f] / step
            one = np.floor((x if np.isfinite(x) else 0.0) + coins[a * width + f])
            squares += one * one
            together += abs(one)
        lengths[a, 0] = np.inf if twice else count * squares
        lengths[a, 1] = np.inf if twice else count * together
        if count == 0 or not (lengths[a, 0] <= most and lengths[a, 1] <= most_together):
            continue
        for f in range(width):
            x = rows[a, f] / step
            whole[a, f] = np.int32(np.floor((x if np.isfinite(x) else 0.0) + coins[a * width + f]))


def round_rows(
    starts: Array,
    places: Array,
    rows: Array,
    coins: Array,
    step: float,
    most: float,
    most_together: float,
    height: int,
) -> tuple[Array, Array]:
    """⌊row/step + coin⌋ of each contribution's row, and how long it is at all its places together.

    starts: (k+1,) int64, row a is at places[starts[a] : starts[a+1]], each below `height`; rows: (k, w); coins: (k·w,).
    Returns (k, w) int32, 0 where squares add up to more than `most` < 2⁶² or absolute values to more than
    `most_together`, or where there is no place; and both, (k, 2) float64, infinite where a place is there twice.
    """
    whole, lengths = np.zeros(rows.shape, dtype=np.int32), np.zeros((len(rows), 2))
    met = np.full(height, -1, dtype=np.int64)
    limits = float(step), float(most), float(most_together)
    _round_rows(starts, places, np.ascontiguousarray(rows, dtype=np.float64), coins, *limits, met, whole, lengths)
    return whole, lengths


def round_rows_numpy(starts, places, rows, coins, step, most, most_together, height):
    """The twin of `round_rows`."""
    whole, counts = _rounded(rows, coins.reshape(rows.shape), step), np.diff(starts)
    with np.errstate(over="ignore", invalid="ignore"):
        lengths = counts[:, None] * np.stack([np.sum(whole**2, axis=1), np.sum(np.abs(whole), axis=1)], axis=1)
    lengths[_twice(np.repeat(np.arange(len(counts)), counts), places, height, len(counts))] = np.inf
    none = (counts == 0) | (lengths[:, 0] > most) | (lengths[:, 1] > most_together)
    return np.where(none[:, None], 0, whole).astype(np.int32), lengths


@compiled()
def _add_rows(indptr, who, rows, total):
    width = rows.shape[1]
    for i in range(len(indptr) - 1):
        mine = total[i * width : (i + 1) * width]
        for e in range(indptr[i], indptr[i + 1]):
            row = rows[who[e]]
            for f in range(width):
                mine[f] += row[f]


def add_rows(starts: Array, places: Array, rows: Array, total: Array, height: int) -> None:
    """total[i·w : (i + 1)·w] += row for each of a row's places i; rows: (k, w) int32, total: int64, in place.

    Place by place, so that what is added to stays in the nearest cache.
    """
    if not rows.size:
        return
    who = np.repeat(np.arange(len(rows)), np.diff(starts))[np.argsort(places, kind="stable")]
    indptr = np.concatenate([[0], np.cumsum(np.bincount(places, minlength=height))])
    _add_rows(indptr, who, rows, total)


def add_rows_numpy(starts, places, rows, total, height):
    """The twin of `add_rows`."""
    width = rows.shape[1]
    whole = total[: height * width].reshape(height, width)
    np.add.at(whole, places, np.repeat(rows, np.diff(starts), axis=0))


def _rounded(values, coins, step):
    with np.errstate(over="ignore"):
        return np.floor(np.nan_to_num(values / step, nan=0.0, posinf=0.0, neginf=0.0) + coins)


def _twice(owners, cells, size, count):
    """Which contributions have a cell twice, (count,) bool."""
    pairs, counts = np.unique(owners * max(1, size) + cells, return_counts=True)
    twice = np.zeros(count, dtype=bool)
    twice[pairs[counts > 1] // max(1, size)] = True
    return twice
