"""Worlds whose metrics can be worked out on paper."""

from __future__ import annotations

import numpy as np
import pytest
from evaluation_worlds import Table, random_world, ratings_of

from tacit.data.ratings import Feedback
from tacit.evaluate import evaluate

_ = np.nan


def test_errors_are_means_over_ratings_not_over_users():
    test = ratings_of([[1, 2, 3], [5, _, _], [_, _, _]])
    truth = Table([[2, 2, 5], [5, 0, 0], [0, 0, 0]])  # errors 1, 0, 2 and 0
    result = evaluate(truth, test, ranking=False)
    assert result.metrics == pytest.approx({"mse": 5 / 4, "rmse": np.sqrt(5 / 4), "mae": 3 / 4})
    np.testing.assert_allclose(result.per_user["mse"], [5 / 3, 0, np.nan], rtol=1e-6)
    np.testing.assert_allclose(result.per_user["rmse"], [np.sqrt(5 / 3), 0, np.nan], rtol=1e-6)
    np.testing.assert_allclose(result.per_user["mae"], [1, 0, np.nan], rtol=1e-6)
    assert evaluate(Table([[9.0]]), ratings_of([[5.0]]), ranking=False).metrics["mse"] == 16  # not clipped


def test_ranking_metrics_of_one_user_by_hand():
    # Item 0 is seen. The others rank 1, 2, 3, 4, 5; relevant (≥ 4) are 2 and 4, at positions 2 and 4.
    test = ratings_of([[_, _, 5, 2, 4, _]])
    seen = ratings_of([[5, _, _, _, _, _]])
    result = evaluate(Table([[9, 5, 4, 3, 2, 1]]), test, seen=seen, k=3)
    metrics = result.metrics
    assert metrics["precision@3"] == pytest.approx(1 / 3)
    assert metrics["recall@3"] == pytest.approx(1 / 2)
    assert metrics["f1@3"] == pytest.approx(2 / 5)
    assert metrics["ndcg@3"] == pytest.approx((1 / np.log2(3)) / (1 + 1 / np.log2(3)))
    assert metrics["map@3"] == pytest.approx((1 / 2) / 2)
    # Without the other relevant item the rivals of 2 are {1, 3, 5}: second; those of 4 rank it third.
    assert metrics["hr_full@3"] == 1
    # The unseen, untested items are 1 and 5: both relevant items are second of three.
    assert metrics["hr@3"] == 1
    assert evaluate(Table([[9, 5, 4, 3, 2, 1]]), test, seen=seen, k=1).metrics["hr@1"] == 0
    assert evaluate(Table([[9, 5, 4, 3, 2, 1]]), test, seen=seen, k=2).metrics["hr_full@2"] == 1 / 2
    # Percentiles 1/4, 2/4, 3/4 with weights 5, 2, 4.
    assert metrics["rank"] == pytest.approx((5 * 1 + 2 * 2 + 4 * 3) / 4 / 11)


def test_rank_on_a_scale_below_zero_weighs_by_the_distance_from_its_lower_end():
    test = ratings_of([[10, -10, 0]], scale=(-10, 10))
    result = evaluate(Table([[1, 2, 3]]), test)
    assert result.metrics["rank"] == pytest.approx((20 * 1 + 0 * 0.5 + 10 * 0) / 30)


def test_a_perfect_list_with_more_relevant_items_than_places_has_map_and_ndcg_one():
    dense = np.full((1, 40), _)
    dense[0, :15] = 5
    metrics = evaluate(Table(np.nan_to_num(dense)), ratings_of(dense)).metrics
    assert metrics["map@10"] == pytest.approx(1)
    assert metrics["ndcg@10"] == pytest.approx(1)
    assert metrics["precision@10"] == pytest.approx(1)
    assert metrics["recall@10"] == pytest.approx(10 / 15)


@pytest.mark.parametrize(("sign", "best"), [(1, 1), (-1, 0)])
def test_a_perfect_predictor_gets_one_and_rank_zero_and_a_worst_one_the_opposite(sign, best):
    dense = np.full((20, 150), _)
    dense[np.arange(20), np.arange(20)] = 5
    result = evaluate(Table(sign * np.nan_to_num(dense)), ratings_of(dense))
    for name in ("hr@10", "hr_full@10", "ndcg@10", "recall@10", "map@10"):
        assert result.metrics[name] == best, name
    assert result.metrics["rank"] == 1 - best
    assert result.intervals["ndcg@10"] == (best, best)


def test_a_constant_predictor_is_not_lucky():
    stream = np.random.default_rng(1)
    seen, test = random_world(stream, 50, 200, seen=0.1, test=0.05)
    result = evaluate(Table(np.full((50, 200), 3.7)), ratings_of(test), seen=ratings_of(seen))
    assert result.metrics["hr@10"] == pytest.approx(10 / 100)  # exact: ties count by expected value
    assert result.metrics["rank"] == pytest.approx(0.5)


def test_a_random_predictor_has_hit_ratio_a_tenth_and_rank_a_half():
    # n = 3,000 users with one relevant item each: hits are Bernoulli(0.1), sd 0.3/√3000 = 0.0055; percentiles
    # are uniform, sd 0.289/√3000 = 0.0053. Bounds at 4.4 sd: a false-alarm rate of 1e-5 each, were the seed
    # not fixed.
    n, m = 3000, 200
    stream = np.random.default_rng(2)
    dense = np.full((n, m), _)
    dense[np.arange(n), stream.integers(0, m, n)] = 5
    result = evaluate(Table(stream.normal(size=(n, m)).astype(np.float32), rates=False), ratings_of(dense))
    assert abs(result.metrics["hr@10"] - 0.1) < 4.4 * 0.0055
    assert abs(result.metrics["rank"] - 0.5) < 4.4 * 0.0053
    assert abs(result.metrics["recall@10"] - 10 / m) < 4.4 * np.sqrt(0.05 * 0.95 / n)


def test_relevance_is_the_upper_quarter_of_the_scale_unless_given():
    test = ratings_of([[4, 3, 5, _]])
    scores = Table([[1, 4, 2, 3]])
    assert evaluate(scores, test, k=1).metrics["precision@1"] == 0
    assert evaluate(scores, test, k=1, relevance=3).metrics["precision@1"] == 1
    assert evaluate(scores, test, k=4).metrics["precision@4"] == pytest.approx(2 / 4)


def test_relevance_survives_the_rounding_of_ratings_to_float32():
    test = ratings_of([[0.7, _]], scale=(0, 1))  # stored as 0.69999999
    for relevance in (0.7, np.float64(0.7)):
        assert evaluate(Table([[1, 0]]), test, k=1, relevance=relevance).metrics["precision@1"] == 1


@pytest.mark.parametrize("feedback", [Feedback.IMPLICIT, Feedback.COUNT])
def test_every_test_item_is_relevant_where_feedback_is_no_opinion(feedback):
    test = ratings_of([[1, 1, _, _]], scale=(0, 1), feedback=feedback)
    metrics = evaluate(Table([[3, 0, 2, 1]], rates=False), test, k=2).metrics
    assert metrics["recall@2"] == 1 / 2
    assert "mse" not in metrics
