"""Small worlds for kernels, drawn by hypothesis: no rows, one row, one factor, empty users, zeros, huge numbers."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from tacit.kernels.embed import embed
from tacit.rng import derive


@dataclass(frozen=True)
class Case:
    """Ratings in compressed rows, with factors for both sides. `seed` says how it was drawn."""

    seed: int
    indptr: np.ndarray
    items: np.ndarray
    values: np.ndarray
    shift: float
    rows: np.ndarray
    users: np.ndarray
    factors: np.ndarray
    span: float

    @property
    def entry_users(self):
        return np.repeat(np.arange(len(self.indptr) - 1, dtype=np.int32), np.diff(self.indptr))

    @property
    def ratings(self):
        return self.indptr, self.items, self.values, self.shift


def make(seed, n=4, m=5, p=3, density=0.6, size=1.0, span=4.0, shift=1.0, feasible=False):
    """One case; `size` is the order of magnitude of the factors, `feasible` projects them."""
    stream = derive(seed, "kernel case")
    rated = stream.random((n, m)) < density
    users, items = np.nonzero(rated)
    factors = [(size * stream.exponential(size=(k, p))).astype(np.float32) for k in (n, m)]
    if feasible:
        factors = [embed(x, span) for x in factors]
    return Case(
        seed=seed,
        indptr=np.concatenate(([0], np.cumsum(rated.sum(axis=1)))).astype(np.int64),
        items=items.astype(np.int32),
        values=(shift + span * stream.random(len(users))).astype(np.float32),
        shift=shift,
        rows=np.flatnonzero(stream.random(n) < 0.7),
        users=factors[0],
        factors=factors[1],
        span=span,
    )


def cases(feasible=False, sizes=(0.0, 1e-6, 0.3, 1.0, 1e9)):
    """A strategy of cases, from nothing at all to a handful."""
    return st.builds(
        make,
        seed=st.integers(0, 2**32),
        n=st.integers(0, 6),
        m=st.integers(1, 7),
        p=st.sampled_from([1, 2, 3, 4, 7, 8, 9, 20]),
        density=st.sampled_from([0.0, 0.3, 0.7, 1.0]),
        size=st.sampled_from(sizes),
        span=st.sampled_from([0.5, 1.0, 4.0, 100.0]),
        shift=st.sampled_from([0.0, 0.5, 1.0, -10.0]),
        feasible=st.just(feasible),
    )


#: Enough for any planted bug to show.
FIXED = [make(seed) for seed in range(5)]
FIXED_FEASIBLE = [make(seed, feasible=True) for seed in range(5)]


def assert_near(actual, expected, magnitude, tolerance=1e-5):
    """Equal but for the order of float32 additions: |actual − expected| ≤ tolerance·magnitude."""
    assert actual.shape == expected.shape
    assert np.isfinite(actual).all()
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    assert np.all(difference <= tolerance * magnitude + 1e-30), float(np.max(difference))


def copies(*arrays):
    return [array.copy() for array in arrays]


def assert_finds(planted, check, kernel, cases, *rest):
    """`check` accepts the kernel on all cases, and refuses the planted bug on one of them."""
    for case in cases:
        check(kernel, case, *rest)
    for case in cases:
        try:
            check(planted, case, *rest)
        except AssertionError:
            return
    raise AssertionError("the planted bug was not found")
