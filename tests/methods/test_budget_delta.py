"""Whoever makes a budget makes it at the run's own δ: a run file, an estimator, a site."""

from types import SimpleNamespace

import pytest

from tacit.boundary.ledger import Ledger
from tacit.config import AggregationSection, RunFile
from tacit.data.synthetic import demo
from tacit.deploy.policy import Policy
from tacit.estimator.base import DP, guarded
from tacit.experiment import safeguards
from tacit.methods import chosen
from tacit.methods.runfile import plan
from tacit.partition import partition

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


def test_a_run_files(tmp_path, made):
    guards = safeguards(FILE, made, SimpleNamespace(run_id="run", path=tmp_path))
    guards.log.close()
    assert (guards.budget.epsilon, guards.budget.delta) == (EPSILON, DELTA)


def test_an_estimators():
    method, parameters = chosen({"name": "bias"})
    privacy, aggregation = DP(EPSILON, DELTA), AggregationSection()
    parties = partition(demo(users=40, items=10, ratings=200), into=2)
    with guarded(method, parameters, privacy, parties, 200, aggregation) as guards:
        assert (guards.budget.epsilon, guards.budget.delta) == (EPSILON, DELTA)


@pytest.mark.parametrize("policy", [Policy(), Policy(local=True)], ids=["deployed", "local"])
def test_a_sites(tmp_path, made, policy):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    for _again in range(2):
        budget = policy.budget(FILE, made, ledger)
        assert (budget.epsilon, budget.delta) == (EPSILON, DELTA)
    ledger.close()
