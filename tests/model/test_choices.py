"""Ranking by choices: tastes along public features, averaged over priors by each user's own evidence."""

import numpy as np
import pytest

from tacit.model.co_occurrence import FLOOR, PRIORS, CoOccurrence, centred_tastes
from tacit.rng import derive

NOTHING = (np.zeros(0, dtype=np.int64), np.zeros((0, 0)))


def world(m=60, k=4, n=50):
    draw = derive(5, "choices")
    log, x = draw.normal(3, 1, m), draw.normal(size=(m, k))
    items = [np.sort(draw.choice(m, size, replace=False)) for size in draw.integers(0, 20, n)]
    return log, x, np.concatenate(([0], np.cumsum([len(own) for own in items]))), np.concatenate(items)


def scores(form, indptr, items):
    return form.rank(form.fold_in(indptr, items, np.ones(len(items))), np.arange(len(indptr) - 1))


def test_features_are_centred_uncorrelated_and_of_unit_spread():
    log, features, *_ = world()
    p = np.exp(log) / np.exp(log).sum()
    x, spread = centred_tastes(features, p)
    np.testing.assert_allclose(p @ x, 0, atol=1e-12)
    np.testing.assert_allclose((x * p[:, None]).T @ x, np.diag(spread), atol=1e-12)
    assert spread.sum() == pytest.approx(1)
    assert np.all(np.diff(spread) <= 0)


def test_turning_the_features_changes_no_score():
    log, x, indptr, items = world()
    turn = np.linalg.qr(derive(1, "turn").normal(size=(4, 4)))[0]
    one, other = (scores(CoOccurrence.of(log, basis, *NOTHING), indptr, items) for basis in (x, x @ turn))
    np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("features", [np.zeros((60, 0)), np.ones((60, 2))], ids=["none", "constant"])
def test_without_features_it_is_popularity(features):
    log, _x, indptr, items = world()
    found = scores(CoOccurrence.of(log, features, *NOTHING), indptr, items)
    np.testing.assert_allclose(found - found[:, :1], np.broadcast_to(log - log[0], found.shape), atol=1e-4)


def test_an_item_like_ones_own_comes_first_and_users_without_items_get_popularity():
    x = np.repeat([[1.0, 0.0], [0.0, 1.0]], 30, axis=0)
    found = scores(CoOccurrence.of(np.zeros(60), x, *NOTHING), np.array([0, 10, 10]), np.arange(10))
    assert found[0, :30].min() > found[0, 30:].max()
    assert np.ptp(found[1]) == 0


def test_an_item_that_nobody_took_is_ranked_by_its_features():
    x = np.repeat([[1.0, 0.0], [0.0, 1.0]], 30, axis=0)
    log = np.zeros(60)
    log[[29, 59]] = -3
    found = scores(CoOccurrence.of(log, x, *NOTHING), np.array([0, 10]), np.arange(10))[0]
    assert found[29] > found[59]


def test_tastes_that_are_pure_chance_are_nearly_0():
    """1,000 users who draw by popularity: the tilt's variance stays below a tenth of the widest prior's."""
    draw = derive(4, "chance")
    log, x = draw.normal(0, 1, 300), draw.normal(size=(300, 20))
    p = np.exp(log) / np.exp(log).sum()
    form = CoOccurrence.of(log, x, *NOTHING)
    items = np.sort(draw.choice(300, (1000, 40), p=p), axis=1).ravel()
    tilt = form.fold_in(np.arange(1001) * 40, items, np.ones(len(items)))[:, 1:] @ form.tastes.T
    assert np.mean(tilt**2 @ p) < 0.1 * max(PRIORS)


def test_pairs_move_items_of_the_head_up_but_none_below_a_part_of_popularity():
    factors = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    form = CoOccurrence.of(np.zeros(8), np.zeros((8, 0)), np.arange(4), factors)
    found = scores(form, np.array([0, 1]), np.array([0]))[0]
    assert found[1] > found[4] > found[2]
    np.testing.assert_allclose(np.exp(found[2] - found[4]), FLOOR, rtol=1e-5)
