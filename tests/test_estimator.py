"""What an engineer meets in Python: estimators with scikit-learn's manners, tables from memory, sentences."""

import numpy as np
import pyarrow as pa
import pytest

import tacit
from tacit.errors import DataError, PeerFailed, PrivacyRefused, TacitError, UsageError

RATINGS = tacit.load("demo", users=80, items=40, ratings=1200)
TRAIN, TEST = tacit.split(RATINGS, test=0.2, seed=7)
SILOS = tacit.partition(TRAIN, into=3)
QUICK = {"factors": 4, "rounds": 5, "local_steps": 2}
ALL = [tacit.SGDMF(**QUICK), tacit.Central(sweeps=2), tacit.Local(sweeps=2), tacit.GlobalMean(), tacit.ItemMean()]
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


def test_a_private_fit_can_keep_its_ledgers(tmp_path):
    privacy = tacit.DP(1, 1e-6, ledger=str(tmp_path), budget=1.05)
    tacit.Bias(privacy=privacy).fit(SILOS)
    assert sorted(path.name for path in tmp_path.glob("*.sqlite")) == [f"party-{k}.sqlite" for k in (1, 2, 3)]
    with pytest.raises(PrivacyRefused, match="budget"):
        tacit.Bias(privacy=privacy, seed=8).fit(SILOS)


def test_a_private_model_says_so_when_it_is_saved(tmp_path):
    model = tacit.Bias(privacy=tacit.DP(1, 1e-6)).fit(SILOS)
    assert tacit.Model.load(model.save(tmp_path / "m")).stamp == str(model.guarantee_)


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


# -- tables, descriptions and mistakes --------------------------------------------------------------------------------

TABLE = pa.table({"user": ["a", "b", "a"], "item": [1, 2, 2], "rating": [1.0, 2.0, 3.0]})


class Streamed:
    """A frame of another library, as Arrow's interface shows it."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def fitted():
    return tacit.SGDMF(factors=2, rounds=1).fit(SILOS)


@pytest.mark.parametrize(
    "table",
    [
        TABLE,
        Streamed(TABLE),
        TABLE.set_column(0, "user", pa.array(["a", "b", "a"], pa.string_view())),
        TABLE.set_column(
            0, "user", pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", "b"], pa.string_view()))
        ),
    ],
    ids=["an Arrow table", "a frame", "views of text", "a dictionary of views"],
)
def test_tables_in_memory_are_loaded_as_files_are(table):
    loaded = tacit.load(table, scale=(1, 5))
    assert loaded.user_ids.ids.tolist() == ["a", "b"]
    assert loaded.values.tolist() == [1.0, 3.0, 2.0]
    assert (loaded.scale.low, loaded.scale.high) == (1.0, 5.0)


def test_a_mistake_in_a_table_in_memory_names_its_row():
    with pytest.raises(TacitError, match="Row 2 of the Table"):
        tacit.load(TABLE.set_column(2, "rating", pa.array([1.0, None, 3.0])))


def test_recommendations_are_for_a_known_user_or_for_a_history(fitted):
    history = {RATINGS.item_ids[0].item(): 5.0}
    assert len(fitted.recommend("u1", n=3)) == 3
    assert fitted.recommend(history, n=3) == fitted.model_.recommend(history, n=3)


def test_descriptions_are_short(fitted):
    assert repr(fitted) == "SGDMF(factors=2, rounds=1)"
    assert repr(fitted.model_) == "Model(sgdmf: 40 items, 2 factors; NON-PRIVATE)"
    assert repr(RATINGS.user_ids) == "Vocabulary(80 users)"
    for thing in (RATINGS, SILOS, SILOS[0], tacit.evaluate(fitted, TEST)):
        assert len(repr(thing)) < 120
        assert " object at " not in repr(thing)


WRONG = {
    "n as text": lambda m: m.recommend("u1", n="3"),
    "half a recommendation": lambda m: m.recommend("u1", n=2.5),
    "several users": lambda m: m.recommend([1, 2]),
    "one item for a list": lambda m: m.predict("u1", 1),
    "no items": lambda m: m.predict("u1", None),
    "a user of a shared model": lambda m: m.model_.recommend("u1"),
    "a list for a history": lambda m: m.model_.recommend([1]),
    "no path": lambda m: tacit.load(None),
    "a list for a path": lambda m: tacit.load([1, 2]),
    "half a scale": lambda m: tacit.load("demo", scale=5),
    "a scale of words": lambda m: tacit.load("demo", scale=("a", "b")),
    "a split of text": lambda m: tacit.split(RATINGS, test="a"),
    "a split of nothing": lambda m: tacit.split(5),
    "ratings for parties": lambda m: tacit.SGDMF().fit(RATINGS),
    "parties of nothing": lambda m: tacit.partition(5, into=2),
    "a skew of words": lambda m: tacit.partition(RATINGS, into=2, size_skew="a"),
    "privacy as a number": lambda m: tacit.SGDMF(privacy=1.0).fit(SILOS),
    "factors as words": lambda m: tacit.SGDMF(factors="many").fit(SILOS),
    "a seed of words": lambda m: tacit.SGDMF(rounds=1, seed="x").fit(SILOS),
    "ratings as words": lambda m: tacit.SGDMF(rounds=1, privacy=tacit.DP(1)).fit(SILOS, ratings="x"),
    "ratings below none": lambda m: tacit.SGDMF(rounds=1, privacy=tacit.DP(1)).fit(SILOS, ratings=-1),
    "no test": lambda m: tacit.evaluate(m, 5),
    "nothing to evaluate": lambda m: tacit.evaluate(5, TEST),
    "not fitted yet": lambda m: tacit.evaluate(tacit.SGDMF(), TEST),
    "no folder to load": lambda m: tacit.Model.load(None),
    "no folder to save": lambda m: m.save(None),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_gets_a_sentence(fitted, what):
    with pytest.raises(UsageError) as caught:
        WRONG[what](fitted)
    assert str(caught.value).endswith(".")


def test_a_constructor_only_stores_and_fit_checks():
    assert tacit.SGDMF(factors=-3).factors == -3
    with pytest.raises(UsageError, match="SGDMF, factors = -3 is not possible"):
        tacit.SGDMF(factors=-3).fit(SILOS)


def test_ratings_are_predicted_for_a_history_as_by_the_shared_model():
    model = tacit.SGDMF(**QUICK).fit(SILOS)
    history, items = {1: 5, 2: 4, 7: 1}, [3, 4]
    assert np.array_equal(model.predict(history, items), model.model_.predict(history, items))


def test_an_unknown_integer_gets_no_suggestion():
    ratings = tacit.Ratings.from_columns([10, 11, 99], [1, 2, 3], [1.0, 2.0, 3.0])
    with pytest.raises(DataError, match=r"There is no user 999 among the 3 known\.$"):
        ratings.user_ids.row(999)
