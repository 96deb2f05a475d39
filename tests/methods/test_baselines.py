"""Baselines are what they say."""

import numpy as np
import pytest

import tacit
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.testing.worlds import checkerboard

RATINGS = tacit.load("demo", users=80, items=30, ratings=900)
BY = {"horizontal": ("user", 4), "vertical": ("item", 4), "device": ("device", 2)}


def fit(name, setting="horizontal", ratings=RATINGS, **parameters):
    by, into = BY[setting]
    method, checked = chosen({"name": name, **parameters})
    parties = partition(ratings, by=by, into=into)
    return train(PreparedRun.of(method, checked, Facts.of(parties, 7)), parties)


@pytest.mark.parametrize("setting", BY)
def test_the_global_mean_is_the_mean_whoever_holds_what(setting):
    scores = fit("global-mean", setting).model.form.base
    np.testing.assert_allclose(scores, RATINGS.values.mean(), rtol=1e-5)


@pytest.mark.parametrize("setting", BY)
def test_item_means_are_shrunk_means(setting):
    sums = np.bincount(RATINGS.items, weights=RATINGS.values, minlength=30)
    expected = (sums + 5 * RATINGS.values.mean()) / (RATINGS.item_counts + 5)
    np.testing.assert_allclose(fit("item-mean", setting).model.form.base, expected, rtol=1e-5)


def test_an_item_that_nobody_rated_gets_the_global_mean():
    few = RATINGS.keep(RATINGS.items != 3)
    scores = fit("item-mean", ratings=few, shrinkage=0.0).model.form.base
    assert scores[3] == pytest.approx(few.values.mean(), rel=1e-5)


@pytest.mark.parametrize("setting", BY)
def test_popularity_ranks_by_counts_and_rates_nothing(setting):
    trained = fit("popularity", setting)
    np.testing.assert_array_equal(trained.model.form.base, RATINGS.item_counts)
    assert not trained.predictor.rates


def test_random_is_the_same_however_users_are_divided():
    every = np.arange(80)
    first, second = fit("random", "horizontal").predictor, fit("random", "vertical").predictor
    np.testing.assert_array_equal(first.scores(every), second.scores(every))


def test_central_does_not_depend_on_who_held_the_ratings_of_a_vertical_partition():
    """Pooled, the ratings are the same ratings: every one of them reaches the coordinator once."""
    for setting in BY:
        trained = fit("central", setting, sweeps=1, factors=2)
        assert trained.transcript.meter.bytes_up > 12 * RATINGS.n_ratings
        assert trained.transcript.meter.bytes_up < 12 * RATINGS.n_ratings + 4 * 400


@pytest.mark.parametrize("setting", BY)
@pytest.mark.parametrize("method", [{"name": "central"}, {"name": "central-sgd", "factors": 4, "epochs": 80}])
def test_central_learns_a_checkerboard(method, setting):
    seen, hidden = checkerboard()
    predictor = fit(method["name"], setting, ratings=seen, **{k: v for k, v in method.items() if k != "name"}).predictor
    assert np.mean((predictor.predict(hidden.users, hidden.items) - hidden.values) ** 2) < 0.2


def test_local_lets_nothing_out_but_a_word():
    trained = fit("local", sweeps=2)
    assert {entry.kind for entry in trained.transcript.entries} == {"public"}
    assert trained.transcript.meter.bytes_up < 4 * 40


def test_a_device_alone_knows_its_own_mean():
    trained = fit("local", "device")
    sums = np.bincount(RATINGS.users, weights=RATINGS.values, minlength=80)
    expected = (sums + 3.0) / (RATINGS.counts + 1)
    np.testing.assert_allclose(trained.predictor.scores(np.arange(80))[:, 0], expected, rtol=1e-5)


def test_a_flat_start_is_better_for_whoever_has_few_ratings():
    learned, hidden = tacit.split(tacit.load("demo"), test=0.1, seed=7)
    parties, errors = tacit.partition(learned, into=10), {}
    for start, epochs in (("random", 40), ("flat", 20)):
        model = tacit.estimator("local-sgd")(start=start, epochs=epochs).fit(parties)
        errors[start] = tacit.evaluate(model, hidden, ranking=False).metrics["mse"]
    assert errors["flat"] < errors["random"]
