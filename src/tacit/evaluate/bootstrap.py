"""Percentile bootstrap over users (Efron 1979), for ratios of sums."""

from __future__ import annotations

import numpy as np

from tacit.errors import UsageError
from tacit.rng import derive

CELLS = 500_000  # resampling weights held at once: they stay in cache


def bootstrap_interval(
    numerator: np.ndarray,
    denominator: np.ndarray | None = None,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 7,
) -> np.ndarray:
    """Low and high end for Σ numerator / Σ denominator, resampling users with replacement.

    A user is drawn with both sums, so that ratings of one user may depend on each other. Columns share the resamples.

    Parameters
    ----------
    numerator : (u,) or (u, q); NaN for a user without a value
    denominator : the same shape, ≥ 0; ones by default, which makes the ratio a mean

    Returns
    -------
    (2,) or (2, q) float64; NaN for a column with fewer than two users

    >>> low, high = bootstrap_interval(np.arange(100.0))
    >>> bool(low < 49.5 < high)
    True
    """
    if resamples < 1 or not 0 < level < 1:
        raise UsageError(f"A bootstrap takes resamples ≥ 1 and 0 < level < 1; these are {resamples} and {level:g}.")
    numerator = np.asarray(numerator, dtype=np.float64)
    flat = numerator.ndim == 1
    x = numerator[:, None] if flat else numerator
    y = np.ones_like(x) if denominator is None else np.asarray(denominator, dtype=np.float64).reshape(x.shape)
    present = ~np.isnan(x) & (y > 0)
    x, y = np.where(present, x, 0.0), np.where(present, y, 0.0)
    takes_part = present.any(axis=1)
    both = np.hstack((x[takes_part], y[takes_part]))
    sums = _resampled_sums(both, resamples, derive(seed, "bootstrap over users"))
    top, bottom = np.split(sums, 2, axis=1)
    # A resample without a user of a column has no value for that column.
    ratios = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
    tails = [(1 - level) / 2, (1 + level) / 2]
    ends = np.full((2, x.shape[1]), np.nan)
    for column in np.flatnonzero(present.sum(axis=0) >= 2):
        kept = ratios[~np.isnan(ratios[:, column]), column]
        ends[:, column] = np.quantile(kept, tails) if len(kept) else np.nan
    return ends[:, 0] if flat else ends


def _resampled_sums(columns: np.ndarray, resamples: int, stream: np.random.Generator) -> np.ndarray:
    """Column sums over draws of len(columns) rows with replacement, as multinomial weights @ columns."""
    u = len(columns)
    sums = np.zeros((resamples, columns.shape[1]))
    if not u:
        return sums
    height = max(1, CELLS // u)
    for start in range(0, resamples, height):
        b = min(height, resamples - start)
        drawn = stream.integers(0, u, size=(b, u), dtype=np.uint32)
        cells = (drawn + (np.arange(b) * u)[:, None]).reshape(-1)
        weights = np.bincount(cells, minlength=b * u).reshape(b, u)
        sums[start : start + b] = weights.astype(np.float64) @ columns
    return sums
