"""Sums of whole records scaled to length 1: within what the query says, whatever is fitted; planted bugs are found."""

import math
from dataclasses import replace

import numpy as np
import pytest
from bounded_cases import (
    CASES,
    RATING,
    REPLACE,
    SEEDS,
    USER,
    WORLDS,
    ZERO_OUT,
    assert_bounded,
    assert_same_in_chunks,
    by_user,
    make_world,
    moved,
    neighbour,
    ratings_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary import scaled_records
from tacit.boundary.scaled_records import ScaledRecords, ScaledSum
from tacit.rng import derive

NOWHERE = derive(0, "nothing is drawn")
QUERY = ScaledRecords(("joint", "errors"), 0.1, 3.0)
#: What numbers are multiplied by: as they are, at the edges of float64, and in one part only.
SIZES = ((1, 1, 1), (1e-300, 1e-300, 1e-300), (1e300, 1e300, 1e300), (1e-200, 1, 0), (0, 0, 1), (1, 1e160, 1e-160))


def fitted(world, sizes=(1, 1, 1)):
    """M, x, r and p of every user, all of them functions of the whole record; poison in, poison out."""
    ratings = world.ratings
    with np.errstate(all="ignore"):
        values = ratings.values.astype(np.float64)
        x = world.users.astype(np.float64)
        np.add.at(x, ratings.users, values[:, None] * world.items[ratings.items])
        moments = np.concatenate([x * x[:, :1], x - 1], axis=1) * sizes[0]
        own = {"joint": x[:, :1] * x * sizes[2], "errors": np.stack([x.sum(axis=1), ratings.counts - 2.0], axis=1)}
        return ratings, moments, x * sizes[1], values, own


def over(world, sizes=(1, 1, 1), kind=ScaledSum, **options):
    return kind(QUERY, *fitted(world, sizes), **options)


@given(WORLDS, SEEDS, st.sampled_from(CASES), st.sampled_from(SIZES))
@settings(deadline=None, max_examples=300)
def test_it_moves_by_no_more_than_it_says_whatever_is_fitted(world, seed, case, sizes):
    near, _ = neighbour(world, seed, *case)
    if near is not None:
        assert_bounded(over(world, sizes), over(near, sizes), *case)


@given(WORLDS, st.sampled_from(SIZES))
@settings(deadline=None, max_examples=150)
def test_every_user_adds_a_vector_of_length_one_at_most_and_an_empty_record_exactly_nothing(world, sizes):
    answering = over(world, sizes)
    rows = by_user(answering.contributions({}, NOWHERE))
    for record, row in zip(world.records, rows, strict=True):
        assert math.sqrt(math.fsum(row**2)) <= 1
        assert record or not row.any()
    exact = answering.exact({}, NOWHERE)
    assert list(exact) == ["moments", "targets", "errors", "joint"]
    whole = np.concatenate([exact[name].ravel() for name in sorted(exact)])
    np.testing.assert_array_equal(rows.sum(axis=0), whole)  # to the last bit, in whatever order they are added


def test_the_bounds_are_reached():
    full, none = (replace(make_world(3, poison=False), records=[r, [], []]) for r in ([(j, 5.0) for j in range(8)], []))
    assert moved(over(full), over(none)) == pytest.approx(1, abs=1e-5)
    ratings = ratings_of([[(0, 2.0)]], 1)
    one, other = (
        QUERY.over(ratings, x, x, np.ones(1), {"joint": x, "errors": x}) for x in np.array([[[9.0]], [[-9.0]]])
    )
    assert moved(one, other) == pytest.approx(2, abs=1e-5)


def test_the_absent_add_nothing_and_parts_are_the_whole(monkeypatch):
    world = make_world(11, n=4, poison=False)
    nobody = over(world, present=np.zeros(4, dtype=bool)).exact({}, NOWHERE)
    assert not any(block.any() for block in nobody.values())
    monkeypatch.setattr(scaled_records, "AT_ONCE", 40)
    assert assert_same_in_chunks(over(world), 40, 200) > 1


def furthest(kind, case, sizes=(1, 1, 1), query=QUERY, tries=300):
    """By how much the worst of many neighbours exceeds the claim; 1 is as far as is stated."""
    worst = 0.0
    for seed in range(tries):
        world = make_world(seed, m=4, poison=False)
        near, _ = neighbour(world, seed, *case)
        if near is not None:
            here, there = (kind(query, *fitted(w, sizes)) for w in (world, near))
            worst = max(worst, moved(here, there) / query.sensitivity(*case))
    return worst


class TargetsOutside(ScaledSum):
    """Right-hand sides are not within the scaling."""

    @property
    def rows(self):
        return super().rows[0], np.clip(self._given[1], -1, 1)


class OneScale(ScaledSum):
    """One scale for everybody, which a single record moves."""

    @property
    def rows(self):
        moments, means = super().rows
        return moments / max(np.abs(moments).max(), 1e-9), means


class EmptyToo(ScaledSum):
    """Someone without ratings says what the prior says."""

    def said(self, first, last):
        return {name: np.clip(x[first:last], -0.1, 0.1) for name, x in self.own.items()}


class PerItem(ScaledSum):
    """Every item's part has length 1, and not all of them together."""

    @property
    def rows(self):
        moments, means = super().rows
        root = np.sqrt(self.ratings.counts)[:, None]
        return moments * root, means * root


@pytest.mark.parametrize("kind", [TargetsOutside, OneScale, PerItem])
def test_planted_bugs_exceed_the_claim(kind):
    assert furthest(ScaledSum, (USER, ZERO_OUT)) <= 1
    assert furthest(kind, (USER, ZERO_OUT)) > 1


def test_planted_an_empty_record_that_adds_its_prior_is_found():
    world = replace(make_world(5, poison=False), records=[[], [(0, 5.0)], []])
    assert not by_user(over(world).contributions({}, NOWHERE))[0].any()
    assert by_user(over(world, kind=EmptyToo).contributions({}, NOWHERE))[0].any()


class PerRating(ScaledRecords):
    """The claim that a rating moves no more than its user's record would, as if nothing were fitted."""

    def sensitivity(self, unit, relation):
        return super().sensitivity(USER, relation)


def test_planted_a_claim_per_rating_is_exceeded_where_users_are_fitted():
    claimed = PerRating(QUERY.own, QUERY.share, QUERY.limit)
    for relation in (ZERO_OUT, REPLACE):
        assert furthest(ScaledSum, (RATING, relation)) <= 1
    assert furthest(ScaledSum, (RATING, ZERO_OUT), query=claimed) > 1
