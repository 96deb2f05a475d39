"""Estimators have scikit-learn's manners."""

import numpy as np
import pytest

import tacit
from tacit.errors import DataError, UsageError

RATINGS = tacit.load("demo", users=80, items=40, ratings=1200)
TRAIN, TEST = tacit.split(RATINGS, test=0.2, seed=7)
SILOS = tacit.partition(TRAIN, into=3)
QUICK = {"factors": 4, "rounds": 5, "local_steps": 2}
ALL = [tacit.SGDMF(**QUICK), tacit.Central(epochs=2), tacit.Local(epochs=2), tacit.GlobalMean(), tacit.ItemMean()]
ALL += [tacit.Popularity(), tacit.Random()]


@pytest.mark.parametrize("model", ALL, ids=repr)
def test_fit_returns_self_and_leaves_the_parameters(model):
    before = model.get_params()
    assert model.fit(SILOS) is model
    assert model.get_params() == before
    assert str(model.guarantee_) == "NON-PRIVATE"
    assert not model.guarantee_


@pytest.mark.parametrize("model", ALL, ids=repr)
def test_recommendations_are_new_to_the_user_and_best_first(model):
    model.fit(SILOS)
    user = RATINGS.user_ids[5]
    found = model.recommend(user, n=8)
    seen = set(TRAIN.item_ids[TRAIN.row(5)[0]].tolist())
    assert len(found) == min(8, 40 - len(seen))
    assert not seen & {item for item, _score in found}
    assert [score for _item, score in found] == sorted((score for _item, score in found), reverse=True)


def test_predictions_are_those_of_the_predictor():
    model = tacit.SGDMF(**QUICK).fit(SILOS)
    items = [1, 7, 30]
    got = model.predict(RATINGS.user_ids[5], items)
    columns = RATINGS.item_ids.rows(items)
    np.testing.assert_array_equal(got, model.predictor_.predict(np.full(3, 5), columns))


def test_constructors_only_store():
    assert tacit.SGDMF(factors=-3).factors == -3
    with pytest.raises(UsageError, match=r"SGDMF, factors = -3 is not possible"):
        tacit.SGDMF(factors=-3).fit(SILOS)


def test_parameters_can_be_set_and_unknown_ones_not():
    model = tacit.SGDMF().set_params(factors=3, rounds=1)
    assert (model.factors, model.rounds) == (3, 1)
    assert type(model)(**model.get_params()).get_params() == model.get_params()
    with pytest.raises(UsageError, match="no parameter 'factor'"):
        model.set_params(factor=3)


def test_nothing_can_be_asked_before_fit():
    for ask in (lambda m: m.recommend("u1"), lambda m: m.predict("u1", [1]), lambda m: m.save("x")):
        with pytest.raises(UsageError, match="call fit"):
            ask(tacit.SGDMF())


def test_ratings_are_no_parties():
    with pytest.raises(UsageError, match=r"tacit\.partition"):
        tacit.SGDMF().fit(TRAIN)


def test_an_unknown_user_gets_a_suggestion():
    with pytest.raises(DataError, match="Did you mean"):
        tacit.ItemMean().fit(SILOS).recommend("u05")


def test_evaluate_takes_a_fitted_estimator_and_knows_what_it_has_seen():
    model = tacit.SGDMF(**QUICK).fit(SILOS)
    direct = tacit.evaluate(model.predictor_, TEST, seen=TRAIN)
    assert tacit.evaluate(model, TEST).metrics == direct.metrics


@pytest.mark.parametrize(("by", "into"), [("user", 3), ("item", 3), ("device", 2)])
def test_what_was_seen_is_the_training_part_however_it_was_divided(by, into):
    model = tacit.ItemMean().fit(tacit.partition(TRAIN, by=by, into=into))
    seen = model.seen_
    np.testing.assert_array_equal(seen.indptr, TRAIN.indptr)
    np.testing.assert_array_equal(seen.items, TRAIN.items)
    np.testing.assert_array_equal(seen.values, TRAIN.values)


def test_somebody_new_is_folded_in_and_gets_what_she_likes():
    """A new user with the ratings of a known one is predicted much like her."""
    learned = tacit.load("demo")
    model = tacit.SGDMF(rounds=50).fit(tacit.partition(learned, into=3))
    errors, spread = [], []
    for row in range(0, 1000, 25):
        items, values = learned.row(row)
        half = len(items) // 2
        history = dict(zip(learned.item_ids[items[:half]].tolist(), values[:half].tolist(), strict=True))
        predicted = model.model_.predict(history, learned.item_ids[items[half:]].tolist())
        errors += list((predicted - values[half:]) ** 2)
        spread += list((values[half:] - learned.values.mean()) ** 2)
    assert np.mean(errors) < 0.8 * np.mean(spread)


def test_the_public_names_are_all_there():
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    assert "SGDMF" in dir(tacit)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tacit.nothing  # noqa: B018
