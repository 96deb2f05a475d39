"""What a run stands beside: computed on the same split, only where it is cheap, and never called private."""

import json
from functools import partial

import numpy as np
import pytest

from tacit.config import RunFile
from tacit.evaluate import evaluate
from tacit.evaluate import references as module
from tacit.evaluate.references import local_biases, references
from tacit.experiment import run
from tacit.model import Fitted, Linear
from tacit.prepare.loaded import prepare

DATA = {"source": "demo", "users": 60, "items": 20, "ratings": 700}


def prepared(by="user", method="bias", **data):
    sections = {"data": {**DATA, **data}, "partition": {"by": by, "into": 3}, "method": {"name": method}}
    return prepare(RunFile.model_validate(sections))


def found(ready, **judging) -> dict[str, dict]:
    judge = partial(evaluate, test=ready.test, seen=ready.train, bootstrap=10, **judging)
    flat = Linear.scores(np.full(ready.test.n_items, 3, np.float32), ready.test.scale)
    own = judge(Fitted.same_for_all(flat, ready.test.n_users))
    listed = references(ready, own, judge)
    assert json.loads(json.dumps(listed, allow_nan=False)) == listed
    return {one["name"]: one for one in listed}


@pytest.mark.parametrize("by", ["user", "item", "device"])
def test_local_popularity_and_central_are_judged_by_the_same_test(by):
    beside = found(prepared(by))
    assert list(beside) == ["local", "popularity", "central"]
    assert {"mse", "ndcg@10"} <= set(beside["local"]["metrics"])
    assert {"mse", "ndcg@10"} <= set(beside["central"]["metrics"])
    assert "mse" not in beside["popularity"]["metrics"]
    assert all(one["intervals"] for one in beside.values())
    assert ("device" in beside["local"]["what"]) == (by == "device")


def test_what_is_dear_is_left_out_and_says_so(monkeypatch):
    monkeypatch.setattr(module, "CENTRAL", 10)
    monkeypatch.setattr(module, "RANKED", 10)
    monkeypatch.setattr(module, "POPULAR", 10)
    beside = found(prepared())
    assert "metrics" not in beside["central"]
    assert "not trained here" in beside["central"]["missing"]
    assert "not ranked here" in beside["popularity"]["missing"]
    assert set(beside["local"]["metrics"]) == {"mse", "rmse", "mae"}


def test_a_method_does_not_stand_beside_itself_and_implicit_feedback_is_only_ranked():
    assert "popularity" not in found(prepared(method="popularity"))
    assert list(found(prepared(method="random", feedback="implicit"))) == ["popularity"]


def test_a_silo_s_own_biases_know_nothing_of_other_silos():
    ready = prepared()
    first = ready.parties[0].ratings
    levels, biases = local_biases(first)
    mean = (first.values.sum() + 5 * 3.0) / (first.n_ratings + 5)
    of_item = first.values[first.items == 0].astype(np.float64) - mean
    assert biases[0] == pytest.approx(of_item.sum() / (len(of_item) + 5), rel=1e-5)
    mine = first.users == 0
    left = (first.values[mine] - biases[first.items[mine]]).sum()
    assert levels[0] == pytest.approx((left + 5 * mean) / (mine.sum() + 5), rel=1e-5)
    assert not local_biases(first, items=False)[1].any()


def test_a_run_keeps_them_unless_its_file_says_no(tmp_path):
    sections = {"data": DATA, "partition": {"into": 2}, "method": {"name": "item-mean"}}
    run(RunFile.model_validate(sections), tmp_path / "with")
    kept = json.loads((tmp_path / "with" / "about.json").read_text())
    assert [one["name"] for one in kept["references"]] == ["local", "popularity", "central"]
    assert kept["floor"]["method"] == "bias"
    run(RunFile.model_validate({**sections, "evaluate": {"floor": False}}), tmp_path / "without")
    kept = json.loads((tmp_path / "without" / "about.json").read_text())
    assert not {"floor", "references"} & set(kept)
