"""Ranking from released values: counts by empirical Bayes, tastes from a user's own items, and liked items."""

import numpy as np
import pytest

from tacit.data.synthetic import demo
from tacit.kernels.log_counts import log_counts, log_counts_numpy
from tacit.methods.ranking import NoisedCounts, liked, posterior_counts
from tacit.model.taste_ranking import TASTES, TasteRanking

NONE = np.zeros((60, 0))


def noised(d, deviation, seed=3):
    draw = np.random.default_rng(seed)
    return NoisedCounts(d + deviation * draw.standard_normal(len(d)), np.ones(len(d)), deviation)


def world(m=60, k=4, n=50, seed=5):
    draw = np.random.default_rng(seed)
    d, x = np.exp(draw.normal(3, 1, m)), draw.normal(size=(m, k))
    items = [np.sort(draw.choice(m, size, replace=False)) for size in draw.integers(0, 20, n)]
    indptr = np.concatenate(([0], np.cumsum([len(own) for own in items])))
    return d, x, indptr, np.concatenate(items)


def test_posteriors_on_the_grid_equal_their_twin():
    draw = np.random.default_rng(8)
    values, scales = draw.normal(5, 10, (2, 30)), np.r_[np.ones((1, 30)), draw.random((1, 30))]
    scales[1, :5] = 0  # not measured
    given = values, scales, np.array([3.0, 0.0]), np.linspace(-4, 5, 64), draw.normal(1, 1, 30), 1.2
    np.testing.assert_allclose(log_counts(*given), log_counts_numpy(*given), rtol=1e-6, atol=1e-8)


def test_counts_without_noise_come_back_in_their_order():
    d = np.exp(np.random.default_rng(1).normal(2, 1.2, 60))
    found = posterior_counts([NoisedCounts(d, np.ones(60), 0.0)], NONE)
    np.testing.assert_allclose(found.mean, d, rtol=0.05)
    np.testing.assert_array_equal(np.argsort(found.log), np.argsort(d))


def test_features_and_a_second_measurement_bring_counts_nearer():
    draw = np.random.default_rng(2)
    features = draw.normal(size=(400, 2))
    d = np.exp(2 + features @ [1.0, 0.0] + 0.4 * draw.normal(size=400))
    first, second = noised(d, 10.0), NoisedCounts(0.5 * d + draw.normal(size=400), np.full(400, 0.5), 1.0)
    alone, featured, both = (
        np.mean((posterior_counts(measured, f).log - np.log(d)) ** 2)
        for measured, f in (([first], np.zeros((400, 0))), ([first], features), ([first, second], features))
    )
    assert both < featured < 0.6 * alone


@pytest.mark.parametrize("values", [np.zeros(60), np.full(60, -5.0), np.r_[1e6, np.zeros(59)]], ids=str)
def test_counts_are_positive_and_finite_whatever_the_noise_made(values):
    found = posterior_counts([NoisedCounts(values, np.ones(60), 1.0)], np.ones((60, 2)))
    assert np.all(found.mean > 0)
    assert np.isfinite(found.log).all()


def test_directions_are_centred_uncorrelated_and_of_unit_spread():
    d, x, _indptr, _items = world()
    made = TasteRanking.of(d, np.log(d), x)
    p = d / d.sum()
    np.testing.assert_allclose(p @ made.directions, 0, atol=1e-6)
    np.testing.assert_allclose((made.directions * p[:, None]).T @ made.directions, np.diag(made.spread), atol=1e-6)
    assert made.spread.sum() == pytest.approx(1)


def test_a_taste_is_the_equation_averaged_over_the_user_s_own_evidence():
    d, x, indptr, items = world()
    made = TasteRanking.of(d, np.log(d), x)
    found, c = made.tastes(indptr, items), made.spread.astype(np.float64)
    for u in range(len(indptr) - 1):
        own = made.directions[items[indptr[u] : indptr[u + 1]]].astype(np.float64)
        n, total = len(own), own.sum(axis=0)
        if n == 0:
            assert not found[u].any()
            continue
        mean, odds = total / n, []
        for tau in TASTES:  # the density of the mean of n items, N(0, C/n + τ·C²)
            v = c / n + tau * c**2
            odds.append(np.exp(-0.5 * np.sum(np.log(v) + mean**2 / v)))
        each = [np.linalg.solve(n * np.diag(c) + np.eye(len(c)) / tau, total) for tau in TASTES]
        np.testing.assert_allclose(found[u], np.average(each, axis=0, weights=odds), rtol=1e-4, atol=1e-6)


def test_a_taste_depends_on_the_user_s_own_items_alone():
    d, x, indptr, items = world()
    made = TasteRanking.of(d, np.log(d), x)
    first = items[: indptr[1]]
    np.testing.assert_allclose(
        made.tastes(np.array([0, len(first)]), first)[0], made.tastes(indptr, items)[0], atol=1e-6
    )


def test_turning_the_components_changes_no_score():
    d, x, indptr, items = world()
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0]
    one, other = (TasteRanking.of(d, np.log(d), basis) for basis in (x, x @ turn))
    scores = [made.scores(made.tastes(indptr, items)) for made in (one, other)]
    np.testing.assert_allclose(*scores, atol=1e-4)


@pytest.mark.parametrize("components", [np.zeros((60, 0)), np.ones((60, 2))], ids=["none", "constant"])
def test_without_directions_it_is_popularity(components):
    d, _x, indptr, items = world()
    made = TasteRanking.of(d, np.log(d), components)
    scores = made.scores(made.tastes(indptr, items))
    np.testing.assert_array_equal(scores, np.broadcast_to(np.log(d).astype(np.float32), scores.shape))


def test_an_item_like_one_s_own_comes_first_and_users_without_items_get_popularity():
    x = np.repeat([[1.0, 0.0], [0.0, 1.0]], 30, axis=0)
    made = TasteRanking.of(np.ones(60), np.zeros(60), x)
    scores = made.scores(made.tastes(np.array([0, 10, 10]), np.arange(10)))
    assert scores[0, :30].min() > scores[0, 30:].max()
    assert np.ptp(scores[1]) == 0


def test_tastes_that_are_pure_chance_are_nearly_0():
    """1,000 users who draw by popularity: the tilt's variance stays below a tenth of the widest prior's."""
    draw = np.random.default_rng(4)
    d, x = np.exp(draw.normal(0, 1, 300)), draw.normal(size=(300, 20))
    made = TasteRanking.of(d, np.log(d), x)
    items = np.sort(draw.choice(300, (1000, 40), p=d / d.sum()), axis=1).ravel()
    tilt = made.tastes(np.arange(1001) * 40, items) @ made.directions.T
    assert np.mean(tilt**2 @ (d / d.sum())) < 0.1 * max(TASTES)


def test_liked_adds_a_term_that_grows_with_the_rating_and_not_with_the_scale_s_unit():
    scores, ratings = np.zeros(3), np.array([2.0, 4.0, 5.0])
    found = liked(scores, ratings, 4.0, 4.0)
    assert np.all(np.diff(found) > 0)
    assert found[1] == pytest.approx(0.5 * np.log(0.5))
    np.testing.assert_allclose(liked(scores, 10 * ratings, 40.0, 40.0), found)
    assert np.isfinite(liked(scores, ratings, 1e3, 4.0)).all()


def test_a_demo_s_popularity_is_found_under_noise():
    ratings = demo(users=400, items=100, ratings=8000)
    d = np.bincount(ratings.items, minlength=100).astype(np.float64)
    found = posterior_counts([noised(d, 20.0)], np.zeros((100, 0)))
    assert np.corrcoef(found.mean, d)[0, 1] > 0.9
