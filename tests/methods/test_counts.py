"""Counts by empirical Bayes from noised sums: nearer to the truth by features and by a second measurement."""

import numpy as np
import pytest

from tacit.data.synthetic import demo
from tacit.methods.counts import Measured, posterior_counts
from tacit.rng import derive

NONE = np.zeros((60, 0))


def noised(d, deviation, seed=3):
    return Measured(d + deviation * derive(seed, "noise").standard_normal(len(d)), np.ones(len(d)), deviation)


def test_counts_without_noise_come_back_in_their_order():
    d = np.exp(derive(1, "counts").normal(2, 1.2, 60))
    mean, log = posterior_counts([Measured(d, np.ones(60), 0.0)], NONE)
    np.testing.assert_allclose(mean, d, rtol=0.1)
    assert np.corrcoef(np.argsort(np.argsort(log)), np.argsort(np.argsort(d)))[0, 1] > 0.999


def test_features_and_a_second_measurement_bring_counts_nearer():
    draw = derive(2, "counts")
    features = draw.normal(size=(400, 2))
    d = np.exp(2 + features @ [1.0, 0.0] + 0.4 * draw.normal(size=400))
    first, second = noised(d, 10.0), Measured(0.5 * d + draw.normal(size=400), np.full(400, 0.5), 1.0)
    alone, featured, both = (
        np.mean((posterior_counts(measured, f)[1] - np.log(d)) ** 2)
        for measured, f in (([first], np.zeros((400, 0))), ([first], features), ([first, second], features))
    )
    assert both < featured < 0.7 * alone


@pytest.mark.parametrize("values", [np.zeros(60), np.full(60, -5.0), np.r_[1e6, np.zeros(59)]], ids=str)
def test_counts_are_positive_and_finite_whatever_the_noise_made(values):
    mean, log = posterior_counts([Measured(values, np.ones(60), 1.0)], np.ones((60, 2)))
    assert np.all(mean > 0)
    assert np.isfinite(log).all()


def test_what_was_not_measured_follows_features_alone():
    draw = derive(4, "counts")
    features = draw.normal(size=(300, 1))
    d, measured = np.exp(2 + features[:, 0]), np.arange(300) % 2 == 0
    given = Measured(np.where(measured, d, 0) + draw.normal(size=300), measured.astype(float), 1.0)
    log = posterior_counts([given], features)[1]
    assert np.corrcoef(log[~measured], features[~measured, 0])[0, 1] > 0.95


def test_a_demo_s_popularity_is_found_under_noise():
    ratings = demo(users=400, items=100, ratings=8000)
    d = np.bincount(ratings.items, minlength=100).astype(np.float64)
    mean, _log = posterior_counts([noised(d, 20.0)], np.zeros((100, 0)))
    assert np.corrcoef(mean, d)[0, 1] > 0.9
