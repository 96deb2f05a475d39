"""Sums over pairs of items: what one user adds has length 1 or is 0, whatever they rated; planted bugs are found."""

import math

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

import tacit.boundary.co_occurrence as asked
from tacit.boundary.co_occurrence import ItemCounts, PairCounts, PairShares, PairSum
from tacit.boundary.code import Fixed
from tacit.errors import DataError
from tacit.rng import derive

NOWHERE = derive(0, "nothing is drawn")
FULL = [(j, 5.0) for j in range(6)]


def shares(ratings, head=None, **options):
    return PairShares().over(ratings, np.arange(ratings.n_items) if head is None else head, **options)


@pytest.mark.parametrize(("unit", "relation"), CASES)
def test_a_whole_record_moves_it_by_one_and_everything_else_by_two(unit, relation):
    one = unit is USER and relation in (ZERO_OUT, ADD_REMOVE)
    assert PairShares().sensitivity(unit, relation) == (1 if one else 2)
    assert PairShares().clip == 1
    assert math.isinf(PairCounts().sensitivity(unit, relation))
    assert math.isinf(ItemCounts().sensitivity(unit, relation))


@given(WORLDS, SEEDS, st.sampled_from(CASES), st.integers(0, 13))
@settings(deadline=None, max_examples=150)
def test_it_moves_by_no_more_than_it_says_whatever_the_head(world, seed, case, size):
    near, _ = neighbour(world, seed, *case)
    head = np.sort(derive(seed, "head").permutation(world.m)[:size])
    if near is not None:
        assert_bounded(shares(world.ratings, head), shares(near.ratings, head), *case)


@given(WORLDS)
@settings(deadline=None, max_examples=60)
def test_every_contribution_has_length_one_or_is_zero(world):
    answering = shares(world.ratings)
    rows = by_user(answering.contributions({}, NOWHERE))
    for record, row in zip(world.records, rows, strict=True):
        norm = math.sqrt(math.fsum(row**2))
        assert norm == 0 if not record else 1 - 1e-5 < norm <= 1
    np.testing.assert_array_equal(rows.sum(axis=0), answering.exact({}, NOWHERE)["pairs"])


def test_the_bound_is_reached():
    full, empty = (shares(ratings_of([record, [(0, 1.0)]], 6)) for record in (FULL, []))
    assert moved(full, empty) == pytest.approx(PairShares().sensitivity(USER, ZERO_OUT), rel=1e-5)
    one, other = (shares(ratings_of([record], 6)) for record in ([(0, 1.0)], [(5, 1.0)]))
    assert moved(one, other) == pytest.approx(math.sqrt(2), rel=1e-5)  # as far as two of these can lie apart


def test_it_is_the_matrix_that_its_name_says():
    ratings = ratings_of([[(0, 1.0), (2, 5.0)], [(2, 3.0)], [], [(0, 2.0), (1, 2.0), (3, 2.0)]], 4)
    r = math.sqrt(2)
    found = shares(ratings, np.array([0, 1, 2]))({}, NOWHERE)["pairs"]
    np.testing.assert_allclose(found, [0.5 + 0.5, r / 2, r / 2, 0.5, 0, 0.5 + 1], atol=2e-6)
    counted = PairCounts().over(ratings, np.array([0, 1, 2]))({}, NOWHERE)["pairs"]
    np.testing.assert_array_equal(counted, [2, 1, 1, 1, 0, 2])
    np.testing.assert_array_equal(ItemCounts().over(ratings)({}, NOWHERE)["counts"], [2, 1, 2, 1])


def test_who_is_absent_adds_nothing():
    ratings, present = ratings_of([FULL, FULL], 6), np.array([False, True])
    alone = ratings_of([[], FULL], 6)
    assert moved(shares(ratings, present=present), shares(alone)) == 0
    counts = ItemCounts().over(ratings, present=present)({}, NOWHERE)["counts"]
    np.testing.assert_array_equal(counts, np.ones(6))


def test_some_users_at_a_time_add_what_all_do(monkeypatch):
    monkeypatch.setattr(asked, "AT_ONCE", 40)
    assert assert_same_in_chunks(shares(make_world(3, n=30, m=8).ratings), 40, 36) > 3


@pytest.mark.parametrize("head", [[0, 6], [-1, 2], [2, 1], [1, 1]])
def test_items_that_are_not_a_set_of_the_catalogue_are_refused(head):
    with pytest.raises(DataError, match="in order"):
        shares(ratings_of([FULL], 6), np.array(head))


def test_hidden_counts_take_as_many_bits_as_users_need():
    assert Fixed.of(1.0, 6_040, PairCounts.resolution).bits == 16
    assert Fixed.of(1.0, 6_040).bits == 40
    code = Fixed.of(1.0, 3, PairCounts.resolution)
    counts = code.exact(PairCounts().over(ratings_of([FULL] * 3, 6), np.arange(6)), NOWHERE, None, 3)
    np.testing.assert_array_equal(counts, np.full(21, 3))


# -- planted ----------------------------------------------------------------------------------------------------------


def furthest(make):
    """The largest distance of an emptied user, over a few worlds, for what is planted."""
    worlds = [ratings_of([record, FULL, FULL[:2]], 6) for record in (FULL, FULL[:1], FULL[2:4], [])]
    return max(moved(make(one), make(other)) for one in worlds for other in worlds[-1:])


def test_planted_plays_instead_of_zero_and_one():
    assert furthest(shares) <= 1

    class Plays(PairSum):
        def _weights(self):
            diagonal, beside = super()._weights()
            return 5.0 * diagonal, 5.0 * beside

    assert furthest(lambda ratings: Plays(PairShares(), ratings, np.arange(6))) > 1


def test_planted_a_division_by_a_count_over_users():
    """A cosine between items looks harmless, and moves every other user's part too."""

    class Cosine(PairSum):
        def exact(self, state, stream):
            total = super().exact(state, stream)["pairs"]
            counts = np.bincount(self.places, minlength=self.size)
            a, b = np.triu_indices(self.size)
            return {"pairs": total * 3 / np.maximum(np.sqrt(counts[a] * counts[b]), 1)}

    assert furthest(lambda ratings: Cosine(PairShares(), ratings, np.arange(6))) > 1


def test_planted_a_head_from_exact_counts():
    """The head follows the record, and what all others send with it."""

    def own_head(ratings):
        counts = np.bincount(ratings.items, minlength=6)
        return shares(ratings, np.sort(np.argsort(-counts, kind="stable")[:2]))

    crowd = [[(2, 1.0), (3, 1.0)]] * 5 + [[(0, 1.0)], [(1, 1.0)]] * 5
    here, there = (ratings_of([record, *crowd], 6) for record in ([(2, 1.0), (3, 1.0)], []))
    assert moved(own_head(here), own_head(there)) > PairShares().sensitivity(RATING, REPLACE)
    fixed = np.array([2, 3])
    assert moved(shares(here, fixed), shares(there, fixed)) <= 1
