"""Sums of single ratings' deviations and of whole records' gradients: within what the query says, and reaching it."""

import math
from dataclasses import replace
from unittest.mock import patch

import bounded_cases as cases
import numpy as np
import pytest
from bounded_cases import (
    ADD_REMOVE,
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
    moved,
    neighbour,
    ratings_of,
    row,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit.boundary.clipped_sums as bounded
import tacit.boundary.deviations as deviations
from tacit.boundary import clipped_records as records
from tacit.boundary.clipped_records import RecordGradient, RecordSum
from tacit.boundary.deviations import Deviations, DeviationSum
from tacit.data.ratings import Scale
from tacit.errors import DataError
from tacit.kernels.embed import embed
from tacit.rng import derive

RELATIONS = [ZERO_OUT, ADD_REMOVE, REPLACE]
WEIGHTS = [1e-6, 0.7, 10.0, 1e6]
NOWHERE = derive(0, "nothing is drawn")


def of(records, m=4, scale=(1, 5), s=0.7, kind=DeviationSum, asked=Deviations, **others):
    return kind(asked(Scale(*scale), s), ratings_of(records, m, scale), **others)


@pytest.mark.parametrize(("scale", "half"), [((1, 5), 2.0), ((-10, 10), 10.0), ((0.5, 5), 2.25)])
def test_claims_are_half_the_scale_and_the_weight_together(scale, half):
    query = Deviations(Scale(*scale), 0.7)
    assert query.clip == pytest.approx(math.sqrt(half**2 + 0.49))
    assert query.nonzero_coordinates({"errors": (9,), "weights": (9,)}) == 2
    for relation, times in ((ZERO_OUT, 1), (ADD_REMOVE, 1), (REPLACE, 2)):
        assert query.sensitivity(RATING, relation) == pytest.approx(times * math.sqrt(half**2 + 0.49))


@given(WORLDS, SEEDS, st.sampled_from(RELATIONS), st.sampled_from(WEIGHTS))
@settings(deadline=None, max_examples=200)
def test_one_rating_moves_the_sums_by_no_more_than_they_say(world, seed, relation, s):
    near, _ = neighbour(world, seed, RATING, relation)
    if near is not None:
        query = Deviations(Scale(*world.scale), s)
        assert_bounded(query.over(world.ratings), query.over(near.ratings), RATING, relation)


@given(WORLDS, SEEDS)
@settings(deadline=None, max_examples=100)
def test_one_rating_moves_its_own_two_cells_and_no_others(world, seed):
    near, i = neighbour(world, seed, RATING, ZERO_OUT)
    if near is None:
        return
    ((gone, _),) = [pair for pair in world.records[i] if pair[0] not in {j for j, _ in near.records[i]}]
    here, there = (Deviations(Scale(*w.scale), 0.7).over(w.ratings).exact({}, NOWHERE) for w in (world, near))
    assert set(np.flatnonzero(here["errors"] != there["errors"])) <= {gone}
    assert list(np.flatnonzero(here["weights"] != there["weights"])) == [gone]


@pytest.mark.parametrize("extreme", [1.0, 5.0, 1e30, -1e30])
def test_the_claim_is_attained(extreme):
    rest = [(0, 2.0), (1, 5.0)]
    query = of([[*rest, (3, extreme)], [(3, 4.0)]])
    assert moved(query, of([rest, [(3, 4.0)]])) > 0.999 * query.query.sensitivity(RATING, ZERO_OUT)


def test_a_user_moves_it_by_more_than_a_rating_may():
    """Why the unit user has no bound here: the root of the number of ratings."""
    assert all(Deviations(Scale(1, 5), 0.7).sensitivity(USER, relation) == math.inf for relation in RELATIONS)
    query = of([[(j, 5.0) for j in range(16)]], 16)
    assert moved(query, of([[]], 16)) == pytest.approx(4 * query.query.sensitivity(RATING, ZERO_OUT), rel=1e-5)


def test_the_sums_are_those_of_deviations_from_the_middle():
    answer = of([[(0, 5.0), (2, 2.0)], [(0, 4.0), (1, np.nan)], [(2, 99.0)]])({}, NOWHERE)
    np.testing.assert_allclose(answer["errors"], [3, 0, 1, 0], rtol=1e-5)
    np.testing.assert_allclose(answer["weights"], [1.4, 0.7, 1.4, 0], rtol=1e-5)
    some = of([[(0, 5.0)], [(0, 4.0)]], present=np.array([False, True]))({}, NOWHERE)
    np.testing.assert_allclose([some["errors"][0], some["weights"][0]], [1, 0.7], rtol=1e-5)
    assert not any(block.any() for block in of([[], []])({}, NOWHERE).values())


class CentresByUsers(DeviationSum):
    """Her own mean is taken off before the sum: one rating moves all her deviations."""

    def bounded_values(self):
        x = super().bounded_values()
        users, n = self.ratings.users, self.ratings.n_users
        means = np.bincount(users, x["errors"], n) / np.maximum(self.ratings.counts, 1)
        return {**x, "errors": x["errors"] - means[users]}


class WeighsByUsers(DeviationSum):
    """Each user is weighted so that her largest deviation is R/2: no rating adds more, and one moves all of hers."""

    def bounded_values(self):
        x, users = super().bounded_values(), self.ratings.users
        largest = np.zeros(self.ratings.n_users)
        np.maximum.at(largest, users, np.abs(x["errors"]))
        return {**x, "errors": x["errors"] / largest[users] * self.query.scale.span / 2}


class ForgetsTheWeights(Deviations):
    """The claim counts the deviation and not that the rating is there."""

    def sensitivity(self, unit, relation):
        return self.scale.span / 2


@pytest.mark.parametrize(
    ("planted", "others", "last"),
    [
        ({"kind": CentresByUsers}, 1.0, 5.0),
        ({"kind": WeighsByUsers}, 3.1, 5.0),
        ({"asked": ForgetsTheWeights}, 4.0, 5.0),
    ],
    ids=["centres by users", "weighs by users", "forgets the weights"],
)
def test_planted_bugs_are_found(planted, others, last):
    """Fifteen ratings alike and one that goes; the honest query passes."""
    alike = [(j, others) for j in range(15)]
    for how in ({}, planted):
        query, near = of([[*alike, (15, last)]], 16, s=0.1, **how), of([alike], 16, s=0.1, **how)
        assert (moved(query, near) <= query.query.sensitivity(RATING, ZERO_OUT)) == (not how)


@pytest.mark.parametrize("piece", ["finite", "clip", "check_rows"])
def test_a_piece_left_out_is_found(monkeypatch, piece):
    def sound():
        for value in (np.nan, 1e30, 5.0):
            query = of([[(0, value)]])
            if not moved(query, of([[]])) <= query.query.sensitivity(RATING, ZERO_OUT):
                return False
        try:
            of([[(0, 5.0), (0, 5.0)]])
        except DataError:
            return True
        return False

    assert sound()
    if piece == "check_rows":
        monkeypatch.setattr(bounded, "check_rows", lambda *rows: None)
    elif piece == "clip":
        monkeypatch.setattr(deviations.np, "clip", lambda x, low, high: x)
    else:
        monkeypatch.setattr(deviations, "finite", lambda x: np.array(x, dtype=np.float64))
    with np.errstate(all="ignore"):
        try:
            found = not sound()
        except AssertionError:
            found = True
    assert found


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


def test_claims_are_the_clip_or_twice_it():
    query = RecordGradient(Scale(1, 5), 3.0)
    claims = {case: query.sensitivity(*case) for case in CASES}
    assert claims == {
        (unit, relation): 6.0 if unit is RATING or relation is REPLACE else 3.0 for unit, relation in CASES
    }
    assert (query.sampling, query.clip) == (1, 3.0)
    assert query.counted(RATING) == (USER, REPLACE)
    assert query.counted(USER) == (USER, ZERO_OUT)


@given(WORLDS, CLIPS, SEEDS)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_it_is_what_it_is_defined_to_be(world, clip, seed):
    present = derive(seed, "present").random(len(world.records)) < 0.7
    for there in (None, present):
        pieces, slow = by_user(gradient(world, clip, there)), slowly(world, clip, there)
        assert np.abs(pieces.reshape(slow.shape) - slow).max() <= 3e-6 * clip
        assert np.array_equal(pieces.sum(axis=0), answer(gradient(world, clip, there)).ravel())  # sums are exact
        assert not pieces[~slow.any(axis=(1, 2))].any()  # who is absent or has rated nothing adds exactly nothing


@pytest.mark.parametrize("at_once", [1, 2, 7, 16, 40, 10**9])
def test_some_at_a_time_is_the_same_as_all_at_once(at_once, monkeypatch):
    world = make_world(5, n=12, m=13, p=2)
    world = replace(world, records=[[], [], *world.records[2:-1], []])  # nobody at either end
    exact = answer(gradient(world))
    monkeypatch.setattr(records, "AT_ONCE", at_once)
    assert np.array_equal(answer(gradient(world)), exact)
    assert (cases.assert_same_in_chunks(gradient(world), at_once, 2 * 13) == 1) == (at_once == 10**9)


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


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30, -1e30])
def test_poison_is_worth_an_end_of_the_scale_or_nothing(bad):
    """In a rating the end that it lies beyond, and NaN the lower; in factors a row of them is as if negative: 0."""
    end = 5.0 if bad > 0 else 1.0
    assert np.array_equal(answer(gradient(aligned([(2, bad)]))), answer(gradient(aligned([(2, end)]))))
    poisoned = aligned([(2, 1.0)]).with_user(0, [bad if bad != 1e30 else np.nan, -3.0])
    assert not by_user(gradient(poisoned))[0].any()


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
