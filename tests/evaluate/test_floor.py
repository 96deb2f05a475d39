"""What a run stands beside: `bias` at the same guarantee, by the same test, and references that are never private."""

import json
import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tacit.boundary.ledger import Ledger
from tacit.config import AggregationSection, RunFile
from tacit.evaluate import evaluate
from tacit.evaluate import references as module
from tacit.evaluate.references import bias_floor, local_biases, references
from tacit.experiment import run
from tacit.guarantee import Guarantee
from tacit.model import Fitted, Linear
from tacit.prepare.loaded import prepare
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train, with_newcomers

DATA = {"source": "demo", "users": 200, "items": 40, "ratings": 3000}
SGDMF = {"name": "sgdmf", "factors": 3, "rounds": 2, "local_steps": 1, "sampling": 1.0}
PRIVATE = {"epsilon": 4.0, "delta": 1e-6}


def file(**sections) -> RunFile:
    return RunFile.model_validate({"data": DATA, "partition": {"into": 3}, "method": SGDMF, **sections})


@pytest.mark.parametrize(
    ("by", "private"), [("user", True), ("item", True), ("user", False), ("item", False), ("device", False)]
)
def test_it_is_what_a_run_of_bias_gives(tmp_path, by, private):
    sections = {"partition": {"by": by, "into": 3}, "privacy": PRIVATE if private else None}
    plain = {"name": "sgdmf", "factors": 3, "rounds": 2}
    found = bias_floor(prepare(file(**sections, method=plain if by == "device" else SGDMF)))
    alone = run(file(**sections, method={"name": "bias"}), tmp_path / "bias")
    assert found["metrics"] == pytest.approx(alone["metrics"])
    assert found["guarantee"] == alone["guarantee"]
    assert found["intervals"] == alone["intervals"]
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("unit", ["user", "rating"])
def test_it_has_the_same_epsilon_delta_unit_and_aggregation(unit):
    summed = {"name": "synsgd", "factors": 4, "rounds": 3}
    prepared = prepare(file(method=summed, privacy={**PRIVATE, "unit": unit}, aggregation={"name": "ideal"}))
    stated = bias_floor(prepared)["guarantee"]
    assert (stated["unit"], stated["delta"], stated["model"]) == (unit, 1e-6, "distributed")
    assert 3.9 < stated["epsilon"] <= 4.0


def test_divided_items_have_no_sum_to_protect():
    prepared = prepare(file(partition={"by": "item", "into": 3}, privacy=PRIVATE))
    sealed = replace(prepared.run, aggregation=AggregationSection(name="secagg"))
    found = bias_floor(replace(prepared, run=sealed))
    assert found["guarantee"]["model"] == "silo"
    assert found["metrics"] == bias_floor(prepared)["metrics"]


def test_a_papers_formulas_get_the_epsilon_that_holds():
    prepared = prepare(file(privacy=PRIVATE))
    made = prepared.run.plan
    claimed = replace(made.terms.guarantee, epsilon=0.5, claimed_epsilon=4.0)
    assert isinstance(claimed, Guarantee)
    for stated, expected in ((claimed, 0.5), (replace(claimed, epsilon=float("inf")), 4.0)):
        plan = replace(made, terms=replace(made.terms, guarantee=stated))
        found = bias_floor(replace(prepared, run=replace(prepared.run, plan=plan)))
        assert found["guarantee"]["epsilon"] == pytest.approx(expected, rel=0.01)


def test_bias_is_its_own_floor_and_implicit_feedback_has_none():
    assert bias_floor(prepare(file(method={"name": "bias"}))) is None
    implicit = {"data": {**DATA, "feedback": "implicit"}, "method": {"name": "popularity"}}
    assert bias_floor(prepare(file(**implicit))) is None


def test_what_cannot_be_had_is_said_and_does_not_break_the_run():
    prepared = prepare(file(privacy=PRIVATE))
    alone = replace(prepared.run, aggregation=AggregationSection(name="ideal", collusion=0.99))
    found = bias_floor(replace(prepared, run=alone))
    assert found["metrics"] == {}
    assert "leave no honest one to add noise" in found["missing"]


def test_nothing_of_it_is_kept_or_charged(tmp_path, monkeypatch):
    """The run's own ledgers are where they were, and those of the floor are gone."""
    opened = []
    real = Ledger.__init__
    monkeypatch.setattr(Ledger, "__init__", lambda self, path, party: (opened.append(path), real(self, path, party))[1])
    kept = {**PRIVATE, "ledger": str(tmp_path / "kept")}
    monkeypatch.chdir(tmp_path)
    bias_floor(prepare(file(privacy=kept)))
    assert len(opened) == 3
    assert not any(path.exists() or path.is_relative_to(tmp_path / "kept") for path in opened)
    assert os.listdir(tmp_path) == []


def test_the_two_are_compared_over_the_ratings_of_the_same_users():
    prepared = prepare(file(method={"name": "central", "factors": 4, "sweeps": 5}))
    trained = train(prepared.run, prepared.parties)
    mine = evaluate(with_newcomers(trained, None, 200), prepared.test, seen=prepared.train)
    found = bias_floor(prepared, mine)
    (name,) = found["paired"]
    paired = found["paired"][name]
    assert name == "mse"
    assert paired["difference"] == pytest.approx(mine.metrics["mse"] - found["metrics"]["mse"], abs=1e-5)
    low, high = paired["interval"]
    assert low < paired["difference"] < high
    assert paired["users"] == np.count_nonzero(prepared.test.counts)
    assert bias_floor(prepared)["paired"] == {}


def test_a_run_that_only_ranks_is_compared_by_rank():
    prepared = prepare(file(method={"name": "popularity"}))
    trained = train(prepared.run, prepared.parties)
    mine = evaluate(trained.predictor, prepared.test, seen=prepared.train)
    assert list(bias_floor(prepared, mine)["paired"]) == ["ndcg@10"]


def test_a_floor_with_less_noise_than_its_guarantee_needs_is_noticed(monkeypatch):
    """Planted: the floor forgets its noise, and comes out as good as without privacy."""
    prepared = prepare(file(privacy={"epsilon": 0.5, "delta": 1e-6}))
    honest = bias_floor(prepared)["metrics"]["mse"]
    real = PreparedRun.comparison
    monkeypatch.setattr(PreparedRun, "comparison", lambda self, name: real(replace(self, privacy=None), name))
    assert bias_floor(prepared)["metrics"]["mse"] < 0.99 * honest


SMALL = {"source": "demo", "users": 60, "items": 20, "ratings": 700}


def prepared(by="user", method="bias", **data):
    return prepare(file(data={**SMALL, **data}, partition={"by": by, "into": 3}, method={"name": method}))


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
    beside = found(prepared(method="random", feedback="implicit"))
    assert list(beside) == ["local", "popularity", "central"]
    assert not any("mse" in one["metrics"] for one in beside.values())
    assert "local" not in found(prepared("device", method="random", feedback="implicit"))


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
    sections = {"data": SMALL, "partition": {"into": 2}, "method": {"name": "item-mean"}}
    run(RunFile.model_validate(sections), tmp_path / "with")
    kept = json.loads((tmp_path / "with" / "about.json").read_text())
    assert [one["name"] for one in kept["references"]] == ["local", "popularity", "central"]
    assert kept["floor"]["method"] == "bias"
    run(RunFile.model_validate({**sections, "evaluate": {"floor": False}}), tmp_path / "without")
    kept = json.loads((tmp_path / "without" / "about.json").read_text())
    assert not {"floor", "references"} & set(kept)
