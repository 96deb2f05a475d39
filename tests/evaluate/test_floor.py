"""The floor of a run: `bias` on the same parties, at the same guarantee, by the same test."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary.ledger import Ledger
from tacit.config import AggregationSection, RunFile
from tacit.evaluate import evaluate
from tacit.evaluate.references import bias_floor
from tacit.experiment import run
from tacit.guarantee import Guarantee
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
    assert "leave nobody to add noise" in found["missing"]


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
    prepared = prepare(file(method={"name": "central", "factors": 4, "epochs": 5}))
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
