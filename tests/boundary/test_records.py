"""Clipped records: neighbours' gradients are within the clip whatever is thrown at them, and leave it without one."""

import math
from dataclasses import replace
from unittest.mock import patch

import bounded_cases as cases
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
    World,
    assert_bounded,
    make_world,
    neighbour,
    ratings_of,
    row,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.boundary import clipped_records as records
from tacit.boundary.clipped_records import RecordGradient, RecordSum
from tacit.data.ratings import Scale
from tacit.kernels.embed import embed
from tacit.rng import derive

CLIPS = st.sampled_from([1e-3, 1.0, 8.0, 1e4])


def gradient(world: World, clip: float = 8.0, present=None) -> RecordSum:
    return RecordGradient(Scale(*world.scale), clip).over(world.ratings, world.users, world.items, present)


def by_user(query: RecordSum) -> np.ndarray:
    """What every user adds, (n, m·p)."""
    return cases.by_user(query.contributions({}, derive(1, "unused")))


def answer(query: RecordSum) -> np.ndarray:
    return query.exact({}, derive(1, "unused"))["items"]


def norm(x: np.ndarray) -> float:
    """Summed without rounding: the bound is to hold to the last place."""
    return math.sqrt(math.fsum(np.square(x.ravel())))


def slowly(world: World, clip: float, present=None) -> np.ndarray:
    """The same, as it is defined, user by user; (n, m, p)."""
    low, span = world.scale[0], world.scale[1] - world.scale[0]
    U, V = (embed(x, span).astype(np.float64) for x in (world.users, world.items))  # Π has a twin of its own
    out = np.zeros((len(U), *V.shape))
    for i, record in enumerate(world.records):
        for j, r in record if present is None or present[i] else []:
            shifted = 0.0 if math.isnan(r) else min(max(np.float32(r) - low, 0.0), span)
            out[i, j] = 2 * (U[i] @ V[j] - shifted) * U[i]
        out[i] *= min(1.0, clip / max(np.linalg.norm(out[i]), 1e-300))
    return out


def check_neighbours(world: World, near: World, i: int, clip: float, times: int) -> None:
    """One record, and the factors fitted to it, may move the sum by times·C, through her own piece alone."""
    here, there = gradient(world, clip), gradient(near, clip)
    mine, other = by_user(here), by_user(there)
    assert max(norm(piece) for piece in (*mine, *other)) <= clip
    assert np.array_equal(np.delete(mine, i, axis=0), np.delete(other, i, axis=0))
    assert norm(answer(here) - answer(there)) <= times * clip


# -- what is claimed --------------------------------------------------------------------------------------------------


def test_claims_are_the_clip_or_twice_it():
    query = RecordGradient(Scale(1, 5), 3.0)
    claims = {case: query.sensitivity(*case) for case in CASES}
    assert claims == {
        (unit, relation): 6.0 if unit is RATING or relation is REPLACE else 3.0 for unit, relation in CASES
    }
    assert (query.sampling, query.clip) == (1, 3.0)
    assert query.counted(RATING) == (USER, REPLACE)
    assert query.counted(USER) == (USER, ZERO_OUT)


def test_ratings_are_clipped_to_the_querys_scale_whatever_their_own_says():
    world = aligned([(2, 9.0)])
    wide = RecordGradient(Scale(1, 5), 8.0).over(ratings_of(world.records, world.m, (-9, 9)), world.users, world.items)
    assert np.array_equal(answer(wide), answer(gradient(aligned([(2, 5.0)]))))


# -- the sum and its pieces -------------------------------------------------------------------------------------------


@given(WORLDS, CLIPS, SEEDS)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_it_is_what_it_is_defined_to_be(world, clip, seed):
    present = derive(seed, "present").random(len(world.records)) < 0.7
    for there in (None, present):
        pieces, slow = by_user(gradient(world, clip, there)), slowly(world, clip, there)
        assert np.abs(pieces.reshape(slow.shape) - slow).max() <= 3e-6 * clip
        assert np.array_equal(pieces.sum(axis=0), answer(gradient(world, clip, there)).ravel())  # sums are exact


@given(WORLDS, CLIPS, SEEDS)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_who_is_absent_or_has_rated_nothing_adds_exactly_nothing(world, clip, seed):
    present = derive(seed, "present").random(len(world.records)) < 0.5
    there, everybody = by_user(gradient(world, clip, present)), by_user(gradient(world, clip))
    silent = ~present | np.array([not record for record in world.records])
    assert not there[silent].any()
    assert np.array_equal(there[present], everybody[present])


@pytest.mark.parametrize("at_once", [1, 2, 7, 16, 40, 10**9])
def test_some_at_a_time_is_the_same_as_all_at_once(at_once, monkeypatch):
    world = make_world(5, n=12, m=13, p=2)
    world = replace(world, records=[[], [], *world.records[2:-1], []])  # nobody at either end
    exact = answer(gradient(world))
    monkeypatch.setattr(records, "AT_ONCE", at_once)
    assert np.array_equal(answer(gradient(world)), exact)
    assert (cases.assert_same_in_chunks(gradient(world), at_once, 2 * 13) == 1) == (at_once == 10**9)


# -- neighbours -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("unit", "relation"), CASES)
@given(WORLDS, CLIPS, SEEDS)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_neighbours_answers_are_within_the_claim(unit, relation, world, clip, seed):
    """Her factors were fitted to her record, so any others may come with another one."""
    near, i = neighbour(world, seed, unit, relation)
    if near is None:
        return
    p = world.users.shape[1]
    fitted = row(derive(seed, "fitted"), p, math.sqrt(world.scale[1] - world.scale[0]), True)
    near = near.with_user(i, fitted.astype(np.float32))
    times = 2 if unit is RATING or relation is REPLACE else 1
    check_neighbours(world, near, i, clip, times)
    assert_bounded(gradient(world, clip), gradient(near, clip), unit, relation)


def aligned(record, clip_user=2.0, others=2, m=12) -> World:
    """One user with that record, and others who have rated everything, all at √R·e₁ for R = 4."""
    axis = np.array([2.0, 0.0], dtype=np.float32)
    users = np.tile(axis, (1 + others, 1))
    users[0] = [clip_user, 0.0]
    return World([record, *[[(j, 5.0) for j in range(m)]] * others], m, (1, 5), users, np.tile(axis, (m, 1)))


@pytest.mark.parametrize("size", [1, 12])
def test_the_bound_is_attained(size):
    """Emptied: C. Replaced: 2C, by a record that pulls as far the other way. Up to the room that is left."""
    low, high = ([(j, r) for j in range(size)] for r in (1.0, 5.0))
    down, up = aligned(low), aligned(high, clip_user=0.5)
    assert norm(answer(gradient(down, 2.0)) - answer(gradient(aligned([]), 2.0))) > 2.0 * (1 - 1e-5)
    assert norm(answer(gradient(down, 2.0)) - answer(gradient(up, 2.0))) > 4.0 * (1 - 1e-5)
    check_neighbours(down, aligned([]), 0, 2.0, 1)
    check_neighbours(down, up, 0, 2.0, 2)


def test_short_records_are_left_as_long_as_they_are():
    world = aligned([(3, 4.9)])
    assert norm(by_user(gradient(world, 8.0))[0]) == pytest.approx(2 * 0.1 * 2.0, rel=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_poison_is_worth_an_end_of_the_scale_or_nothing(bad):
    """In a rating the end that it lies beyond, and NaN the lower; in factors a row of them is as if negative: 0."""
    end = 5.0 if bad > 0 else 1.0
    assert np.array_equal(answer(gradient(aligned([(2, bad)]))), answer(gradient(aligned([(2, end)]))))
    poisoned = aligned([(2, 1.0)]).with_user(0, [bad if bad != 1e30 else np.nan, -3.0])
    assert not by_user(gradient(poisoned))[0].any()


# -- planted bugs -----------------------------------------------------------------------------------------------------


def not_at_all(starts, x, limit):
    return np.nan_to_num(x)


def each_rating(starts, x, limit):
    return np.clip(np.nan_to_num(x), -limit, limit)


def by_the_longest(starts, x, limit):
    """Every piece is short enough, but by a weight that somebody else's record is in."""
    norms = [np.linalg.norm(part) for part in np.split(x[0], starts[1:-1])]
    return x * min(1.0, 0.999 * limit / max(norms))


def by_all_together(starts, x, limit):
    return x * min(1.0, 0.999 * limit / np.linalg.norm(x))


@pytest.mark.parametrize("clipping", [not_at_all, each_rating, by_the_longest, by_all_together])
def test_a_clip_that_is_not_each_records_own_is_noticed(clipping):
    world, near = aligned([(j, 1.0) for j in range(12)], clip_user=1.9), aligned([], clip_user=1.9)
    world, near = (replace(w, records=[w.records[0], *[[(j, 1.0) for j in range(5)]] * 2]) for w in (world, near))
    check_neighbours(world, near, 0, 2.0, 1)
    with patch.object(records, "bounded_rows", clipping), pytest.raises(AssertionError):
        check_neighbours(world, near, 0, 2.0, 1)


def test_a_slope_of_factors_that_were_not_projected_is_still_clipped(monkeypatch):
    """Π makes gradients those of the method; the bound rests on the clip alone."""
    monkeypatch.setattr(records, "embed", lambda x, span: np.clip(np.nan_to_num(x), -1e18, 1e18))
    for seed in range(20):
        world = make_world(seed)
        assert max(map(norm, by_user(gradient(world)))) <= 8.0


# -- what is refused --------------------------------------------------------------------------------------------------
