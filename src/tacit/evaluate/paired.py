"""Whether one run is better than another: a paired comparison over common users, and the bootstrap over users."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tacit.errors import DataError, UsageError
from tacit.evaluate.metrics import lower_is_better as lower
from tacit.rng import derive

SIGNS = 1_000_000  # held at once
EXACT = 12  # up to so many users all 2^u sign patterns are tried


@dataclass(frozen=True)
class Paired:
    """Two runs on the same users. `difference` is first − second.

    Attributes
    ----------
    interval : 95 % bootstrap interval of the difference; NaN for a single user
    p_value : two-sided, by flipping signs of the users' differences
    share_better, share_worse : shares of users for whom the first is strictly better, or worse
    """

    users: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    p_value: float
    share_better: float
    share_worse: float
    metric: str | None = None
    names: tuple[str, str] = ("the first", "the second")
    lower_is_better: bool = False

    @property
    def significant(self) -> bool:
        """p < 0.05."""
        return self.p_value < 0.05

    def __str__(self) -> str:
        name, other = self.names
        what = self.metric or "the value"
        better = (self.difference < 0) == self.lower_is_better and self.difference != 0
        p = "p < 0.001" if self.p_value < 1e-3 else f"p = {self.p_value:.3f}"
        low, high = self.interval
        span = f"95 % interval {low:+.4g} … {high:+.4g}, " if low == low else ""
        verdict = f"no clear difference between {name} and {other}"
        if self.significant:
            verdict = f"{name} is {'better' if better else 'worse'} than {other}"
        people = "1 user" if self.users == 1 else f"{self.users:,} users"
        return (
            f"On {people}, {verdict}: {what} is {self.first:.4g} against {self.second:.4g}, "
            f"a difference of {self.difference:+.4g} ({span}{p}); {name} is better for "
            f"{self.share_better:.0%} of users and worse for {self.share_worse:.0%}."
        )


def compare_paired(
    a: np.ndarray,
    b: np.ndarray,
    *,
    metric: str | None = None,
    lower_is_better: bool | None = None,
    names: tuple[str, str] = ("the first", "the second"),
    weights: np.ndarray | None = None,
    seed: int = 7,
    bootstrap: int = 1000,
    permutations: int = 5000,
) -> Paired:
    """Compare two runs' values per user, `a` with `b`, on the users that have both.

    The p-value is that of a sign-flip permutation test: if neither run is better, a user's difference is as
    likely to have either sign. All sign patterns are tried for up to 12 users, `permutations` random ones for
    more, so that the smallest p is 1/(permutations + 1).

    Parameters
    ----------
    a, b : (n,) values per user, NaN for a user without one, as in `Evaluation.per_user`
    metric : its name, such as "mse"; says which way is better, unless `lower_is_better` does
    weights : (n,) ≥ 0; with a user's number of test ratings, means of "mse" become those over ratings

    >>> print(compare_paired(np.full(9, 0.5), np.full(9, 0.25), metric="ndcg@10", names=("als", "bias")))
    On 9 users, als is better than bias: ndcg@10 is 0.5 against 0.25, a difference of +0.25 (95 % interval \
+0.25 … +0.25, p = 0.004); als is better for 100% of users and worse for 0%.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    w = np.ones(a.shape) if weights is None else np.asarray(weights, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape or a.shape != w.shape:
        raise UsageError(
            f"A paired comparison needs one value per user, for the same users: the shapes are {a.shape}, "
            f"{b.shape} and, of the weights, {w.shape}."
        )
    if bootstrap < 1 or permutations < 1:
        raise UsageError("A paired comparison takes bootstrap ≥ 1 and permutations ≥ 1.")
    if not np.all(w >= 0) or not np.all(np.isfinite(w)):
        raise UsageError("Weights of users must be finite numbers of 0 or more.")
    if lower_is_better is None:
        lower_is_better = lower(metric) if metric else False
    both = ~np.isnan(a) & ~np.isnan(b) & (w > 0)
    if not both.any():
        raise DataError("The two runs share no user with a value, so they cannot be compared; use the same test set.")
    a, b, w = a[both], b[both], w[both]
    if not np.all(np.isfinite(a) & np.isfinite(b)):
        raise DataError("A value per user is infinite, so the two runs cannot be compared.")
    d = a - b
    low, high = bootstrap_interval(w * d, w, resamples=bootstrap, seed=seed)
    gain = -d if lower_is_better else d
    return Paired(
        users=len(d),
        first=float(w @ a / w.sum()),
        second=float(w @ b / w.sum()),
        difference=float(w @ d / w.sum()),
        interval=(float(low), float(high)),
        p_value=_sign_flip(w * d, permutations, seed),
        share_better=float(np.mean(gain > 0)),
        share_worse=float(np.mean(gain < 0)),
        metric=metric,
        names=names,
        lower_is_better=lower_is_better,
    )


def _sign_flip(d: np.ndarray, permutations: int, seed: int) -> float:
    """The share of sign patterns s with |Σ s d| ≥ |Σ d|."""
    d = d[d != 0]
    u, total = len(d), float(d.sum())
    # Sums of the same numbers in another order differ in their last bits: those count as equal.
    bar = abs(total) - 1e-12 * float(np.abs(d).sum())
    if u <= EXACT:
        patterns = (np.arange(1 << u)[:, None] >> np.arange(u)) & 1
        return float(np.mean(np.abs(2 * (patterns @ d) - total) >= bar))
    stream = derive(seed, "sign flips")
    height = max(1, SIGNS // u)
    extreme = 0
    for start in range(0, permutations, height):
        rows = min(height, permutations - start)
        bits = np.frombuffer(stream.bytes(-(-rows * u // 8)), dtype=np.uint8)
        plus = np.unpackbits(bits, count=rows * u).reshape(rows, u)
        extreme += int(np.count_nonzero(np.abs(2 * (plus.astype(np.float64) @ d) - total) >= bar))
    return (extreme + 1) / (permutations + 1)


CELLS = 500_000  # resampling weights held at once: they stay in cache


def bootstrap_interval(
    numerator: np.ndarray,
    denominator: np.ndarray | None = None,
    *,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 7,
) -> np.ndarray:
    """Low and high end for Σ numerator / Σ denominator, by the percentile bootstrap over users (Efron 1979).

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
