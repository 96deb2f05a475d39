"""Sums of single ratings' deviations: one rating moves two cells, within what the query says, and reaches it."""

import math

import numpy as np
import pytest
from bounded_cases import (
    ADD_REMOVE,
    RATING,
    REPLACE,
    SEEDS,
    USER,
    WORLDS,
    ZERO_OUT,
    assert_bounded,
    moved,
    neighbour,
    ratings_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit.boundary.clipped_sums as bounded
import tacit.boundary.deviations as deviations
from tacit.boundary.deviations import Deviations, DeviationSum
from tacit.data.ratings import Scale
from tacit.errors import DataError
from tacit.rng import derive

RELATIONS = [ZERO_OUT, ADD_REMOVE, REPLACE]
WEIGHTS = [1e-6, 0.7, 10.0, 1e6]
NOWHERE = derive(0, "nothing is drawn")


def of(records, m=4, scale=(1, 5), s=0.7, kind=DeviationSum, asked=Deviations, **others):
    return kind(asked(Scale(*scale), s), ratings_of(records, m, scale), **others)


# -- what is claimed -------------------------------------------------------------------------------------------------


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


def test_ratings_are_clipped_to_the_querys_scale_whatever_their_own_says():
    wide, query = ratings_of([[(0, 9.0)]], 1, (-10, 10)), Deviations(Scale(1, 5), 0.7)
    assert query.over(wide)({}, NOWHERE)["errors"] == pytest.approx([2.0], rel=1e-5)
    assert_bounded(query.over(wide), query.over(ratings_of([[]], 1, (-10, 10))), RATING, ZERO_OUT)


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


# -- what is answered ------------------------------------------------------------------------------------------------


def test_the_sums_are_those_of_deviations_from_the_middle():
    answer = of([[(0, 5.0), (2, 2.0)], [(0, 4.0), (1, np.nan)], [(2, 99.0)]])({}, NOWHERE)
    np.testing.assert_allclose(answer["errors"], [3, 0, 1, 0], rtol=1e-5)
    np.testing.assert_allclose(answer["weights"], [1.4, 0.7, 1.4, 0], rtol=1e-5)
    some = of([[(0, 5.0)], [(0, 4.0)]], present=np.array([False, True]))({}, NOWHERE)
    np.testing.assert_allclose([some["errors"][0], some["weights"][0]], [1, 0.7], rtol=1e-5)
    assert not any(block.any() for block in of([[], []])({}, NOWHERE).values())


# -- planted bugs ----------------------------------------------------------------------------------------------------


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
