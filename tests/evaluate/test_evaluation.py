"""What `evaluate` does beside the arithmetic: order, blocks, samples, notes, errors, output."""

import numpy as np
import pyarrow as pa
import pytest
from evaluation_worlds import Table, random_world, ratings_of

from tacit.errors import DataError, UsageError
from tacit.evaluate import METRICS, evaluate, lower_is_better

_ = np.nan
ALL = ["mse", "rmse", "mae", "hr@10", "hr_full@10", "ndcg@10", "precision@10", "recall@10", "f1@10", "map@10", "rank"]


@pytest.fixture
def world():
    """60 users, 150 items, a noisy predictor."""
    stream = np.random.default_rng(11)
    seen, test = random_world(stream, 60, 150, seen=0.1, test=0.05)
    table = (np.nan_to_num(test, nan=3) + stream.normal(size=test.shape)).astype(np.float32)
    return table, ratings_of(test), ratings_of(seen)


def test_all_metrics_come_with_intervals_around_them(world):
    table, test, seen = world
    result = evaluate(Table(table), test, seen=seen)
    assert list(result.metrics) == list(result.intervals) == list(result.per_user) == ALL
    for name, value in result.metrics.items():
        low, high = result.intervals[name]
        assert low < value < high, name
        assert isinstance(value, float)
        assert isinstance(low, float)
        assert result.per_user[name].dtype == np.float32
        assert result.per_user[name].shape == (60,)
    np.testing.assert_array_equal(result.users, np.arange(60))
    without = evaluate(Table(table), test, seen=seen, bootstrap=0)
    assert (without.metrics, without.intervals) == (result.metrics, {})
    rows = [line.split() for line in str(without).splitlines()[1 : 1 + len(ALL)]]
    assert [(row[0], row[2]) for row in rows] == [(name, "–") for name in ALL]


def test_the_same_call_gives_the_same_result_and_the_seed_only_changes_draws(world):
    table, test, seen = world
    one, two = (evaluate(Table(table), test, seen=seen) for _ in range(2))
    assert one.metrics == two.metrics
    assert one.intervals == two.intervals
    other = evaluate(Table(table), test, seen=seen, seed=8)
    assert other.metrics["hr@10"] != one.metrics["hr@10"]
    assert other.metrics["ndcg@10"] == one.metrics["ndcg@10"]


def test_a_users_values_do_not_depend_on_the_other_users(world):
    table, test, seen = world
    whole = evaluate(Table(table), test, seen=seen)
    some = np.array([3, 17, 40, 41])
    part = evaluate(Table(table[some]), test.select_users(some), seen=seen.select_users(some))
    for name in ALL:
        np.testing.assert_array_equal(part.per_user[name], whole.per_user[name][some], err_msg=name)


def test_the_predictors_own_array_is_left_alone(world):
    table, test, seen = world
    table.flags.writeable = False
    before = table.copy()
    predictor = Table(table)
    predictor.scores = lambda users: table  # no copy: all users are asked for at once
    evaluate(predictor, test, seen=seen)
    np.testing.assert_array_equal(table, before)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int64])
def test_scores_of_any_number_type_are_ranked(dtype):
    test = ratings_of([[_, 5, _]])
    assert evaluate(Table(np.array([[1, 3, 2]], dtype=dtype)), test, k=1).metrics["precision@1"] == 1


def test_above_at_most_users_a_seeded_sample_is_ranked_and_said(world):
    table, test, seen = world
    whole = evaluate(Table(table), test, seen=seen)
    result = evaluate(Table(table), test, seen=seen, at_most_users=20)
    assert len(result.users) == 20
    assert np.all(np.diff(result.users) > 0)
    assert result.notes[0] == "Ranking metrics are of a seeded sample: 20 of 60 users."
    assert result.metrics["mse"] == whole.metrics["mse"]
    left_out = np.setdiff1d(np.arange(60), result.users)
    assert np.isnan(result.per_user["rank"][left_out]).all()
    np.testing.assert_array_equal(result.per_user["rank"][result.users], whole.per_user["rank"][result.users])
    again = evaluate(Table(table), test, seen=seen, at_most_users=20, seed=8)
    assert np.any(again.users != result.users)


def test_users_without_a_relevant_item_count_for_errors_and_rank_only():
    test = ratings_of([[5, _, _], [1, _, _], [_, _, _]])
    result = evaluate(Table([[3, 2, 1]] * 3), test, k=1)
    np.testing.assert_array_equal(result.users, [0, 1])
    np.testing.assert_array_equal(result.per_user["ndcg@1"], np.array([1, np.nan, np.nan], dtype=np.float32))
    assert result.metrics["ndcg@1"] == 1
    assert "ndcg@1" not in result.intervals  # it rests on one user
    np.testing.assert_array_equal(np.isnan(result.per_user["rank"]), [False, False, True])
    assert "1 of 2 users have no relevant item; of ranking metrics, only rank counts them." in result.notes


def test_without_any_relevant_item_rank_is_all_there_is():
    result = evaluate(Table([[3, 2, 1]], rates=False), ratings_of([[1, 2, _]]))
    assert list(result.metrics) == ["rank"]
    for words in ("No test item is relevant", "No seen ratings were given"):
        assert any(words in note for note in result.notes)


def test_a_user_who_has_seen_everything_but_the_test_item_has_no_rivals():
    test, seen = ratings_of([[5, _, _]]), ratings_of([[_, 3, 3]])
    result = evaluate(Table([[0, 1, 2]]), test, seen=seen, k=1)
    assert result.metrics["ndcg@1"] == result.metrics["hr@1"] == 1
    assert "rank" not in result.metrics  # no percentile of one
    assert "For 1 users with fewer than 99 unseen items, hr@1 uses those." in result.notes


def test_huge_finite_scores_rank_like_others():
    result = evaluate(Table(np.array([[3e38, -3e38, 0]], dtype=np.float32)), ratings_of([[5, _, _]]), k=1)
    assert result.metrics["precision@1"] == 1
    assert np.isfinite(result.per_user["mse"]).all()
    assert "9e+76" in str(result)


@pytest.mark.parametrize(
    ("table", "test", "options", "words"),
    [
        (np.zeros((3, 4)), np.full((3, 4), _), {}, "There are no test ratings"),
        ([[1e200]], [[5]], {"ranking": False}, r"reach 1e\+200, which cannot be squared"),
        (np.zeros((2, 2)), [[5, _], [_, 4]], {"seen": [[_, _], [3, 4]]}, "User 'u00001' has item 'i00001' both"),
        (np.zeros((3, 3)), np.ones((3, 3)), {"seen": np.ones((2, 3))}, "do not have the same users"),
        (np.zeros((3, 3)), np.ones((3, 3)), {"seen": np.ones((3, 2))}, "do not have the same items"),
    ],
)
def test_what_cannot_be_evaluated_gets_a_sentence(table, test, options, words):
    if "seen" in options:
        options = {"seen": ratings_of(options["seen"])}
    with pytest.raises(DataError, match=words):
        evaluate(Table(table), ratings_of(test), **options)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_predictions_that_are_no_numbers_are_an_error_that_counts_them(bad):
    test = ratings_of([[5, 4, _], [1, _, _]])
    wrong = np.array([[bad, 3, 3], [bad, 3, 3]])
    with pytest.raises(DataError, match="2 of 3 predicted test ratings are NaN or infinite"):
        evaluate(Table(wrong), test)
    with pytest.raises(DataError, match="2 of 6 scores of 2 users are NaN or infinite"):
        evaluate(Table(wrong, rates=False), test)


def test_test_ratings_that_are_no_numbers_are_an_error():
    test = ratings_of([[5, 4, 3]])
    test.values[1] = np.nan
    with pytest.raises(DataError, match=r"1 of 3 test ratings .* first at entry 2"):
        evaluate(Table(np.zeros((1, 3))), test)


def test_answers_of_the_wrong_shape_are_an_error():
    test = ratings_of([[5, 4, _]])
    predictor = Table(np.zeros((1, 3)))
    predictor.scores = lambda users: np.zeros((1, 2))
    with pytest.raises(UsageError, match=r"shape \(1, 2\), but the test ratings have 3 items"):
        evaluate(predictor, test)
    predictor.predict = lambda users, items: np.zeros((2, 1))
    with pytest.raises(UsageError, match=r"for 2 pairs, an array of shape \(2, 1\)"):
        evaluate(predictor, test)


@pytest.mark.parametrize(
    ("name", "value"),
    [("k", 0), ("k", 2.5), ("negatives", 0), ("at_most_users", 0), ("bootstrap", -1), ("relevance", np.nan)],
)
def test_impossible_settings_are_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"{name} = .* is not possible"):
        evaluate(Table(np.zeros((1, 2))), ratings_of([[5, _]]), **{name: value})
    with pytest.raises(UsageError, match="nothing to measure"):
        evaluate(Table(np.zeros((1, 2)), rates=False), ratings_of([[5, _]]), ranking=False)


def test_to_arrow_has_one_row_per_user_and_value():
    test = ratings_of([[5, _, _], [1, _, _], [_, _, _]])
    table = evaluate(Table([[3, 2, 1]] * 3), test, k=1).to_arrow(test.user_ids)
    assert table.column_names == ["scope", "round", "user", "metric", "value"]
    assert table.schema.types == [pa.string(), pa.int64(), pa.string(), pa.string(), pa.float64()]
    rows = table.to_pylist()
    assert {r["scope"] for r in rows} == {"user"}
    assert {r["round"] for r in rows} == {None}
    assert [(r["user"], r["value"]) for r in rows if r["metric"] == "mse"] == [("u00000", 4), ("u00001", 4)]
    assert [(r["user"], r["value"]) for r in rows if r["metric"] == "ndcg@1"] == [("u00000", 1)]
    assert evaluate(Table([[3, 2, 1]] * 3), test).to_arrow(np.arange(3)).schema.field("user").type == pa.int64()
    with pytest.raises(UsageError, match="2 ids for 3 users"):
        evaluate(Table([[3, 2, 1]] * 3), test).to_arrow(np.arange(2))


def test_errors_and_rank_are_better_when_lower():
    assert {name for name in METRICS if lower_is_better(name)} == {"mse", "rmse", "mae", "rank"}
    assert {name.partition("@")[0] for name in ALL} == set(METRICS)
    with pytest.raises(UsageError, match="Did you mean"):
        lower_is_better("rnse")
