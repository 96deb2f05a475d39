"""Metrics against their definitions: plain loops over every order of the scores, and worlds worked out on paper."""

from itertools import groupby, permutations, product
from math import log2

import numpy as np
import pytest
from evaluation_worlds import Table, random_world, ratings_of
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.ratings import Feedback
from tacit.evaluate import evaluate
from tacit.evaluate.positions import sample_negatives
from tacit.rng import id_keys

NAMES = ("hr", "hr_full", "ndcg", "precision", "recall", "f1", "map", "rank")


def orders(items, score):
    """All orders of `items` by decreasing score."""
    ranked = sorted(items, key=lambda i: -score[i])
    ties = [list(permutations(group)) for _, group in groupby(ranked, key=lambda i: score[i])]
    for parts in product(*ties):
        yield [i for part in parts for i in part]


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def hit(item, rivals, score, k):
    return mean(order.index(item) < k for order in orders([item, *rivals], score))


def of_list(order, relevant, k):
    """ndcg, precision, recall, f1, average precision of one list."""
    gains = [i in relevant for i in order[:k]]
    dcg = sum(g / log2(p + 2) for p, g in enumerate(gains))
    ideal = sum(1 / log2(p + 2) for p in range(min(k, len(relevant))))
    precision, recall = sum(gains) / k, sum(gains) / len(relevant)
    f1 = 2 * precision * recall / (precision + recall) if precision else 0.0
    average = sum(sum(gains[: p + 1]) / (p + 1) for p, g in enumerate(gains) if g) / min(k, len(relevant))
    return dcg / ideal, precision, recall, f1, average


def twin(scores, seen, test, k, negatives=None):
    """The ranking metrics per user, NaN where there is none; all unseen items are negatives by default."""
    n, m = scores.shape
    out = {name: [None] * n for name in NAMES}
    for u in range(n):
        candidates = [i for i in range(m) if np.isnan(seen[u, i])]
        tested = [i for i in candidates if not np.isnan(test[u, i])]
        relevant = [i for i in tested if test[u, i] >= 4]
        unseen = [i for i in candidates if i not in tested] if negatives is None else list(negatives[u])
        x = sum(test[u, i] for i in tested)
        if tested and len(candidates) > 1:
            all_orders = list(orders(candidates, scores[u]))
            places = {i: mean(o.index(i) for o in all_orders) / (len(candidates) - 1) for i in tested}
            out["rank"][u] = sum(test[u, i] * places[i] for i in tested) / x
        if relevant:
            out["hr"][u] = mean(hit(i, unseen, scores[u], k) for i in relevant)
            out["hr_full"][u] = mean(
                hit(i, [j for j in candidates if j not in relevant], scores[u], k) for i in relevant
            )
            lists = [of_list(o, relevant, k) for o in orders(candidates, scores[u])]
            for place, name in enumerate(("ndcg", "precision", "recall", "f1", "map")):
                out[name][u] = mean(values[place] for values in lists)
    return {name: np.array([np.nan if v is None else v for v in values]) for name, values in out.items()}


def same(result, expected, k):
    for name in NAMES:
        full = name if name == "rank" else f"{name}@{k}"
        if np.isnan(expected[name]).all():
            assert full not in result.metrics
            continue
        np.testing.assert_allclose(result.per_user[full], expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
        if name != "rank":
            assert result.metrics[full] == pytest.approx(np.nanmean(expected[name]), abs=1e-9)


@st.composite
def tiny_worlds(draw):
    """Up to 3 users and 6 items, scores with many ties; each cell is free, seen or tested."""
    n, m = draw(st.integers(1, 3)), draw(st.integers(1, 6))
    cells = n * m
    scores = draw(st.lists(st.integers(0, 3), min_size=cells, max_size=cells))
    state = draw(st.lists(st.sampled_from("..stt"), min_size=cells, max_size=cells))
    state[draw(st.integers(0, cells - 1))] = "t"
    values = draw(st.lists(st.integers(1, 5), min_size=cells, max_size=cells))
    state = np.array(state).reshape(n, m)
    values = np.array(values, dtype=np.float64).reshape(n, m)
    seen, test = np.where(state == "s", values, np.nan), np.where(state == "t", values, np.nan)
    return np.array(scores, dtype=np.float32).reshape(n, m), seen, test, draw(st.integers(1, 4))


@settings(max_examples=400, deadline=None, derandomize=True)
@given(tiny_worlds())
def test_metrics_equal_the_mean_over_all_orders_of_ties(world):
    scores, seen, test, k = world
    result = evaluate(Table(scores, rates=False), ratings_of(test), seen=ratings_of(seen), k=k, bootstrap=0)
    same(result, twin(scores, seen, test, k), k)


@pytest.mark.parametrize("seed", range(3))
def test_metrics_equal_the_definitions_without_ties_and_with_sampled_negatives(seed):
    stream = np.random.default_rng(seed)
    n, m, k, negatives = 25, 40, 5, 12
    seen, test = random_world(stream, n, m, seen=0.2, test=0.2)
    scores = stream.normal(size=(n, m))
    ratings = ratings_of(test)
    known = [np.flatnonzero(~np.isnan(seen[u]) | ~np.isnan(test[u])) for u in range(n)]
    indptr = np.concatenate(([0], np.cumsum([len(x) for x in known])))
    keys = id_keys(seed, "evaluate: negatives", ratings.user_ids.ids)
    drawn = sample_negatives(indptr, np.concatenate(known), keys, items=m, negatives=negatives, seed=seed)
    result = evaluate(
        Table(scores, rates=False),
        ratings,
        seen=ratings_of(seen),
        k=k,
        negatives=negatives,
        seed=seed,
        bootstrap=0,
    )
    same(result, twin(scores, seen, test, k, drawn), k)


def test_rank_over_all_is_the_weighted_mean_over_ratings():
    stream = np.random.default_rng(5)
    seen, test = random_world(stream, 10, 30, seen=0.2, test=0.3)
    scores = stream.normal(size=(10, 30))
    result = evaluate(Table(scores, rates=False), ratings_of(test), seen=ratings_of(seen), bootstrap=0)
    weights = np.nansum(test, axis=1)
    expected = np.average(twin(scores, seen, test, 10)["rank"], weights=weights)
    assert result.metrics["rank"] == pytest.approx(expected)


def draw(known: list[list[int]], items: int, negatives: int, seed: int = 7, ids: list[int] | None = None) -> np.ndarray:
    indptr = np.concatenate(([0], np.cumsum([len(k) for k in known]))).astype(np.int64)
    flat = np.array([i for k in known for i in k], dtype=np.int64)
    keys = id_keys(seed, "a test", range(len(known)) if ids is None else ids)
    return sample_negatives(indptr, flat, keys, items=items, negatives=negatives, seed=seed)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    known=st.lists(st.sets(st.integers(0, 11)), min_size=1, max_size=5),
    negatives=st.integers(1, 15),
    seed=st.integers(0, 2**31),
)
def test_draws_are_distinct_unknown_items_as_many_as_there_are(known, negatives, seed):
    drawn = draw([sorted(k) for k in known], 12, negatives, seed)
    assert drawn.shape == (len(known), negatives)
    for row, items in zip(drawn, known, strict=True):
        picked = row[row >= 0]
        assert len(picked) == min(negatives, 12 - len(items))
        assert len(set(picked)) == len(picked)
        assert not set(picked) & items
        assert picked.max(initial=0) < 12


@pytest.mark.parametrize("negatives", [1, 3])
def test_every_unknown_item_is_drawn_equally_often(negatives):
    # 20,000 users draw k of 8 unknown items, each Binomial(20000, k/8) times. Bounds at 4.9 sd: a false-alarm rate of
    # 1e-6 per item, were the seed not fixed.
    counts = np.bincount(draw([[1, 4]] * 20_000, 10, negatives).ravel(), minlength=10)
    chance = negatives / 8
    assert counts[1] == counts[4] == 0
    assert np.all(np.abs(np.delete(counts, [1, 4]) - 20_000 * chance) < 4.9 * np.sqrt(20_000 * chance * (1 - chance)))


def test_every_pair_of_items_is_drawn_equally_often():
    # All C(5, 2) = 10 subsets of 30,000 draws: Binomial(30000, 1/10), sd 52. Bounds at 4.9 sd: a false-alarm
    # rate of 1e-6 per subset, were the seed not fixed.
    drawn = np.sort(draw([[]] * 30_000, 5, 2), axis=1)
    _, counts = np.unique(drawn[:, 0] * 5 + drawn[:, 1], return_counts=True)
    assert len(counts) == 10
    assert np.all(np.abs(counts - 3000) < 4.9 * 52)


def test_a_draw_depends_on_the_users_id_not_on_the_others():
    known = [[0, 3], [1], [], [2, 5, 7]]
    together = draw(known, 50, 6, ids=[10, 11, 12, 13])
    backwards = draw(known[::-1], 50, 6, ids=[13, 12, 11, 10])
    np.testing.assert_array_equal(together, backwards[::-1])
    np.testing.assert_array_equal(together[2:3], draw([[]], 50, 6, ids=[12]))
    assert (together != draw(known, 50, 6, seed=8, ids=[10, 11, 12, 13])).any()


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
