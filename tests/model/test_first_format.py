"""Models and exports of the first format, of factors or scores, are still read."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.errors import DataError
from tacit.model import Linear, Model, NonNegative
from tacit.rng import derive

M, P = 8, 3
V = derive(1, "first").random((M, P), dtype=np.float32)
U = derive(2, "first").random((4, P), dtype=np.float32)
SCORES = np.linspace(1, 5, M, dtype=np.float32)
ABOUT = {"method": "old", "scale": [1.0, 5.0], "declared": True, "rates": True, "stamp": "NON-PRIVATE"}


def saved(folder, **arrays):
    folder.mkdir()
    (folder / "model.json").write_text(json.dumps({"format": "tacit model 1", **ABOUT}))
    np.savez(folder / "factors.npz", item_ids=np.arange(M), **arrays)
    return folder


def exported(folder, users=None, **columns):
    folder.mkdir()
    (folder / "guarantee.json").write_text(json.dumps({**ABOUT, "setting": "vertical", "digest": "", "tacit": "0.1.0"}))
    pq.write_table(pa.table({"item": np.arange(M), **columns}), folder / "items.parquet")
    if users is not None:
        pq.write_table(pa.table({"row": np.arange(len(users)), **table(users)}), folder / "users.parquet")
    return folder


def table(factors):
    return {f"factor_{k}": column for k, column in enumerate(factors.T, start=1)}


def written(folder, how, kind):
    if how == "saved":
        return saved(
            folder, **({"item_scores": SCORES} if kind == "scores" else {"item_factors": V, "user_factors": U})
        )
    return exported(folder, **({"score": SCORES} if kind == "scores" else {"users": U, **table(V)}))


@pytest.mark.parametrize("how", ["saved", "exported"])
def test_factors_are_folded_into_as_they_were(tmp_path, how):
    model = Model.load(written(tmp_path / "model", how, "factors"))
    assert isinstance(model.form, NonNegative)
    np.testing.assert_array_equal(model.item_factors, V)
    np.testing.assert_array_equal(model.user_factors, U)
    history = {0: 5, 3: 1}
    user = model.fold_in([0, 2], [0, 3], [5, 1])[0]
    np.testing.assert_allclose(model.predict(history, range(M)), 1 + V @ user, rtol=1e-6)
    assert len(model.recommend(history, n=3)) == 3


@pytest.mark.parametrize("how", ["saved", "exported"])
def test_scores_are_the_same_for_everyone(tmp_path, how):
    model = Model.load(written(tmp_path / "model", how, "scores"))
    assert isinstance(model.form, Linear)
    assert model.user_factors is None
    for history in ({}, {0: 5, 3: 1}):
        np.testing.assert_array_equal(model.predict(history, range(M)), SCORES)
    assert [item for item, _ in model.recommend({}, n=M)] == list(range(M))[::-1]


def test_it_is_saved_anew_as_the_second(tmp_path):
    folder = Model.load(written(tmp_path / "old", "saved", "factors")).save(tmp_path / "new")
    assert json.loads((folder / "model.json").read_text())["format"] == "tacit model 2"
    np.testing.assert_array_equal(Model.load(folder).item_factors, V)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"user_factors": U},
        {"item_factors": V[1:]},
        {"item_factors": V.astype(np.float64)},
        {"item_factors": V, "user_factors": U[:, 1:]},
        {"item_scores": SCORES[:, None]},
        {"item_scores": np.full(M, np.nan, dtype=np.float32)},
    ],
)
def test_arrays_that_do_not_fit_get_one_sentence(tmp_path, arrays):
    with pytest.raises(DataError, match=r"cannot be read .*; save it again\.$"):
        Model.load(saved(tmp_path / "model", **arrays))
