"""What an engineer meets in Python: tables from memory, histories, short descriptions, and sentences for mistakes."""

import numpy as np
import pyarrow as pa
import pytest

import tacit
from tacit.config import RunFile
from tacit.errors import TacitError, UsageError
from tacit.experiment import run

TABLE = pa.table({"user": ["a", "b", "a"], "item": [1, 2, 2], "rating": [1.0, 2.0, 3.0]})


class Streamed:
    """A frame of another library, as Arrow's interface shows it."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


@pytest.fixture(scope="module")
def world():
    ratings = tacit.load("demo", users=40, items=30, ratings=500)
    train, test = tacit.split(ratings, test=0.1, seed=7)
    parties = tacit.partition(train, into=2)
    return ratings, test, parties, tacit.SGDMF(factors=2, rounds=1).fit(parties)


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


def test_recommendations_are_for_a_known_user_or_for_a_history(world):
    ratings, _test, _parties, model = world
    history = {ratings.item_ids[0].item(): 5.0}
    assert len(model.recommend("u1", n=3)) == 3
    assert model.recommend(history, n=3) == model.model_.recommend(history, n=3)


def test_descriptions_are_short(world):
    ratings, test, parties, model = world
    assert repr(model) == "SGDMF(factors=2, rounds=1)"
    assert repr(model.model_) == "Model(sgdmf: 30 items, 2 factors; NON-PRIVATE)"
    assert repr(ratings.user_ids) == "Vocabulary(40 users)"
    for thing in (ratings, parties, parties[0], tacit.evaluate(model, test)):
        assert len(repr(thing)) < 120
        assert " object at " not in repr(thing)


WRONG = {
    "n as text": lambda w: w[3].recommend("u1", n="3"),
    "half a recommendation": lambda w: w[3].recommend("u1", n=2.5),
    "several users": lambda w: w[3].recommend([1, 2]),
    "one item for a list": lambda w: w[3].predict("u1", 1),
    "no items": lambda w: w[3].predict("u1", None),
    "a user of a shared model": lambda w: w[3].model_.recommend("u1"),
    "a list for a history": lambda w: w[3].model_.recommend([1]),
    "no path": lambda w: tacit.load(None),
    "a list for a path": lambda w: tacit.load([1, 2]),
    "half a scale": lambda w: tacit.load("demo", scale=5),
    "a scale of words": lambda w: tacit.load("demo", scale=("a", "b")),
    "a split of text": lambda w: tacit.split(w[0], test="a"),
    "a split of nothing": lambda w: tacit.split(5),
    "ratings for parties": lambda w: tacit.SGDMF().fit(w[0]),
    "parties of nothing": lambda w: tacit.partition(5, into=2),
    "a skew of words": lambda w: tacit.partition(w[0], into=2, size_skew="a"),
    "privacy as a number": lambda w: tacit.SGDMF(privacy=1.0).fit(w[2]),
    "factors as words": lambda w: tacit.SGDMF(factors="many").fit(w[2]),
    "a seed of words": lambda w: tacit.SGDMF(rounds=1, seed="x").fit(w[2]),
    "ratings as words": lambda w: tacit.SGDMF(rounds=1, privacy=tacit.DP(1)).fit(w[2], ratings="x"),
    "ratings below none": lambda w: tacit.SGDMF(rounds=1, privacy=tacit.DP(1)).fit(w[2], ratings=-1),
    "no test": lambda w: tacit.evaluate(w[3], 5),
    "nothing to evaluate": lambda w: tacit.evaluate(5, w[1]),
    "not fitted yet": lambda w: tacit.evaluate(tacit.SGDMF(), w[1]),
    "no folder to load": lambda w: tacit.Model.load(None),
    "no folder to save": lambda w: w[3].save(None),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_mistake_gets_a_sentence(world, what):
    with pytest.raises(UsageError) as caught:
        WRONG[what](world)
    assert str(caught.value).endswith(".")


def test_a_constructor_only_stores_and_fit_checks(world):
    assert tacit.SGDMF(factors=-3).factors == -3
    with pytest.raises(UsageError, match="SGDMF, factors = -3 is not possible"):
        tacit.SGDMF(factors=-3).fit(world[2])


METHODS = [("sgdmf", "user"), ("sgdmf", "item"), *((name, "user") for name in ("bias", "item-mean", "random"))]


@pytest.mark.parametrize(("method", "by"), METHODS)
def test_what_export_wrote_is_a_model(tmp_path, method, by):
    from tacit.cli.export import export

    data = {"source": "demo", "users": 40, "items": 30, "ratings": 500}
    quick = {"factors": 2, "rounds": 1} if method == "sgdmf" else {}
    table = {"data": data, "partition": {"by": by, "into": 2}, "method": {"name": method, **quick}}
    run(RunFile.model_validate(table), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "out", as_json=True)
    own, exported = tacit.Model.load(tmp_path / "run"), tacit.Model.load(tmp_path / "out")
    history = {own.item_ids[0].item(): 5.0, own.item_ids[3].item(): 1.0}
    assert exported.recommend(history) == own.recommend(history)
    assert (exported.stamp, exported.method, exported.item_ids) == (own.stamp, own.method, own.item_ids)
    if own.user_factors is not None:
        np.testing.assert_array_equal(exported.user_factors, own.user_factors)
