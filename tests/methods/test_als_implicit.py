"""`ials`: alternating least squares for implicit feedback, the central model however users are divided."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.evaluate import evaluate
from tacit.federation import Facts
from tacit.kernels.outer_sums import outer_sums, outer_sums_numpy
from tacit.methods import chosen, known
from tacit.methods.als_implicit import IALS, START, ImplicitParameters, TakenSums, solved
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive
from tacit.testing.method_contract import MethodContract

QUICK = {"factors": 4, "sweeps": 2, "confidence": 10.0, "regularization": 5.0}


@pytest.fixture(autouse=True, scope="module")
def installed():
    """It is a part of a method, and has a name of its own in tests alone."""
    known()["ials"] = IALS
    yield
    del known()["ials"]


known()["ials"] = IALS  # the contract looks its settings up when tests are collected


class TestImplicit(MethodContract):
    name, parameters = "ials", QUICK
    never = {"horizontal": ("users",), "device": ("users",)}


def fitted(ratings, by="user", into=3, **parameters):
    parties = partition(ratings, by=by, into=into)
    made = PreparedRun.of(*chosen({"name": "ials", **QUICK, **parameters}), Facts.of(parties, 7))
    return train(made, parties)


def test_sums_equal_their_twin():
    stream = derive(7, "outer")
    taken = stream.random((9, 6)) < stream.choice([0.0, 0.4, 1.0], size=(9, 1))
    indptr, items = np.concatenate([[0], np.cumsum(taken.sum(axis=1))]), np.nonzero(taken)[1]
    x = stream.standard_normal((9, 3))
    for mine, twin in zip(outer_sums(indptr, items, x, 6), outer_sums_numpy(indptr, items, x, 6), strict=True):
        np.testing.assert_allclose(mine, twin, atol=1e-12)


def test_it_is_dense_weighted_least_squares_however_users_are_divided():
    """Hu, Koren and Volinsky 2008, eq. (4) and (5), with the confidence of every pair written out."""
    ratings = demo(users=30, items=20, ratings=200)
    k, alpha, ridge = 4, 10.0, 5.0 * np.eye(4)
    p = np.zeros((30, 20))
    p[ratings.users, ratings.items] = 1
    c = 1 + alpha * p
    V = START * derive(7, "item factors").standard_normal((20, k))
    for _ in range(2):
        X = np.stack(
            [np.linalg.solve((V * w[:, None]).T @ V + ridge, V.T @ (w * t)) for w, t in zip(c, p, strict=True)]
        )
        V = np.stack(
            [np.linalg.solve((X * w[:, None]).T @ X + ridge, X.T @ (w * t)) for w, t in zip(c.T, p.T, strict=True)]
        )
    for by, into in (("user", 3), ("user", 1), ("device", None)):
        np.testing.assert_allclose(fitted(ratings, by, into).model.form.items, V, atol=2e-4)


def test_how_often_something_was_taken_does_not_matter():
    ratings = demo(users=30, items=20, ratings=200)
    turned = replace(ratings, values=(6 - ratings.values).astype(np.float32))
    one, other = (fitted(r).model.form.items for r in (ratings, turned))
    np.testing.assert_array_equal(one, other)


def test_factors_beyond_the_public_length_are_cut_to_it_and_the_absent_add_nothing():
    ratings = demo(users=8, items=6, ratings=30)
    x = 1e6 * derive(7, "x").standard_normal((8, 3))
    query = TakenSums(2.0)
    answer = query.over(ratings, x).exact({}, derive(7, "unused"))
    counts = np.bincount(ratings.items, minlength=6)
    assert (np.abs(answer["gram"]).max(axis=1) <= query.largest * counts * (1 + 1e-5)).all()
    nobody = query.over(ratings, x, present=np.zeros(8, dtype=bool)).exact({}, derive(7, "unused"))
    assert not any(block.any() for block in nobody.values())


def test_an_item_that_nobody_took_gets_no_factors():
    parameters = ImplicitParameters(**QUICK)
    V = solved(np.zeros((2, 10)), np.array([[0.0] * 4, [1.0] * 4]), np.zeros(10), parameters)
    assert not V[0].any()
    assert V[1].all()


def test_it_ranks_better_than_chance():
    learned, held_out = split(demo(users=300, items=60, ratings=6000), by="leave-one-out", seed=7)
    predictor = fitted(learned, sweeps=5, factors=8).predictor
    found = evaluate(predictor, held_out, seen=learned, relevance=1, bootstrap=0).metrics["hr_full@10"]
    assert found > 10 / 40 * 1.3  # about 40 items are left to each
