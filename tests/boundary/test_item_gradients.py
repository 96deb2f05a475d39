"""Sums of item gradients of implicit feedback: what they are, and that no record moves them further than stated."""

import math
from dataclasses import dataclass, replace

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

from tacit.boundary import item_gradients
from tacit.boundary.item_gradients import GradientSums, ItemGradients
from tacit.boundary.least_squares import unpacked
from tacit.model import Implicit
from tacit.rng import derive

NOWHERE = derive(0, "nothing is drawn")
QUERY = ItemGradients(2.0)
#: What users' and items' factors are multiplied by: as they are, and at the edges of float64.
SIZES = ((1, 1), (1e-300, 1), (1e300, 1e300), (1e-30, 1e30), (0, 1), (1e150, 0))


def over(world, sizes=(1, 1), kind=GradientSums, query=QUERY, **options):
    """Users' factors are a function of their record: poison in, poison out."""
    ratings = world.ratings
    with np.errstate(all="ignore"):
        x = np.zeros(world.users.shape)
        np.add.at(x, ratings.users, ratings.values[:, None].astype(float) * world.items[ratings.items])
        return kind(query, ratings, x * sizes[0], world.items.astype(float) * sizes[1], **options)


@given(WORLDS, SEEDS, st.sampled_from(CASES), st.sampled_from(SIZES))
@settings(deadline=None, max_examples=300)
def test_it_moves_by_no_more_than_it_says_whatever_the_factors_are(world, seed, case, sizes):
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
    whole = np.concatenate([exact[name].ravel() for name in sorted(exact)])
    np.testing.assert_array_equal(rows.sum(axis=0), whole)  # to the last bit, in whatever order they are added


def test_it_is_the_gradient_of_the_paper_over_all_users_and_items():
    """Eqs. (5) and (6) with the confidence of every pair written out, at closed-form users."""
    stream = derive(7, "dense")
    r = stream.integers(0, 3, (9, 6)) * (stream.random((9, 6)) < 0.5)
    ratings = ratings_of([[(j, float(r[i, j])) for j in range(6) if r[i, j]] for i in range(9)], 6, (0, 3))
    V, alpha = stream.standard_normal((6, 3)), 2.0
    x = Implicit(V.astype(np.float32), alpha, 1.0).fold_in(ratings.indptr, ratings.items, ratings.values).astype(float)
    c, p = 1 + alpha * r, r > 0
    expected = -2 * (c * (p - x @ V.T)).T @ x
    summed = ItemGradients(alpha, bounded=False).over(ratings, x, V).exact({}, NOWHERE)
    gradient = -2 * (summed["items"] - V @ unpacked(summed["whole"][None])[0])
    np.testing.assert_allclose(gradient, expected, atol=2e-3)
    each = [ItemGradients(alpha).over(ratings, x, V, present=np.arange(9) == i).exact({}, NOWHERE) for i in range(9)]
    for i in np.flatnonzero(p.any(axis=1)):  # bounded, a user's part is as it is, and all of it over one length
        alone = ItemGradients(alpha, bounded=False).over(ratings, x, V, present=np.arange(9) == i).exact({}, NOWHERE)
        length = math.sqrt(sum(np.square(block).sum() for block in alone.values()))
        for name, block in alone.items():
            np.testing.assert_allclose(each[i][name], block / length, atol=2e-4)


def test_the_bounds_are_reached():
    world = make_world(3, poison=False, scale=(0, 5))
    full, none = (replace(world, records=[r, [], []]) for r in ([(j, 5.0) for j in range(8)], []))
    assert moved(over(full), over(none)) == pytest.approx(1, abs=1e-4)
    one = ratings_of([[(0, 1.0)]], 1)
    far = [QUERY.over(one, np.array([[x]]), np.zeros((1, 1))) for x in (1e-9, -1e-9)]
    assert moved(*far) == pytest.approx(2, abs=1e-4)


def test_the_absent_add_nothing_and_parts_are_the_whole(monkeypatch):
    world = make_world(11, n=4, poison=False)
    nobody = over(world, present=np.zeros(4, dtype=bool)).exact({}, NOWHERE)
    assert not any(block.any() for block in nobody.values())
    monkeypatch.setattr(item_gradients, "AT_ONCE", 20)
    assert assert_same_in_chunks(over(world), 20, 200) > 1


# -- planted ---------------------------------------------------------------------------------------------------------


def furthest(kind, case, query=QUERY, tries=300):
    """By how much the worst of many neighbours exceeds the claim; 1 is as far as is stated."""
    worst = 0.0
    for seed in range(tries):
        world = make_world(seed, m=4, poison=False, scale=(0, 5))
        near, _ = neighbour(world, seed, *case)
        if near is not None:
            here, there = (over(w, kind=kind, query=query) for w in (world, near))
            worst = max(worst, moved(here, there) / query.sensitivity(*case))
    return worst


class Unclipped(GradientSums):
    """No user's length is bounded."""

    @property
    def rows(self):
        _slopes, _squares, x, triangle, peaks = self._scaled
        return x * peaks[:, None], triangle * peaks[:, None]


class PerItem(GradientSums):
    """Every item's vector has length 1, and not all of them together: √n_u is forgotten."""

    @property
    def rows(self):
        x, triangle = super().rows
        return x * np.sqrt(np.maximum(self.ratings.counts, 1))[:, None], triangle


class TriangleBeside(GradientSums):
    """The triangle has a length of its own, outside the user's."""

    @property
    def rows(self):
        x, triangle = super().rows
        length = np.maximum(np.linalg.norm(triangle, axis=1, keepdims=True), 1e-9)
        return x, triangle / length


class MeanOverThoseThere(GradientSums):
    """Divided by how many users have items, which one record changes."""

    @property
    def rows(self):
        x, triangle = super().rows
        those = max(1, np.count_nonzero(self.ratings.counts))
        return x * 2 / those, triangle * 2 / those


@pytest.mark.parametrize("kind", [Unclipped, PerItem, TriangleBeside, MeanOverThoseThere])
def test_planted_bugs_exceed_the_claim(kind):
    assert furthest(GradientSums, (USER, ZERO_OUT)) <= 1
    assert furthest(kind, (USER, ZERO_OUT)) > 1


@dataclass(frozen=True)
class PerRating(ItemGradients):
    """The claim that a rating moves no more than its user's record would, as if nothing were solved at home."""

    def sensitivity(self, unit, relation):
        return super().sensitivity(USER, relation)


def test_planted_a_claim_per_rating_is_exceeded():
    for relation in (ZERO_OUT, REPLACE):
        assert furthest(GradientSums, (RATING, relation)) <= 1
    assert furthest(GradientSums, (RATING, ZERO_OUT), query=PerRating(2.0)) > 1
