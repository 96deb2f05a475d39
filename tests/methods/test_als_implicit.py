"""`als` where feedback is implicit: the central model however users are divided, and it ranks."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused, UsageError
from tacit.evaluate import evaluate
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.methods.als.implicit import START, TakenSums, solved
from tacit.methods.als.parameters import EitherParameters
from tacit.methods.als.statistics import ByItem
from tacit.model import Model
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive
from tacit.testing.method_contract import MethodContract

QUICK = {"factors": 4, "sweeps": 2, "confidence": 10.0, "regularization": 5.0}


def world(users=30, items=20, ratings=200):
    return demo(users=users, items=items, ratings=ratings, feedback="implicit")


class TestImplicit(MethodContract):
    name, parameters = "als", QUICK
    never = {"horizontal": ("users",), "device": ("users",)}

    def ratings(self):
        return world(users=60, items=40, ratings=900)


def fitted(ratings, by="user", into=3, **parameters):
    parties = partition(ratings, by=by, into=into)
    made = PreparedRun.of(*chosen({"name": "als", **QUICK, **parameters}), Facts.of(parties, 7))
    return train(made, parties)


def test_it_is_dense_weighted_least_squares_however_users_are_divided():
    """Hu, Koren and Volinsky 2008, eq. (4) and (5), with the confidence of every pair written out."""
    ratings = world()
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
    ratings = world()
    turned = replace(ratings, values=np.full(ratings.n_ratings, 0.5, dtype=np.float32))
    one, other = (fitted(r).model.form.items for r in (ratings, turned))
    np.testing.assert_array_equal(one, other)


def test_factors_beyond_the_public_length_are_cut_to_it_and_the_absent_add_nothing():
    ratings = world(8, 6, 30)
    by_item = ByItem.of(ratings)
    x = 1e6 * derive(7, "x").standard_normal((8, 3))
    query = TakenSums(2.0)
    answer = query.over(by_item, x).exact({}, derive(7, "unused"))
    counts = np.bincount(ratings.items, minlength=6)
    assert (np.abs(answer["gram"]).max(axis=1) <= query.largest * counts * (1 + 1e-5)).all()
    nobody = query.over(by_item, x, present=np.zeros(8, dtype=bool)).exact({}, derive(7, "unused"))
    assert not any(block.any() for block in nobody.values())


def test_an_item_that_nobody_took_gets_no_factors():
    parameters = EitherParameters(**QUICK)
    V = solved(np.zeros((2, 10)), np.array([[0.0] * 4, [1.0] * 4]), np.zeros(10), parameters)
    assert not V[0].any()
    assert V[1].all()


def test_it_ranks_better_than_chance():
    learned, held_out = split(world(300, 60, 6000), by="leave-one-out", seed=7)
    predictor = fitted(learned, sweeps=5, factors=8).predictor
    found = evaluate(predictor, held_out, seen=learned, relevance=1, bootstrap=0).metrics["hr_full@10"]
    assert found > 10 / 40 * 1.3  # about 40 items are left to each


@pytest.mark.parametrize("aggregation", ["ideal", "secagg"])
def test_hidden_sums_reach_it_too(aggregation):
    silos = partition(world(), into=3)
    hidden = tacit.ALS(aggregation=aggregation, seed=7, **QUICK).fit(silos)
    np.testing.assert_allclose(hidden.model_.form.items, fitted(world()).model.form.items, atol=1e-3)


def test_a_user_who_was_there_is_folded_in_as_the_party_has_them_also_after_the_disk(tmp_path):
    ratings, trained = world(), fitted(world())
    model = Model.load(trained.model.save(tmp_path / "model"))
    assert model.method == "als"
    mine = [ratings.item_ids[i].item() for i in ratings.items[ratings.indptr[5] : ratings.indptr[6]]]
    own = np.asarray(trained.predictor.scores(np.array([5])))[0]
    np.testing.assert_allclose(model.scores(dict.fromkeys(mine, 1.0)), own, atol=1e-5)
    assert not set(mine) & {item for item, _score in model.recommend(dict.fromkeys(mine, 1.0), n=5)}


def test_privacy_is_refused_in_one_sentence_that_names_auto():
    with pytest.raises(PrivacyRefused, match=r'no bound.*choose "auto"'):
        tacit.ALS(privacy=tacit.DP(epsilon=1.0, delta=1e-4), **QUICK).fit(partition(world(), into=3))


def test_divided_items_are_refused_where_feedback_is_implicit():
    with pytest.raises(UsageError, match="als of implicit feedback needs parties that hold different users"):
        fitted(world(), by="item")


def test_defaults_are_those_of_the_feedback():
    parties = [partition(r, into=3) for r in (world(), demo(users=30, items=20, ratings=200))]
    found = [PreparedRun.of(*chosen({"name": "als"}), Facts.of(p, 7)).parameters for p in parties]
    assert [p.factors for p in found] == [64, 4]
    assert [p.sweeps for p in found] == [15, 25]
