"""Sums that bound what one user adds to them, and say by how much: each clips or normalises before it adds.

A bound C on every user's contribution, an empty record adding exactly 0, is the sensitivity under zero-out and under
add/remove. Under replace one contribution gives way to another, so it is 2C. One rating may change everything that its
user sends, so the unit rating is the replace case of the unit user whatever the relation: 2C, never cheaper.

What the caller must ensure: a user's numbers are functions of their own record, of what was released before, and of
fresh secret randomness. C and the catalogue's size are public, and nothing is divided by a count.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.boundary.query import Blocks, Exact, Query, Rows
from tacit.boundary.trim import check_rows
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.errors import DataError, PrivacyRefused, UsageError
from tacit.guarantee import Relation, Unit
from tacit.secure.quantize import Contributions, Summands

#: Limits are met a millionth early: rounding lifts a norm of k numbers by less than k·2⁻⁵³ of itself, so no norm of
#: fewer than 2³² numbers exceeds its limit in float64 either.
MARGIN = 1 - 2.0**-20


class Bounded:
    """An answer that is computed in float64, `exact`, and returned in float32; `query` says what bounds it.

    Bounds hold for `exact`, rounding included. The answer is rounded once, to half a unit in the last place of each
    cell: a relative 6e-8, which the analysis of seeded noise leaves out as it leaves out the rounding of the noise.
    """

    query: Any

    def exact(self, state: Blocks, stream: np.random.Generator) -> Mapping[str, Exact]:
        """The answer, float64."""
        raise NotImplementedError(f"{type(self).__name__} must say what it answers.")

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """What each user, or each rating, adds; refused where the answer is not a sum of bounded contributions."""
        raise PrivacyRefused(
            f"A {type(self).__name__} exposes no per-user contributions, so it cannot run under secagg."
        )

    def chunks(self, state: Blocks, stream: np.random.Generator) -> Iterator[Summands]:
        """The contributions, some users at a time where all would take too much memory."""
        yield self.contributions(state, stream)

    def __call__(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return {name: as_float32(block) for name, block in self.exact(state, stream).items()}


@dataclass(frozen=True)
class Normalised(Query):
    """Σ_u w_u·x_uj per item j, every user's whole contribution having ℓ2 norm 1.

    x_uj has one number per channel, and w_u = 1/√(Σ_j ‖x_uj‖²); a user without ratings, or with zeros only, adds 0.
    `channels` names the numbers of a rating, and the blocks of the answer.

    Guarantee
    ---------
    Blocks of shape (m,), one per channel. Sensitivity 1 per user under zero-out and add/remove, 2 under replace: there
    is one rating per user and item, so a user's numbers fall in different cells, and the sum moves by their norm, ≤ 1.
    Per rating 2 under every relation: the user's mean and w_u change with it, and ‖x − x'‖ ≤ ‖x‖ + ‖x'‖ ≤ 2. The bound
    holds in floating point: norms are cut to 1 − 2⁻²⁰, contributions to a grid on which sums are exact.

    >>> Normalised(("sum",)).sensitivity(Unit.USER, Relation.REPLACE)
    2.0
    """

    channels: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "channels", block_names("channels", self.channels))

    @property
    def clip(self) -> float:
        return 1.0

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.clip, unit, relation)

    def over(self, ratings: Ratings, channels: Blocks, present: Array | None = None) -> NormalisedSum:
        return NormalisedSum(self, ratings, channels, present)


class NormalisedSum(Bounded):
    """`Normalised` over a party's ratings.

    `channels` are name → (nnz,); a user's entries may depend on their own record and on released state only.
    """

    def __init__(self, query: Normalised, ratings: Ratings, channels: Blocks, present: Array | None = None) -> None:
        check_ratings(ratings)
        check_blocks("channels", query.channels, channels)
        if any(np.shape(x) != (len(ratings.items),) for x in channels.values()):
            raise DataError(
                f"A normalised sum needs channels of one number for each of the {len(ratings.items):,} ratings."
            )
        self.query, self.ratings = query, ratings
        self.channels = {name: channels[name] for name in query.channels}
        self.present = participants(present, ratings.n_users)

    def bounded_values(self) -> dict[str, Array]:
        """What every rating adds, (nnz,) float64 per channel."""
        indptr = self.ratings.indptr
        x = np.stack([np.asarray(x, np.float64) for x in self.channels.values()])
        x = bounded_rows(indptr, x, 1.0, exactly=True) * np.repeat(self.present, np.diff(indptr))
        return dict(zip(self.channels, on_grid(x, 1.0, self.ratings.n_users), strict=True))

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return item_sums(self.ratings, self.bounded_values())

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """A user's numbers in all channels are one contribution."""
        ratings = self.ratings
        return item_contributions(ratings.indptr, ratings.items, self.bounded_values(), ratings.n_items)


@dataclass(frozen=True)
class Clipped(Query):
    """Σ_u min(1, C/‖x_u‖)·x_u, where x_u is all of user u's blocks together and C is `limit`.

    Guarantee
    ---------
    Blocks of shape (…). Sensitivity C per user, 2C under replace, 2C per rating under every relation: before and after
    are two vectors in a ball of radius C. `bounded_rows` and `on_grid` preserve it in floating point. To send a
    symmetric matrix at its Frobenius norm send its upper triangle with off-diagonals times √2 (`packed`).
    """

    blocks: tuple[str, ...]
    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", block_names("blocks", self.blocks))
        object.__setattr__(self, "limit", positive("limit", self.limit))

    @property
    def clip(self) -> float:
        return self.limit

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return record_sensitivity(self.limit, unit, relation)

    def over(self, vectors: Blocks, counts: Array, present: Array | None = None) -> ClippedSum:
        return ClippedSum(self, vectors, counts, present)


class ClippedSum(Bounded):
    """`Clipped` over a party's users.

    Parameters
    ----------
    vectors : name → (n, …), one row per user, a function of the user's own record and of released state
    counts : (n,), how many ratings each user has; a user without any adds exactly 0, whatever their row holds
    """

    def __init__(self, query: Clipped, vectors: Blocks, counts: Array, present: Array | None = None) -> None:
        check_blocks("blocks", query.blocks, vectors)
        if any(len(x) != len(counts) for x in vectors.values()):
            raise DataError(f"A clipped sum needs blocks of one row for each of the {len(counts):,} users.")
        self.query, self.vectors = query, {name: np.asarray(vectors[name]) for name in query.blocks}
        self.taking_part = participants(present, len(counts)) & (np.asarray(counts) > 0)

    def bounded_values(self) -> dict[str, Array]:
        """What every user adds, (n, …) float64 per block."""
        limit, n = self.query.limit, len(self.taking_part)
        widths = [math.prod(x.shape[1:]) for x in self.vectors.values()]
        flat = np.concatenate([x.reshape(n, w) for x, w in zip(self.vectors.values(), widths, strict=True)], axis=1)
        clipped = on_grid(clipped_rows(flat, limit), limit, n) * self.taking_part[:, None]
        parts = np.split(clipped, np.cumsum(widths)[:-1], axis=1)
        return {name: part.reshape(x.shape) for (name, x), part in zip(self.vectors.items(), parts, strict=True)}

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        return {name: x.sum(axis=0) for name, x in self.bounded_values().items()}

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """A user's row over all blocks is one contribution."""
        n = len(self.taking_part)
        flat = np.concatenate([x.reshape(n, -1) for _name, x in sorted(self.bounded_values().items())], axis=1)
        size = flat.shape[1]
        return Contributions(size * np.arange(n + 1), np.tile(np.arange(size), n), flat.ravel(), size)


@dataclass(frozen=True)
class ClippedWhole(Query):
    """min(1, C/‖x‖)·x for one x computed from everybody's record, such as trained factors or a group's upload.

    Guarantee
    ---------
    Sensitivity 2C under every unit and relation, C being `limit`: nothing ties the answers of two neighbours to each
    other but the ball of radius C that both lie in, and x and −x attain it. It is not a sum over units, so no smaller
    number holds.
    """

    limit: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", positive("limit", self.limit))

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return 2 * self.limit

    def over(self, blocks: Blocks, present: Array | None = None) -> ClippedAnswer:
        return ClippedAnswer(self, blocks)


class ClippedAnswer(Bounded):
    """`ClippedWhole` of an x given as `blocks`, computed from those users only who are present."""

    def __init__(self, query: ClippedWhole, blocks: Blocks) -> None:
        if not blocks:
            raise DataError("A clipped answer needs at least one block.")
        self.query, self.blocks = query, {name: np.asarray(x) for name, x in blocks.items()}

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Array]:
        flat = np.concatenate([x.reshape(1, -1) for x in self.blocks.values()], axis=1)
        ends = np.cumsum([x.size for x in self.blocks.values()])
        parts = np.split(clipped_rows(flat, self.query.limit)[0], ends[:-1])
        return {name: part.reshape(x.shape) for (name, x), part in zip(self.blocks.items(), parts, strict=True)}


def as_float32(block: Exact) -> Array:
    """An exact block as it travels: dense, in float32."""
    return (block.dense() if isinstance(block, Rows) else block).astype(np.float32)


def record_sensitivity(bound: float, unit: Unit, relation: Relation) -> float:
    """The sensitivity of a sum to which every user adds at most `bound`, computed from their whole record."""
    return bound if unit is Unit.USER and relation is not Relation.REPLACE else 2 * bound


def bounded_rows(indptr: Array, x: Array, limit: float, *, exactly: bool = False) -> Array:
    """`x` (k, nnz) scaled user by user so that each one's k·count numbers have ℓ2 norm at most `limit`, a new array.

    With `exactly`, norms are the limit itself (but for `MARGIN`); zeros stay zeros. What is not finite counts as 0.
    A user's largest number is divided out before squaring, so squares neither overflow nor vanish.
    """
    x = finite(x)
    counts = np.diff(indptr)
    users = np.flatnonzero(counts)
    if not len(users):
        return x
    starts, counts = indptr[users], counts[users]
    largest = np.maximum.reduceat(np.abs(x).max(axis=0), starts)
    peak = np.where(largest > 0, largest, 1.0)
    x /= np.repeat(peak, counts)
    norms = np.sqrt(np.add.reduceat(np.square(x).sum(axis=0), starts))
    scale = MARGIN * limit / np.maximum(norms, 1.0)  # 1 ≤ norm, but for users whose numbers are all 0
    x *= np.repeat(scale if exactly else np.minimum(scale, peak), counts)
    return x


def clipped_rows(x: Array, limit: float) -> Array:
    """`x` (n, d) with rows of norm at most `limit`, a new float64 array."""
    n, d = x.shape
    return bounded_rows(d * np.arange(n + 1), x.reshape(1, -1), limit).reshape(n, d)


def finite(x: Array) -> Array:
    """A float64 copy in which NaN and infinities are 0."""
    return np.nan_to_num(np.asarray(x, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)


def on_grid(x: Array, limit: float, n: int) -> Array:
    """`x` cut towards 0 to a grid so fine that 2⁵² points hold n·limit: sums over n users are then exact, in any order.

    Cutting never lengthens a vector; it costs at most 2⁻³⁸ of the limit in a cell with 10,000 users.
    """
    grid = 2.0 ** max(-1000, math.ceil(math.log2(limit)) + math.ceil(math.log2(max(n, 1))) - 52)
    cut: Array = np.trunc(x / grid) * grid
    return cut


def item_sums(ratings: Ratings, values: Blocks) -> dict[str, Array]:
    """Numbers per rating, (nnz,) per block, summed by item."""
    sums = {name: np.bincount(ratings.items, weights=x, minlength=ratings.n_items) for name, x in values.items()}
    return {name: x.astype(np.float64) for name, x in sums.items()}


def item_contributions(starts: Array, items: Array, channels: Blocks, n_items: int) -> Contributions:
    """Contributions with one number per channel in each of their entries; a channel is a block of `n_items` cells."""
    names = sorted(channels)
    cells = np.stack([place * n_items + items.astype(np.int64) for place, _name in enumerate(names)], axis=1)
    values = np.stack([channels[name] for name in names], axis=1)
    return Contributions(len(names) * starts, cells.ravel(), values.ravel(), len(names) * n_items)


def user_batches(indptr: Array, most: int) -> Iterator[tuple[int, int]]:
    """Users first … last − 1, so many at a time that they have `most` ratings or fewer, or one user."""
    first, n = 0, len(indptr) - 1
    while first < n:
        reach = indptr[first] + max(1, most)
        last = min(max(first + 1, int(np.searchsorted(indptr, reach, side="right")) - 1), n)
        yield first, last
        first = last


def participants(present: Array | None, n: int) -> Array:
    """Who takes part, (n,) bool; None means all. It is public, and may not depend on data."""
    if present is not None and np.shape(present) != (n,):
        raise DataError(f"`present` has the shape {np.shape(present)}; give one entry for each of {n:,} users.")
    return np.ones(n, dtype=bool) if present is None else np.asarray(present, dtype=bool)


def check_ratings(ratings: Ratings) -> None:
    """Refuse rows that are not one per user, with one rating per user and item."""
    check_rows(ratings.indptr, ratings.items, ratings.n_items)
    if len(ratings.indptr) != ratings.n_users + 1:
        raise DataError(f"There are {len(ratings.indptr) - 1:,} rows for {ratings.n_users:,} users.")


def check_blocks(what: str, declared: Sequence[str], given: Blocks) -> None:
    """Refuse data under other names than a query declares."""
    if set(given) != set(declared):
        raise DataError(
            f"The query declares the {what} {', '.join(declared)}, and the data has {', '.join(given) or 'none'}; "
            "give one array for each that is declared."
        )


def block_names(what: str, given: Sequence[str], possible: Sequence[str] | None = None) -> tuple[str, ...]:
    """The names of an answer's blocks: at least one, each of them once; of the `possible` ones, in their order."""
    if isinstance(given, str) or not given or len(set(given)) != len(given):
        raise UsageError(f"{what} = {given!r} is not possible; give one name or more, each of them once.")
    if possible is None:
        return tuple(given)
    if set(given) - set(possible):
        raise UsageError(f"{what} = {given!r} is not possible; choose from {', '.join(possible)}.")
    return tuple(name for name in possible if name in given)


def positive(name: str, value: float) -> float:
    """A public bound."""
    if not 0 < value < math.inf:
        raise UsageError(f"{name} = {value!r} bounds nothing; give a finite number above 0.")
    return float(value)
