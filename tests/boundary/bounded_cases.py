"""Worlds and neighbours for bounded queries, as bad as they can be: extremes, poison, long and empty records."""

from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as st

from tacit.boundary.query import Rows
from tacit.data.ratings import Ratings, Scale
from tacit.data.vocabulary import Vocabulary
from tacit.guarantee import Relation, Unit
from tacit.rng import derive
from tacit.secure.quantize import Repeated

ZERO_OUT, ADD_REMOVE, REPLACE = Relation.ZERO_OUT, Relation.ADD_REMOVE, Relation.REPLACE
USER, RATING = Unit.USER, Unit.RATING
CASES = [(unit, relation) for unit in (USER, RATING) for relation in (ZERO_OUT, ADD_REMOVE, REPLACE)]
SCALES = [(1, 5), (-10, 10), (0, 1), (0.5, 5)]
SEEDS = st.integers(0, 2**32)


def ratings_of(records, m, scale=(1, 5), declared=True):
    """Ratings from one list of (item, value) a user, taken as they are: no order is checked here."""
    n, pairs = len(records), [pair for record in records for pair in record]
    return Ratings(
        indptr=np.cumsum([0, *map(len, records)]).astype(np.int64),
        items=np.array([j for j, _ in pairs], dtype=np.int32),
        values=np.array([r for _, r in pairs], dtype=np.float32),
        user_ids=Vocabulary(np.arange(n), "user"),
        item_ids=Vocabulary(np.arange(m), "item"),
        scale=Scale(*scale, declared=declared),
    )


def rows_of(indptr, items, m):
    """Compressed rows alone, of whatever kind: what sums over channels need of ratings."""
    return SimpleNamespace(indptr=indptr, items=items, n_items=m, n_users=len(indptr) - 1)


@dataclass(frozen=True)
class World:
    """Records of a few users, and factors as a peer might send them."""

    records: list
    m: int
    scale: tuple
    users: np.ndarray
    items: np.ndarray

    @property
    def ratings(self):
        return ratings_of(self.records, self.m, self.scale)

    @property
    def state(self):
        return {"users": self.users, "items": self.items}

    def with_record(self, i, record):
        records = list(self.records)
        records[i] = sorted(record)
        return replace(self, records=records)

    def with_user(self, i, row):
        users = self.users.copy()
        users[i] = row
        return replace(self, users=users)


def value(stream, scale, poison):
    low, high = scale
    choices = [low, high, low, high, (low + high) / 2]
    return float(stream.choice([*choices, np.nan, np.inf, -np.inf, 1e30, -1e30] if poison else choices))


def record(stream, m, scale, poison=True):
    """Nothing, one rating, some, or every item of the catalogue."""
    size = int(stream.choice([0, 1, max(1, m // 2), m, m]))
    same = value(stream, scale, poison)
    alike = stream.random() < 0.5
    items = np.sort(stream.choice(m, size, replace=False))
    return [(int(j), same if alike else value(stream, scale, poison)) for j in items]


def row(stream, p, size, poison):
    """Factors at the norm bound, on one axis or another; beyond it; poison."""
    axis = np.zeros(p)
    axis[int(stream.integers(0, p))] = size
    first = np.zeros(p)
    first[0] = size
    choices = [axis, first, first, np.full(p, size / np.sqrt(p)), np.zeros(p), stream.random(p) * size]
    if poison:
        bad = np.array([np.nan, np.inf, -np.inf, 3e38, -3e38, -size, 1e-40])
        choices += [1e6 * axis, -first, stream.choice(bad, p), np.full(p, 3e38)]
    return choices[int(stream.integers(0, len(choices)))]


def make_world(seed, n=3, m=8, p=2, scale=(1, 5), poison=True):
    stream = derive(seed, "bounded world")
    size = np.sqrt(scale[1] - scale[0])
    factors = [np.array([row(stream, p, size, poison) for _ in range(k)]).astype(np.float32) for k in (n, m)]
    return World([record(stream, m, scale, poison) for _ in range(n)], m, scale, *factors)


WORLDS = st.builds(
    make_world,
    seed=SEEDS,
    n=st.integers(1, 4),
    m=st.sampled_from([1, 2, 8, 13]),
    p=st.sampled_from([1, 2, 3]),
    scale=st.sampled_from(SCALES),
    poison=st.booleans(),
)


def neighbour(world, seed, unit, relation):
    """A neighbour under a unit and relation, and the user who differs; None where there is nothing to change."""
    stream = derive(seed, "bounded neighbour")
    i = int(stream.integers(0, len(world.records)))
    mine = world.records[i]
    if unit is USER:
        return world.with_record(i, [] if relation is not REPLACE else record(stream, world.m, world.scale)), i
    if not mine:
        return None, i
    gone = int(stream.integers(0, len(mine)))
    rest = mine[:gone] + mine[gone + 1 :]
    if relation is not REPLACE:
        return world.with_record(i, rest), i
    free = sorted(set(range(world.m)) - {j for j, _ in rest})
    new = (int(stream.choice(free)), value(stream, world.scale, True))
    return world.with_record(i, [*rest, new]), i


def by_user(contributions):
    """Contributions as dense vectors, one row each."""
    dense = np.zeros((len(contributions.starts) - 1, contributions.size))
    for a, (low, high) in enumerate(pairwise(contributions.starts)):
        assert len(np.unique(contributions.cells[low:high])) == high - low  # a cell occurs once in a contribution
        dense[a, contributions.cells[low:high]] = contributions.values[low:high]
    return dense


def assert_same_in_chunks(answering, at_once, widest):
    """Some users at a time add the same as all at once, and no more than fit are held; returns how many chunks."""
    whole = answering.contributions({}, derive(1, "unused"))
    parts = answering.chunks({}, derive(1, "unused"))
    chunks = [part.each if isinstance(part, Repeated) else part for part in parts]
    for name in ("values", "cells"):
        assert np.array_equal(np.concatenate([getattr(c, name) for c in chunks]), getattr(whole, name))
    assert np.array_equal(np.concatenate([np.diff(c.starts) for c in chunks]), np.diff(whole.starts))
    assert all(len(c.values) <= max(at_once, widest) for c in chunks)  # what fits, or one user
    return len(chunks)


def distance(one, other):
    assert one.keys() == other.keys()
    assert all(np.isfinite(block).all() for answer in (one, other) for block in answer.values())
    return float(np.sqrt(sum(np.square(one[name] - other[name], dtype=np.float64).sum() for name in one)))


def exactly(answering, state, stream):
    """The exact answer, its blocks whole."""
    answer = answering.exact(state, stream)
    return {name: block.dense() if isinstance(block, Rows) else block for name, block in answer.items()}


def moved(answering, near, state=None, near_state=None, seed=0):
    """How far apart two neighbours' answers are, in float64 and under one stream."""
    here = exactly(answering, state or {}, derive(seed, "answer"))
    there = exactly(near, (state if near_state is None else near_state) or {}, derive(seed, "answer"))
    return distance(here, there)


def assert_bounded(answering, near, unit, relation, *where, seed=0):
    """The distance is within the claim: exactly in float64, and up to the last place of each cell in float32."""
    claim = answering.query.sensitivity(unit, relation)
    assert near.query == answering.query  # the claim is of data that neither half has seen
    assert moved(answering, near, *where, seed=seed) <= claim
    state, near_state = (*where, {}, {})[:2] if len(where) > 1 else (*where, {})[:1] * 2
    here, there = answering(state, derive(seed, "answer")), near(near_state, derive(seed, "answer"))
    assert all(block.dtype == np.float32 for block in here.values())
    last_place = np.sqrt(sum(np.square(np.spacing(np.abs(b))).sum() for a in (here, there) for b in a.values()))
    assert distance(here, there) <= claim + 2 * last_place
