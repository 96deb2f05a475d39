"""`objective-perturbation`: what it learns, what it keeps, and what it spends."""

import numpy as np
import pytest
from method_runs import rows_of, run_file

import tacit.methods as methods
from tacit.boundary import account
from tacit.boundary.events import PerturbedObjective
from tacit.errors import UsageError
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation
from tacit.methods.baselines.objective import OBJECTIVE, ObjectiveParameters
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.testing.worlds import checkerboard

SMALL = {"source": "demo", "users": 150, "items": 30, "ratings": 2500}


def file(epsilon=None, **method):
    privacy = None if epsilon is None else {"epsilon": epsilon, "delta": 1e-6}
    table = {"name": OBJECTIVE.name, "factors": 4, **method}
    return run_file(data=SMALL, partition={"into": 3}, method=table, privacy=privacy)


def errors(trained, test):
    predicted = trained.predictor.predict(test.users, test.items)
    return float(np.mean((predicted - test.values) ** 2))


def test_without_privacy_it_learns_what_means_cannot():
    """A checkerboard of 1 and 5: every mean predicts 3, off by 4."""
    seen, hidden = checkerboard()
    parties = partition(seen, into=2)
    trained = train(PreparedRun.of(OBJECTIVE, ObjectiveParameters(factors=8), Facts.of(parties, 7)), parties)
    assert errors(trained, hidden) < 1.0


def test_with_a_great_budget_it_comes_close_to_the_answer_without_noise_and_with_a_small_one_not(tmp_path):
    """Mean squared errors at ε = 10⁶, 10³ and 1 against none; 150 users, one seed."""
    exact = run(file(trim=1000), tmp_path / "exact")["metrics"]["mse"]
    noised = [run(file(e, trim=1000), tmp_path / f"{e}")["metrics"]["mse"] for e in (1e6, 1e3, 1.0)]
    assert abs(noised[0] - exact) < 0.05
    assert noised[0] < noised[1] < noised[2]


def test_a_run_spends_what_was_planned_and_no_more(tmp_path):
    summary = run(file(1.0), tmp_path / "run")
    assert summary["guarantee"]["epsilon"] <= 1.0
    assert summary["rounds"] == 1
    ledgers = rows_of(tmp_path / "run")
    assert len(ledgers) == 3
    for rows in ledgers.values():
        assert [row.step for row in rows] == ["pretrain", "solve", "finish"]
        spent = rows[1].spent
        assert (type(spent), spent.count) == (PerturbedObjective, 10)
        assert account.epsilon([spent], 1e-6, Relation.ZERO_OUT) == pytest.approx(summary["guarantee"]["epsilon"])


@pytest.mark.parametrize("wrong", [{"trim": 0}, {"factors": 0}, {"regularization": 0.0}, {"pretraining": 0}])
def test_bad_parameters_are_refused_before_data_is_touched(wrong):
    with pytest.raises(UsageError):
        methods.chosen({"name": OBJECTIVE.name, **wrong})
