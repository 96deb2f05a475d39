"""What a fit leaves: it comes back from disk, folds newcomers in, and recommends what they have not seen."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data.ratings import Scale
from tacit.data.vocabulary import Vocabulary
from tacit.errors import DataError, UsageError
from tacit.kernels.embed import embed
from tacit.model import Linear, Model, NonNegative, forms
from tacit.rng import derive


def model(text=False, m=12, p=3, **changes):
    """A model of factors over m items, ids 10, 20, … or "i10", "i20", …"""
    numbers = np.arange(1, m + 1) * 10
    ids = Vocabulary.of([f"i{k}" for k in numbers] if text else numbers, "item")
    factors = embed(derive(3, "model", m).exponential(size=(m, p)).astype(np.float32), 4.0)
    return replace(Model("sgdmf", Scale(1, 5), ids, NonNegative(1.0, 5.0, factors)), **changes)


def flat_model(scores, rates=True, **changes):
    """A model that predicts the same for everyone."""
    scores = np.asarray(scores, dtype=np.float32)
    ids = Vocabulary.of(np.arange(len(scores)), "item")
    return replace(Model("item-mean", Scale(1, 5), ids, Linear.scores(scores, Scale(1, 5), rates)), **changes)


def of_factors(factors):
    return NonNegative(1.0, 5.0, factors)


def assert_same(a, b):
    assert (a.method, a.scale, a.rates, a.stamp) == (b.method, b.scale, b.rates, b.stamp)
    assert a.item_ids == b.item_ids
    assert a.item_ids.ids.dtype == b.item_ids.ids.dtype
    assert a.item_ids.kind == b.item_ids.kind
    assert forms.same(a.form, b.form)
    assert [array.dtype for array in forms.arrays_of(a.form).values()] == [
        array.dtype for array in forms.arrays_of(b.form).values()
    ]
    assert (a.states is None) == (b.states is None)
    np.testing.assert_array_equal(a.states, b.states)


@pytest.mark.parametrize(
    "saved",
    [
        model(),
        model(text=True),
        model(m=1, p=1),
        model(scale=Scale(0.5, 5, declared=False), stamp="(1.00, 1e-06)-DP · per user"),
        model(states=np.ones((4, 3), dtype=np.float32)),
        flat_model([1, 2, 3]),
        flat_model([7, 9], method="popularity", rates=False),
        Model("sgdmf", Scale(1, 5), Vocabulary.of([], "item"), of_factors(np.empty((0, 3), dtype=np.float32))),
        replace(flat_model([1, 2, 3]), item_ids=Vocabulary.of(["ä", "日本", "b c"], "item")),
    ],
)
def test_a_model_comes_back_as_it_was_saved(tmp_path, saved):
    folder = saved.save(tmp_path / "deep" / "folder")
    assert_same(Model.load(folder), saved)
    assert sorted(path.name for path in folder.iterdir()) == ["factors.npz", "model.json"]
    assert_same(Model.load(str(folder)), saved)


def test_a_run_folder_holds_its_model_one_level_down(tmp_path):
    model().save(tmp_path / "run" / "model")
    assert_same(Model.load(tmp_path / "run"), model())


def test_a_folder_without_a_model_says_what_to_name(tmp_path):
    with pytest.raises(DataError, match=r'no model in ".*none"; name the folder of a run'):
        Model.load(tmp_path / "none")
    (model().save(tmp_path / "half") / "factors.npz").unlink()
    with pytest.raises(DataError, match="There is no model in"):
        Model.load(tmp_path / "half")


@pytest.mark.parametrize("format", ["tacit model 3", "", None, 1])
def test_another_format_is_refused_before_anything_else_is_read(tmp_path, format):
    folder = model().save(tmp_path)
    about = json.loads((folder / "model.json").read_text())
    (folder / "model.json").write_text(json.dumps({**about, "format": format}))
    (folder / "factors.npz").write_bytes(b"a layout of the future")
    with pytest.raises(DataError, match=re.escape(f"has the format {format!r}; this version reads 'tacit model 2'")):
        Model.load(folder)


def assert_one_sentence(folder):
    with pytest.raises(DataError) as error:
        Model.load(folder)
    assert str(folder) in str(error.value)
    assert "save it again" in str(error.value)
    assert "\n" not in str(error.value)


def change_about(folder, **changes):
    about = json.loads((folder / "model.json").read_text())
    about.update(changes)
    kept = {key: value for key, value in about.items() if value != "gone"}
    (folder / "model.json").write_text(json.dumps(kept))


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"7", b"null", b'"x"', b"\xff\xfe", b"{}", b'{"format": "tacit model 2"}', b"[" * 10**5]
)
def test_a_damaged_description_gets_one_sentence(tmp_path, text):
    folder = model().save(tmp_path)
    (folder / "model.json").write_bytes(text)
    assert_one_sentence(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": [5, 1]},
        {"scale": [0, float("inf")]},
        {"method": "gone"},
        {"form": "gone"},
        {"numbers": "gone"},
        {"numbers": {"low": "1", "high": 5.0}},
        {"numbers": {"low": 1.0, "high": float("nan")}},
        {"declared": "gone"},
    ],
)
def test_a_description_that_says_too_little_gets_one_sentence(tmp_path, changes):
    folder = model().save(tmp_path)
    change_about(folder, **changes)
    assert_one_sentence(folder)


@pytest.mark.parametrize(
    "arrays",
    [
        {"items": np.ones((3, 2), dtype=np.float32)},
        {"item_ids": np.array([1, 2, 3])},
        {"item_ids": np.array([1, 1, 2]), "items": np.ones((3, 2), dtype=np.float32)},
        {"item_ids": np.array([2, 1, 3]), "items": np.ones((3, 2), dtype=np.float32)},
        {"item_ids": np.array([1, 2, 3]), "items": np.ones((4, 2), dtype=np.float32)},
        {"item_ids": np.array([1, 2, 3]), "items": np.ones((3, 2), np.float32), "base": np.ones(3, np.float32)},
        {"item_ids": np.array([1, 2, 3]), "items": np.ones((3, 2), np.float32), "states": np.ones((4, 3), np.float32)},
        {"item_ids": np.array([[1, 2, 3]]), "items": np.ones((1, 2), dtype=np.float32)},
    ],
)
def test_arrays_that_do_not_belong_together_get_one_sentence(tmp_path, arrays):
    folder = model().save(tmp_path)
    np.savez(folder / "factors.npz", **arrays)
    assert_one_sentence(folder)


def test_a_flipped_byte_gives_one_sentence_or_the_same_model(tmp_path):
    """600 of them, and files cut off. A checksum guards the arrays, but not the archive's dates and the like."""
    saved = model()
    folder = saved.save(tmp_path)
    whole, stream, sentences = (folder / "factors.npz").read_bytes(), derive(7, "flips"), []
    for length in range(0, len(whole), 23):
        (folder / "factors.npz").write_bytes(whole[:length])
        assert_one_sentence(folder)
    for _ in range(600):
        damaged = bytearray(whole)
        damaged[stream.integers(len(whole))] ^= 1 << int(stream.integers(8))
        (folder / "factors.npz").write_bytes(damaged)
        try:
            loaded = Model.load(folder)
        except DataError as error:
            sentences.append(str(error))
        else:
            assert loaded.item_ids == saved.item_ids
            np.testing.assert_array_equal(loaded.item_factors, saved.item_factors)
    assert len(sentences) > 200
    assert not any("\n" in sentence for sentence in sentences)


class Bomb:
    """Running its pickle would leave a trace."""

    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("name", ["item_ids", "items", "states", "another"])
def test_an_object_array_is_refused_and_not_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    folder = model().save(tmp_path / "model")
    with np.load(folder / "factors.npz") as file:
        arrays = {**file, name: np.array([Bomb()], dtype=object)}
    np.savez(folder / "factors.npz", **arrays)
    assert_one_sentence(folder)
    assert not (tmp_path / "exploded").exists()


@given(seen=st.sets(st.integers(0, 11)), n=st.integers(1, 30), rating=st.sampled_from([1, 3, 5]))
@settings(deadline=None, max_examples=50)
def test_recommendations_never_repeat_the_history_and_fall(seen, n, rating):
    m = model(text=True)
    history = {m.item_ids[k]: rating for k in seen}
    found = m.recommend(history, n=n)
    assert len(found) == min(n, 12 - len(seen))
    assert not {id for id, _ in found} & set(history)
    scores = m.scores(history)
    best = sorted((i for i in range(12) if i not in seen), key=lambda i: -scores[i])[:n]
    assert found == [(m.item_ids[i], float(scores[i])) for i in best]
    assert found == m.recommend(dict(reversed(history.items())), n=n)


def test_equal_scores_come_in_the_order_of_their_ids():
    with pytest.raises(UsageError, match="n = 0 is not possible"):
        flat_model([1, 2]).recommend({}, n=0)
    m = flat_model([3, 5, 3, 5, 3])
    assert m.recommend(dict.fromkeys(range(5), 3)) == []
    assert m.recommend({}, n=5) == [(1, 5.0), (3, 5.0), (0, 3.0), (2, 3.0), (4, 3.0)]
    assert m.recommend({3: 1}, n=2) == [(1, 5.0), (0, 3.0)]


@pytest.mark.parametrize(
    ("history", "words"),
    [
        *(({10: 3, 20: rating}, "off the scale 1…5") for rating in (0.99, 5.01, float("nan"), 1e300)),
        *(({10: rating}, "not a number") for rating in (None, "good", [1, 2])),
        ({10: 3, "10": 4}, "rates one item twice"),
        ({11: 5}, r"no item 11 among the 12 known\.$"),
    ],
)
def test_an_impossible_history_is_refused(history, words):
    with pytest.raises(DataError, match=words):
        model().recommend(history)


def test_predictions_are_the_scores_of_these_items():
    m, history = model(), {10: 5, 60: 2}
    rows = [m.item_ids.row(i) for i in (120, 10, 10)]
    np.testing.assert_array_equal(m.predict(history, [120, 10, 10]), m.scores(history)[rows])
    assert m.predict(history, []).shape == (0,)
    np.testing.assert_array_equal(flat_model([1, 2, 3]).predict({}, [2, 0]), [3, 1])
    with pytest.raises(UsageError, match="only ranks"):
        flat_model([7, 9], rates=False).predict({}, [0])


def test_a_newcomer_is_scored_by_her_own_factors():
    m = model()
    user = m.fold_in([0, 2], [0, 5], [5, 2])[0]
    np.testing.assert_allclose(m.scores({10: 5, 60: 2}), m.item_factors @ user + 1, rtol=1e-6)
    assert user.dtype == np.float32
    assert np.all(user >= 0)
    assert user @ user <= 4 * (1 + 1e-5)


def test_of_whom_nothing_is_known_the_middle_of_the_scale_is_predicted_on_average():
    m = model(form=of_factors(embed(derive(1, "even").random((12, 3), dtype=np.float32), 1.0)))
    assert np.mean(m.item_factors @ m.form.prior + m.scale.low) == pytest.approx(3.0, abs=1e-6)
    np.testing.assert_allclose(m.fold_in([0, 0], [], []), embed(m.form.prior[None], 4.0), rtol=1e-6)
