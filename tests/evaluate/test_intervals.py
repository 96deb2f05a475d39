"""Intervals over resampled users, and two runs compared on the same users."""

from itertools import product

import numpy as np
import pytest

from tacit.errors import DataError, UsageError
from tacit.evaluate import bootstrap_interval, compare_paired


def test_a_planted_difference_is_found():
    stream = np.random.default_rng(1)
    users = stream.normal(1.0, 0.5, size=500)  # users differ far more than the runs do
    a, b = users + stream.normal(0.03, 0.1, 500), users + stream.normal(0, 0.1, 500)
    paired = compare_paired(a, b)
    assert paired.p_value < 0.01
    assert paired.significant
    low, high = paired.interval
    assert 0 < low < 0.03 < high
    assert paired.difference == pytest.approx(np.mean(a - b))
    assert paired.share_better > 0.5 > paired.share_worse


def test_where_there_is_no_difference_few_are_found():
    # 200 comparisons of equal runs on 60 users: Binomial(200, 0.05) alarms, mean 10, sd 3.1. At most 24: a
    # false-alarm rate of 3e-5, were the seed not fixed. Their intervals miss 0 about as rarely.
    stream = np.random.default_rng(2)
    alarms = misses = 0
    for _ in range(200):
        a, b = stream.normal(size=(2, 60))
        paired = compare_paired(a, b, bootstrap=200, permutations=400)
        alarms += paired.significant
        misses += not paired.interval[0] <= 0 <= paired.interval[1]
    assert 1 <= alarms <= 24
    assert misses <= 28


def test_the_p_value_is_exact_for_few_users():
    d = np.array([0.5, -0.1, 0.7, 0.2, 0.9, 0.0])
    flipped = [abs(np.dot(signs, d)) for signs in product((-1, 1), repeat=6)]
    expected = np.mean([f >= d.sum() - 1e-12 for f in flipped])
    assert compare_paired(d, np.zeros(6)).p_value == pytest.approx(expected)


def test_the_smallest_p_value_is_one_over_the_patterns_tried_and_the_one_seen():
    assert compare_paired(np.ones(50), np.zeros(50), permutations=99).p_value == 1 / 100


def test_only_users_that_both_have_are_compared():
    a = np.array([1.0, np.nan, 3.0, 4.0, np.nan])
    b = np.array([0.0, 1.0, np.nan, 2.0, np.nan])
    paired = compare_paired(a, b)
    assert paired.users == 2
    assert (paired.first, paired.second, paired.difference) == (2.5, 1, 1.5)


def test_weights_by_ratings_give_the_error_over_ratings():
    a, b, counts = np.array([1.0, 2.0]), np.array([1.0, 4.0]), np.array([3, 1])
    paired = compare_paired(a, b, metric="mse", weights=counts)
    assert (paired.first, paired.second) == (5 / 4, 7 / 4)
    assert paired.difference == -0.5


def test_lower_is_better_for_errors_and_rank():
    a, b = np.zeros(20), np.ones(20)
    for metric in ("mse", "rmse", "mae", "rank"):
        assert compare_paired(a, b, metric=metric).share_better == 1
        assert "the first is better than the second" in str(compare_paired(a, b, metric=metric))
    for metric in ("ndcg@10", "hr@5", None):
        assert compare_paired(a, b, metric=metric).share_worse == 1
        assert "the first is worse than the second" in str(compare_paired(a, b, metric=metric))
    assert compare_paired(a, b, lower_is_better=True).share_better == 1


def test_one_user_has_no_interval_and_proves_nothing():
    paired = compare_paired(np.array([1.0]), np.array([0.0]))
    assert np.isnan(paired.interval).all()
    assert paired.p_value == 1
    assert str(paired).startswith("On 1 user, no clear difference")
    assert "nan" not in str(paired)


@pytest.mark.parametrize(
    ("a", "b", "others", "error", "says"),
    [
        ([np.nan, 1.0], [1.0, np.nan], {}, DataError, "share no user"),
        ([np.inf], [1.0], {}, DataError, "infinite"),
        ([1.0, 2.0], [1.0], {}, UsageError, "one value per user"),
        ([1.0], [1.0], {"weights": [1.0, 2.0]}, UsageError, "one value per user"),
        ([1.0], [1.0], {"weights": [-1.0]}, UsageError, "0 or more"),
        ([1.0], [1.0], {"metric": "ndgc@10"}, UsageError, 'Did you mean "ndcg"'),
        ([1.0], [1.0], {"permutations": 0}, UsageError, "permutations ≥ 1"),
    ],
)
def test_what_cannot_be_compared_gets_a_sentence(a, b, others, error, says):
    with pytest.raises(error, match=says):
        compare_paired(np.array(a), np.array(b), **others)


def test_the_interval_of_a_ratio_covers_the_true_ratio():
    # 300 worlds of 100 users with 1…20 ratings and squared errors of mean 1 that share a factor per user:
    # intervals that took ratings as independent would cover far less. Coverage has sd 0.013, and the seed is fixed.
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
