"""Estimators have scikit-learn's manners."""

import numpy as np
import pytest

import tacit
from tacit.data.ratings import Scale
from tacit.errors import DataError, PeerFailed, PrivacyRefused, UsageError

RATINGS = tacit.load("demo", users=80, items=40, ratings=1200)
TRAIN, TEST = tacit.split(RATINGS, test=0.2, seed=7)
SILOS = tacit.partition(TRAIN, into=3)
QUICK = {"factors": 4, "rounds": 5, "local_steps": 2}
ALL = [tacit.SGDMF(**QUICK), tacit.Central(epochs=2), tacit.Local(epochs=2), tacit.GlobalMean(), tacit.ItemMean()]
ALL += [tacit.Popularity(), tacit.Random(), tacit.Bias()]


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


PRIVATE = {"factors": 3, "rounds": 2, "local_steps": 2}


@pytest.mark.parametrize("by", ["user", "item"])
@pytest.mark.parametrize("unit", ["user", "rating"])
def test_a_private_fit_gives_the_guarantee_that_was_asked_for(by, unit):
    ratings = tacit.load("demo", users=60, items=30, ratings=900)
    privacy = tacit.DP(epsilon=2, delta=1e-6, unit=unit)
    model = tacit.SGDMF(**PRIVATE, privacy=privacy).fit(tacit.partition(ratings, into=3, by=by))
    promise = model.guarantee_
    assert (promise.delta, promise.unit, promise.simulated) == (1e-6, unit, True)
    assert 1.99 < promise.epsilon <= 2
    assert model.model_.item_factors.shape == (30, 3)
    assert "SIMULATED" in str(promise)


def test_privacy_changes_what_is_learned_and_seeds_repeat_it():
    parties = tacit.partition(tacit.load("demo", users=60, items=30, ratings=900), into=3)

    def factors(**others):
        return tacit.SGDMF(**PRIVATE, users="pretrained", trim=10, **others).fit(parties).model_.item_factors

    noisy = factors(privacy=tacit.DP(1, 1e-6))
    np.testing.assert_array_equal(noisy, factors(privacy=tacit.DP(1, 1e-6)))
    assert np.abs(noisy - factors(sampling=0.01)).max() > 1e-3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": 1, "delta": 1}, "delta"),
        ({"epsilon": 1, "unit": "usr"}, "unit"),
        ({"epsilon": 1, "epsilom": 1}, "epsilom"),
    ],
)
def test_a_wrong_promise_gets_one_sentence(wrong, words):
    with pytest.raises(UsageError, match=words):
        tacit.DP(**wrong)


def test_a_scale_or_items_read_off_ratings_are_refused_with_privacy():
    columns = ["a", "b", "c", "a"], [1, 2, 3, 2], np.array([1.0, 4.0, 5.0, 2.0], np.float32)
    private = tacit.SGDMF(**PRIVATE, privacy=tacit.DP(1, 1e-6))
    guessed = tacit.Ratings.from_columns(*columns)
    with pytest.raises(UsageError, match="scale"):
        private.fit(tacit.partition(guessed, into=2))
    declared = tacit.Ratings.from_columns(*columns, scale=Scale(1, 5))
    with pytest.raises(UsageError, match="catalogue"):
        private.fit(tacit.partition(declared, into=2))


def test_a_private_fit_can_keep_its_ledgers(tmp_path):
    parties = tacit.partition(tacit.load("demo", users=60, items=30, ratings=900), into=3)
    privacy = tacit.DP(1, 1e-6, ledger=str(tmp_path), budget=1.05)
    tacit.Bias(privacy=privacy).fit(parties)
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == [f"party-{k}.sqlite" for k in (1, 2, 3)]
    with pytest.raises(PrivacyRefused, match="budget"):
        tacit.Bias(privacy=privacy, seed=8).fit(parties)


def test_a_private_model_says_so_when_it_is_saved(tmp_path):
    parties = tacit.partition(tacit.load("demo", users=60, items=30, ratings=900), into=3)
    model = tacit.Bias(privacy=tacit.DP(1, 1e-6)).fit(parties)
    assert tacit.Model.load(model.save(tmp_path / "m")).stamp == str(model.guarantee_)
    assert tacit.Bias().fit(parties).model_.stamp == "NON-PRIVATE"


def test_a_budget_that_holds_no_step_is_refused_with_what_the_fit_costs():
    parties = tacit.partition(tacit.load("demo", users=60, items=30, ratings=900), into=3)
    with pytest.raises(PrivacyRefused, match=r"ε = 1\.000 .* budget is 0\.5"):
        tacit.Bias(privacy=tacit.DP(1, 1e-6, budget=0.5)).fit(parties)


def test_an_aggregation_is_a_name_or_a_table_and_is_kept_to():
    silos = tacit.partition(tacit.load("demo", users=60), into=5)
    private = tacit.DP(epsilon=4, delta=1e-6)
    assert tacit.Bias(privacy=private, aggregation="secagg").fit(silos).guarantee_.trust == "distributed"
    gone = {"name": "secagg", "dropout": 0.95}
    with pytest.raises(PeerFailed, match="Too few parties stayed"):
        tacit.Bias(privacy=private, aggregation=gone).fit(silos)
    for wrong in (5, "secag", {"name": "ideal", "signed": True}):
        with pytest.raises(UsageError):
            tacit.Bias(privacy=private, aggregation=wrong).fit(silos)
    hidden = tacit.Bias(aggregation="secagg").fit(silos)
    assert not hidden.guarantee_
    assert hidden.model_.stamp.startswith("NON-PRIVATE · single contributions are hidden")


def test_what_only_ranks_predicts_no_ratings():
    model = tacit.Popularity().fit(tacit.partition(TRAIN, into=2))
    with pytest.raises(UsageError, match="Popularity predicts no ratings, it only ranks"):
        model.predict(TRAIN.user_ids[0], [TRAIN.item_ids[0]])
    assert len(model.recommend(TRAIN.user_ids[0], n=2)) == 2
