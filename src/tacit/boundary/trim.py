"""Which ratings a query looks at: Poisson samples of users or ratings, and random trimming.

Everything here depends on a user's own record and on fresh secret randomness, never on another user's record. Draws
are made per user of the public roster, so one user's record does not shift another's draws.
"""

from dataclasses import dataclass

import numpy as np

from tacit.boundary.randomness import SecureStream
from tacit.boundary.wire import Array
from tacit.errors import DataError, UsageError
from tacit.kernels.entries import entries_of, first_fault, rows_of, trimmed


@dataclass(frozen=True, eq=False)
class Part:
    """Some entries of compressed rows.

    Attributes
    ----------
    rows : (k,) the users it may have entries of, increasing
    indptr : (k+1,) int64; the a-th of them has entries[indptr[a] : indptr[a+1]]
    entries : positions in the full arrays, increasing
    """

    rows: Array
    indptr: Array
    entries: Array


def check_rows(indptr: Array, items: Array, n_items: int) -> None:
    """Refuse what is not compressed rows with one rating per user and item, on which sensitivities rest."""
    if indptr.ndim != 1 or len(indptr) < 1 or indptr[0] != 0 or indptr[-1] != len(items) or (np.diff(indptr) < 0).any():
        raise DataError(f"The row pointers must go from 0 to {len(items):,} and never decrease; build them again.")
    entry = first_fault(indptr, items, n_items)
    if entry >= 0 and not 0 <= items[entry] < n_items:
        raise DataError(f"An item lies outside the {n_items:,} columns of the catalogue; give the whole catalogue.")
    if entry >= 0:
        user = int(np.searchsorted(indptr, entry, side="right")) - 1
        raise DataError(
            f"The items of row {user} do not increase at entry {entry}: one user may rate an item once, in order of "
            "column; merge the ratings of a pair first."
        )


def check_rate(rate: float) -> float:
    """A Poisson sampling rate, in (0, 1]."""
    if not 0 < rate <= 1:
        raise UsageError(f"sampling = {rate!r} is not possible; give a rate above 0 and at most 1.")
    return float(rate)


def sample_users(indptr: Array, rate: float, stream: np.random.Generator, present: Array | None = None) -> Part:
    """All entries of a Poisson sample of users: each is in it with probability `rate`, independently.

    `present` (n,) bool, leaves the others out; who is present may not depend on data.
    """
    n = len(indptr) - 1
    drawn = np.ones(n, dtype=bool) if rate == 1 else stream.random(n) < rate
    (rows,) = (drawn if present is None else drawn & present).nonzero()
    return Part(rows, *entries_of(indptr, rows))


def sample_ratings(indptr: Array, rate: float, stream: np.random.Generator, present: Array | None = None) -> Part:
    """Ratings, each with probability `rate`: a binomial number of them, every set of that size equally likely."""
    total = int(indptr[-1])
    if rate == 1:
        return sample_users(indptr, 1, stream, present)
    if isinstance(stream, SecureStream):
        entries = stream.among(total, rate)
    else:
        few = stream.choice(total, stream.binomial(total, rate), replace=False, shuffle=False)
        entries = np.sort(few).astype(np.int64)
    if present is not None:
        entries = entries[np.repeat(present, np.diff(indptr))[entries]]
    return Part(*rows_of(indptr, entries), entries)


def trim(part: Part, items: Array, limit: int, stream: np.random.Generator) -> Part:
    """At most `limit` entries of each user, uniformly at random.

    Each user draws a secret key; an item's rank is a hash of key and item, and the lowest `limit` ranks stay. So what
    stays depends on the user's items and key alone; without one of the ratings the same key selects the same others,
    with at most one other in its place. The bound is the count, whatever the hash: its quality matters for fairness
    among the ratings, not for privacy.

    Parameters
    ----------
    items : (nnz,) the columns of all entries
    limit : θ, public
    """
    keys = stream.bit_generator.random_raw(len(part.rows))  # as stream.integers(0, 2**64), but faster
    return Part(part.rows, *trimmed(part.indptr, part.entries, items, keys, limit))
