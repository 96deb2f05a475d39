"""Round contributions to integers and add them up; a contribution that became too long is marked instead."""

import numpy as np

from tacit.kernels.jit import Array, compiled


# No flag lets the compiler assume that numbers are finite: what is not counts as 0, whatever arrives.
@compiled()
def _round_and_add(starts, cells, values, coins, step, most, most_together, total):
    too_long = np.zeros(len(starts) - 1, dtype=np.bool_)
    met = np.full(len(total), -1, dtype=np.int64)
    for a in range(len(starts) - 1):
        squares, together, twice = 0.0, 0.0, False
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
    total: Array,
) -> Array:
    """total[cell] += ⌊value/step + coin⌋ for every entry of each contribution that is not too long after rounding.

    Its squares add up to at most `most`, its absolute values to at most `most_together`; a contribution
    with a cell twice counts as too long, since its numbers would add up there.

    starts: (k+1,) int64, contribution a has entries starts[a] : starts[a+1]; cells, values, coins: (nnz,); total:
    int64, in place. Returns (k,) bool: the contributions that were too long and were not added.
    """
    return _round_and_add(starts, cells, values, coins, float(step), float(most), float(most_together), total)


def round_and_add_numpy(starts, cells, values, coins, step, most, most_together, total):
    """The twin of `round_and_add`."""
    whole = np.floor(np.nan_to_num(values / step, nan=0.0, posinf=0.0, neginf=0.0) + coins)
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    squares, together = (np.bincount(owners, weights=x, minlength=len(starts) - 1) for x in (whole**2, np.abs(whole)))
    pairs, counts = np.unique(owners * len(total) + cells, return_counts=True)
    twice = np.zeros(len(starts) - 1, dtype=bool)
    twice[pairs[counts > 1] // max(1, len(total))] = True
    too_long = twice | (squares > most) | (together > most_together)
    kept = ~too_long[owners]
    np.add.at(total, cells[kept], whole[kept].astype(np.int64))
    return too_long
