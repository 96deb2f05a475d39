"""Ranking metrics against their definitions: plain loops over every order that the scores allow."""

from __future__ import annotations

from itertools import groupby, permutations, product
from math import log2

import numpy as np
import pytest
from evaluation_worlds import Table, random_world, ratings_of
from hypothesis import given, settings
from hypothesis import strategies as st

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
