"""`objective-perturbation`: what it learns, what it keeps, and what it spends."""

import numpy as np
import pytest

import tacit.methods as methods
from tacit.boundary import account
from tacit.boundary.events import PerturbedObjective
from tacit.boundary.ledger import Ledger
from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused, UsageError
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation
from tacit.methods.baselines.objective import OBJECTIVE, ObjectiveParameters
from tacit.partition import partition
from tacit.prepare.loaded import prepare
from tacit.prepare.plan import AS_REPLACED
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.testing.worlds import checkerboard

SMALL = {"source": "demo", "users": 150, "items": 30, "ratings": 2500}


def file(epsilon=None, unit="user", **method):
    privacy = {} if epsilon is None else {"privacy": {"epsilon": epsilon, "delta": 1e-6, "unit": unit}}
    table = {"name": OBJECTIVE.name, "factors": 4, **method}
    return RunFile.model_validate({"data": SMALL, "partition": {"into": 3}, "method": table, **privacy})


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
    for party in ("party-1", "party-2", "party-3"):
        ledger = Ledger(tmp_path / "run" / "ledger" / f"{party}.sqlite", party)
        spent = [event for event in ledger.events() if isinstance(event, PerturbedObjective)]
        assert [row.step for row in ledger.rows()] == ["pretrain", "solve", "finish"]
        assert [event.count for event in spent] == [10]
        assert account.epsilon(spent, 1e-6, Relation.ZERO_OUT) == pytest.approx(summary["guarantee"]["epsilon"])
        ledger.close()


def test_per_rating_it_is_accounted_for_as_replacing_a_user():
    user, rating = (prepare(file(1.0, unit)).run.plan for unit in ("user", "rating"))
    assert rating.multiplier > 1.9 * user.multiplier
    assert rating.terms.relation is Relation.REPLACE
    assert account.epsilon(rating.terms.events, 1e-6, Relation.REPLACE) <= 1.0
    assert rating.warnings == (AS_REPLACED,)


def test_what_is_fitted_at_home_is_secret(tmp_path):
    """A silo whose step lets its users' factors out is refused, and its ledger holds the pre-training alone."""
    from tacit.methods.baselines.objective import ObjectiveSilo

    real = ObjectiveSilo.solve

    def leaky(self, items):
        padded = np.zeros_like(items)
        padded[: len(self.home["users"])] = self.home["users"][: len(items)]
        self.gate.store_private("padded", padded)
        return self.gate._release(real.tacit_step.kind, {"items": padded.copy()}, PerturbedObjective(1.0, 0.1))

    leaky.tacit_step = real.tacit_step
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectiveSilo, "solve", leaky)
        with pytest.raises(PrivacyRefused, match="stays at home"):
            run(file(1.0), tmp_path / "run")
    ledger = Ledger(tmp_path / "run" / "ledger" / "party-1.sqlite", "party-1")
    assert [row.step for row in ledger.rows()] == ["pretrain"]
    ledger.close()


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path, monkeypatch):
    whole = run(file(1.0), tmp_path / "whole")

    class Crash(BaseException):
        pass

    real, calls = Ledger.record, iter(range(100))

    def failing(self, **values):
        row = real(self, **values)
        if next(calls) == 4:
            raise Crash
        return row

    with monkeypatch.context() as broken:
        broken.setattr(Ledger, "record", failing)
        with pytest.raises(Crash):
            run(file(1.0), tmp_path / "run")
    assert run(file(1.0), tmp_path / "run")["digest"] == whole["digest"]


@pytest.mark.parametrize("wrong", [{"trim": 0}, {"factors": 0}, {"regularization": 0.0}, {"pretraining": 0}])
def test_bad_parameters_are_refused_before_data_is_touched(wrong):
    with pytest.raises(UsageError):
        methods.chosen({"name": OBJECTIVE.name, **wrong})


def test_it_is_for_divided_users_only():
    parties = partition(demo(users=20, items=10, ratings=80), by="item")
    with pytest.raises(UsageError, match="horizontal"):
        PreparedRun.of(OBJECTIVE, ObjectiveParameters(), Facts.of(parties, 7))
