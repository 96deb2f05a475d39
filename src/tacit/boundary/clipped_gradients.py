"""Gradients of the squared error that bound what one unit adds to them (P0, §4).

One rating's gradient is 2 (u_i·v_j − r_ij)·(v_j, u_i): v_j's multiple in user i's row, u_i's in item j's. *Embedding
clipping* bounds it by bounding u, v and r; *gradient clipping* bounds it directly.

Which Poisson sample amplifies which unit
-----------------------------------------
A sample of users amplifies the unit user. It does not amplify the unit rating, against P0, §4.1.2: a rating comes
with all the others of its user, and where these show that the user was sampled, the one that differs has its full
effect. With A, B, B' the answers without the user, with them, and with their changed record, the two outputs are
(1−η)A + ηB and (1−η)A + ηB'; the advanced joint convexity of Balle, Barthe and Gaboardi (2018) then needs B close to A,
which only trimming ensures. At noise multiplier 1, η = .01 and 1,000 steps, ε = 2.1 would be claimed (δ = 1e-6) where
26 is true. So the unit rating gets a sample of ratings (`sampled=Unit.RATING`), or is the replace case of a trimmed,
sampled user.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tacit.boundary.clipped_sums import (
    MARGIN,
    Bounded,
    block_names,
    check_ratings,
    finite,
    participants,
    positive,
    record_sensitivity,
)
from tacit.boundary.query import Blocks, Query, Rows
from tacit.boundary.trim import Part, check_rate, sample_ratings, sample_users, trim
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings, Scale
from tacit.errors import DataError, UsageError
from tacit.guarantee import Relation, Unit
from tacit.kernels.clipped import bounded_gradients, bounded_slopes
from tacit.kernels.embed import embed_rows
from tacit.kernels.entries import looked_up, shifted
from tacit.secure.quantize import Contributions

BLOCKS = ("users", "items")

#: What a peer's factors are cut to before gradients of them are clipped: products of four stay finite in float64.
LARGEST = 1e38


@dataclass(frozen=True)
class Gradient(Query):
    """What both ways of clipping share: sampling, trimming, the sum, and which unit is bounded by what.

    Answers at {"users": U (n, p), "items": V (m, p)} with sums over ratings, in blocks of the same names and shapes.

    Attributes
    ----------
    scale : declared, of span R; r − low is clipped into [0, R], whatever scale the ratings claim
    sampling : η, the rate of the Poisson sample that every answer draws for itself
    trim : θ, the ratings used of each user, drawn afresh for every answer; None uses all, and leaves the unit user
        unbounded
    blocks : which of the two to answer
    users_are_public : True where the users' factors are public or noised, as in the vertical setting; False where
        they were fitted at home to raw ratings
    sampled : Unit.USER or Unit.RATING, what the sample is of

    Guarantee
    ---------
    Let a be the bound of one rating's part and A that of θ ratings of one user. An empty record adds 0, so

    - user: A, twice that under replace; infinite without θ, and under a sample of ratings.
    - rating, users' factors public, no trimming: a, twice that under replace. With trimming 2a under every relation:
      where a rating is gone another one takes its place.
    - rating otherwise (factors fitted to it, or a sample of users): everything the user adds may change, so 2A under
      every relation: the replace case of the unit user.

    A scale read off the data bounds nothing: infinite.
    """

    scale: Scale
    sampling: float = field()
    trim: int | None = None
    blocks: tuple[str, ...] = BLOCKS
    users_are_public: bool = field(kw_only=True)
    sampled: Unit = field(default=Unit.USER, kw_only=True)

    threshold = math.inf

    def __post_init__(self) -> None:
        if self.trim is not None and (int(self.trim) != self.trim or self.trim < 1):
            raise UsageError(f"trim = {self.trim!r} is not possible; give an integer above 0.")
        if self.trim is not None and self.sampled is Unit.RATING:
            raise UsageError("Trimming bounds users, and a sample of ratings is for the unit rating; leave trim out.")
        object.__setattr__(self, "sampling", check_rate(self.sampling))
        object.__setattr__(self, "trim", None if self.trim is None else int(self.trim))
        object.__setattr__(self, "blocks", block_names("blocks", self.blocks, BLOCKS))
        object.__setattr__(self, "users_are_public", bool(self.users_are_public))

    @property
    def clip(self) -> float | None:
        """A, of item gradients alone, with users' factors at home: a contribution is all that a user adds."""
        most = self.sensitivity(Unit.USER, Relation.ZERO_OUT)
        return most if most < math.inf and self.blocks == ("items",) and not self.users_are_public else None

    def nonzero_coordinates(self, shapes: Mapping[str, tuple[int, ...]]) -> int:
        """θ rows of the item block."""
        return (self.trim or 1) * shapes["items"][1]

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        if not self.scale.declared:
            return math.inf
        if unit is Unit.RATING and self._by_rating:
            one = self._of_ratings(self.size, 1, self.blocks)
            return 2 * one if relation is Relation.REPLACE or self.trim is not None else one
        if self.trim is None or (self.sampling < 1 and self.sampled is Unit.RATING):
            return math.inf
        return record_sensitivity(self._of_ratings(self.size, self.trim, self.blocks), unit, relation)

    @property
    def largest(self) -> float:
        """What one user adds to an entry of an item's row: at most one rating's part, however many they have."""
        return self._of_ratings(self.size, 1, ("items",))

    def counted(self, unit: Unit) -> tuple[Unit, Relation]:
        """A rating that may change everything its user adds is the replace case of the user."""
        if unit is Unit.RATING and not self._by_rating:
            return Unit.USER, Relation.REPLACE
        return unit, Relation.ZERO_OUT

    def over(
        self, ratings: Ratings, at: Blocks | Callable[[Blocks], Blocks] | None = None, present: Array | None = None
    ) -> GradientSum:
        return GradientSum(self, ratings, at, present)

    # -- what each way of clipping defines ----------------------------------------------------------------------

    @property
    def size(self) -> float:
        """R or C: what bounds grow with."""
        raise NotImplementedError

    def clipped(self, x: Array, rows: Array) -> Array:
        """Rows of factors as gradients use them, (k, p) float64 and finite."""
        raise NotImplementedError

    @staticmethod
    def _of_ratings(size: float, used: int, blocks: Sequence[str]) -> float:
        """What `used` ratings of one user can add to these blocks: A for θ of them, a for one."""
        raise NotImplementedError

    @property
    def _by_rating(self) -> bool:
        """Whether a rating is bounded by itself, and no sample but one of ratings is drawn."""
        return self.users_are_public and (self.sampling == 1 or self.sampled is Unit.RATING)


@dataclass(frozen=True)
class EmbeddingGradient(Gradient):
    """Gradient sums at Π(U), Π(V): factors non-negative with norm ≤ √R, whatever a peer sent.

    Guarantee
    ---------
    0 ≤ u·v ≤ R and 0 ≤ r ≤ R, so |slope| ≤ 2R, and a rating adds at most 2R·√R = 2R^1.5 to its user's row and as much
    to its item's. A user's θ ratings share one row (norms add: θ) and fall in θ different item rows (squares add: √θ):

        rating: users 2R^1.5, items 2R^1.5, both 2√2·R^1.5
        user:   users θ·2R^1.5, items √θ·2R^1.5, both 2R^1.5·√(θ² + θ)

    r = 0 where u·v = R attains all of them. Without Π's sign |u·v − r| could reach 2R. Other attributes, and what
    holds for other relations, samples and homes: `Gradient`.
    """

    @property
    def size(self) -> float:
        return self.scale.span

    def clipped(self, x: Array, rows: Array) -> Array:
        return embed_rows(x, rows, MARGIN * self.scale.span)

    @staticmethod
    def _of_ratings(size: float, used: int, blocks: Sequence[str]) -> float:
        squares = sum({"users": used**2, "items": used}[name] for name in blocks)
        return 2 * size * math.sqrt(size * squares)


@dataclass(frozen=True)
class ClippedGradient(Gradient):
    """Gradient sums in which each rating's part, over the blocks answered, is clipped to norm C (as in DP-SGD).

    Attributes
    ----------
    threshold : C; the others as in `Gradient`

    Guarantee
    ---------
    A rating adds at most C, whatever the factors. Of a user's θ ratings let a_j be the parts in the user row and b_j
    those in item rows, ‖a_j‖² + ‖b_j‖² ≤ C². The rows of the b_j differ, so the contribution's square is at most
    (Σ‖a_j‖)² + Σ‖b_j‖² ≤ (Σ‖a_j‖)² − Σ‖a_j‖² + θC² = Σ_{j≠k} ‖a_j‖·‖a_k‖ + θC² ≤ θ(θ−1)C² + θC²:

        rating: C        user: users θ·C, items √θ·C, both θ·C

    u = 0 attains "both", since then b_j = 0.
    """

    threshold: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "threshold", positive("threshold", self.threshold))

    @property
    def size(self) -> float:
        return self.threshold

    def clipped(self, x: Array, rows: Array) -> Array:
        return np.clip(finite(x[rows]), -LARGEST, LARGEST)

    @staticmethod
    def _of_ratings(size: float, used: int, blocks: Sequence[str]) -> float:
        return size * (used if "users" in blocks else math.sqrt(used))


class GradientSum(Bounded):
    """Either gradient over a party's ratings: a fresh sample, trimmed, and the sum of its bounded parts.

    `at` are blocks that `state` does not have, or a function that makes them from it. Where users' factors are fitted
    at home, each row may depend on that user's ratings, on `state` and on secret randomness only.
    """

    def __init__(
        self,
        query: Gradient,
        ratings: Ratings,
        at: Blocks | Callable[[Blocks], Blocks] | None = None,
        present: Array | None = None,
    ) -> None:
        check_ratings(ratings)
        self.query, self.ratings, self._at = query, ratings, at or {}
        self.present = None if present is None else participants(present, ratings.n_users)

    def exact(self, state: Blocks, stream: np.random.Generator) -> dict[str, Rows]:
        query, (U, V) = self.query, self._factors(state)
        part = self._part(stream)
        rows, places = looked_up(self.ratings.items, part.entries, len(V))
        by_user, by_item = bounded_gradients(
            part.indptr,
            places,
            self._rated(part.entries),
            query.clipped(U, part.rows),
            query.clipped(V, rows),
            MARGIN * query.threshold,
            "users" in query.blocks,
            "items" in query.blocks,
        )
        answer = {"users": Rows(len(U), part.rows, by_user), "items": Rows(len(V), rows, by_item)}
        return {name: answer[name] for name in query.blocks}

    def contributions(self, state: Blocks, stream: np.random.Generator) -> Contributions:
        """What each sampled user adds to the item rows; of item gradients alone."""
        query = self.query
        if query.blocks != ("items",) or query.users_are_public:
            raise UsageError(
                "Only gradients of item factors alone, with users' factors at home, are sums of per-user contributions."
            )
        U, V = self._factors(state)
        part, p = self._part(stream), V.shape[1]
        rows, places = looked_up(self.ratings.items, part.entries, len(V))
        u = query.clipped(U, part.rows)
        slopes = bounded_slopes(
            part.indptr, places, self._rated(part.entries), u, query.clipped(V, rows), MARGIN * query.threshold
        )
        owners = np.repeat(np.arange(len(part.rows)), np.diff(part.indptr))
        cells = rows[places][:, None] * p + np.arange(p)
        return Contributions(part.indptr * p, cells.ravel(), (slopes[:, None] * u[owners]).ravel(), V.size)

    def _part(self, stream: np.random.Generator) -> Part:
        """The ratings that this answer looks at: a fresh sample, trimmed."""
        query = self.query
        draw = sample_users if query.sampled is Unit.USER else sample_ratings
        part = draw(self.ratings.indptr, query.sampling, stream, self.present)
        return part if query.trim is None else trim(part, self.ratings.items, query.trim, stream)

    def _rated(self, entries: Array) -> Array:
        """r − low in [0, R]; NaN counts as 0."""
        scale = self.query.scale
        return shifted(self.ratings.values, entries, scale.low, scale.span)

    def _factors(self, state: Blocks) -> tuple[Array, Array]:
        blocks = {**(self._at(state) if callable(self._at) else self._at), **state}
        U, V = blocks["users"], blocks["items"]
        n, m = self.ratings.n_users, self.ratings.n_items
        if U.ndim != 2 or V.ndim != 2 or (len(U), len(V)) != (n, m) or U.shape[1] != V.shape[1]:
            raise DataError(f"Factors of shapes {U.shape} and {V.shape} do not fit {n:,} users and {m:,} items.")
        return U, V
