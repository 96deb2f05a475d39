"""Whoever makes a budget makes it at the run's own δ: a run file, an estimator, a site."""

from types import SimpleNamespace

import pytest

from tacit.boundary.ledger import Ledger
from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.deploy.policy import Policy
from tacit.estimator import DP, Bias
from tacit.experiment import recorded
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare.loaded import prepare
from tacit.prepare.run_file import plan
from tacit.prepare.simulated_ledgers import Records

DELTA, EPSILON = 1e-5, 2.0
FILE = RunFile.model_validate(
    {
        "data": {"source": "demo", "users": 40, "items": 10, "ratings": 200},
        "partition": {"into": 2},
        "method": {"name": "bias"},
        "privacy": {"epsilon": EPSILON, "delta": DELTA},
    }
)


@pytest.fixture(scope="module")
def made():
    return plan(FILE, *chosen(FILE.method))


def test_a_run_files(tmp_path):
    records = recorded(prepare(FILE), SimpleNamespace(path=tmp_path))
    records.log.close()
    assert (records.budget.epsilon, records.budget.delta) == (EPSILON, DELTA)


def test_an_estimators(monkeypatch):
    parties, made, real = partition(demo(users=40, items=10, ratings=200), into=2), [], Records.over
    monkeypatch.setattr(Records, "over", lambda self, *run: (made.append(self), real(self, *run))[1])
    Bias(privacy=DP(EPSILON, DELTA)).fit(parties, ratings=200)
    (records,) = made
    assert (records.budget.epsilon, records.budget.delta) == (EPSILON, DELTA)


@pytest.mark.parametrize("policy", [Policy(), Policy(local=True)], ids=["deployed", "local"])
def test_a_sites(tmp_path, made, policy):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for _again in range(2):
        budget = policy.budget(FILE, made, ledger)
        assert (budget.epsilon, budget.delta) == (EPSILON, DELTA)
    ledger.close()
