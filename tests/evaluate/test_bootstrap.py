from __future__ import annotations

import numpy as np
import pytest

from tacit.errors import UsageError
from tacit.evaluate import bootstrap_interval


def test_the_interval_of_a_ratio_covers_the_true_ratio():
    # 300 worlds of 100 users with 1…20 ratings and squared errors of mean 1 that share a factor per user:
    # intervals that took ratings as independent would cover far less. Bounds as above.
    stream = np.random.default_rng(4)
    counts = stream.integers(1, 21, size=(100, 300))
    squared = counts * stream.gamma(4, 1 / 4, size=counts.shape)
    low, high = bootstrap_interval(squared, counts, resamples=600)
    covered = np.mean((low <= 1) & (high >= 1))
    assert 0.88 < covered < 0.99


def test_the_width_is_that_of_the_normal_approximation():
    x = np.random.default_rng(5).normal(size=2000)
    low, high = bootstrap_interval(x, resamples=4000)
    assert high - low == pytest.approx(2 * 1.96 * x.std() / np.sqrt(2000), rel=0.08)
    assert low < x.mean() < high


def test_a_level_widens_the_interval():
    x = np.random.default_rng(5).normal(size=100)
    low90, high90 = bootstrap_interval(x, level=0.9)
    low99, high99 = bootstrap_interval(x, level=0.99)
    assert low99 < low90 < high90 < high99


def test_the_same_seed_gives_the_same_interval_and_columns_share_resamples():
    x = np.random.default_rng(6).normal(size=50)
    alone = bootstrap_interval(x, seed=1)
    np.testing.assert_array_equal(alone, bootstrap_interval(x, seed=1))
    assert np.any(alone != bootstrap_interval(x, seed=2))
    np.testing.assert_allclose(bootstrap_interval(np.column_stack((x, x)), seed=1), np.column_stack((alone, alone)))


def test_users_without_a_part_change_nothing():
    x = np.random.default_rng(7).normal(size=50)
    padded = np.concatenate((x, [np.nan] * 20))
    np.testing.assert_array_equal(bootstrap_interval(padded), bootstrap_interval(x))
    weights = np.concatenate((np.ones(50), np.zeros(20)))
    np.testing.assert_array_equal(bootstrap_interval(np.nan_to_num(padded), weights), bootstrap_interval(x))


@pytest.mark.parametrize("x", [[], [1.0], [np.nan, np.nan], [1.0, np.nan]])
def test_fewer_than_two_users_have_no_interval(x):
    assert np.isnan(bootstrap_interval(np.array(x, dtype=float))).all()


@pytest.mark.parametrize("wrong", [{"resamples": 0}, {"level": 0.0}, {"level": 1.0}])
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(UsageError, match="resamples ≥ 1 and 0 < level < 1"):
        bootstrap_interval(np.ones(3), **wrong)
