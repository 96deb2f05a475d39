"""What reports cost is in the plan, on the card and in the ledger: each, per release, per run, and after a shuffle."""

import json

import pytest
from typer.testing import CliRunner

from tacit.boundary.events import Gaussian, Public, Pure, Shuffled
from tacit.boundary.report_costs import local_epsilon
from tacit.cli import app

FILE = """
seed = 7
[data]
source = "demo"
users = {users}
items = 30
feedback = "implicit"
[partition]
by = "device"
into = 1
[method]
name = "implicit"
factors = 2
rounds = {rounds}
reports = {k}
[privacy]
epsilon = 2.5
delta = 1e-6
accounting = "paper"
budget = 5000.0
[aggregation]
name = "{aggregation}"
[evaluate]
floor = false
"""


def tacit(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.stdout


def written(tmp_path, aggregation, users=50_000, rounds=20, k=100):
    path = tmp_path / "run.toml"
    path.write_text(FILE.format(aggregation=aggregation, users=users, rounds=rounds, k=k))
    return path


def test_a_plan_states_the_papers_numbers(tmp_path):
    """2.5 a report, 250 an epoch, 5,000 a run, and what holds at δ: without a shuffle 4,547, with one 7.3."""
    for aggregation, crowd, at_delta in (("plain", 0, 4546.65), ("shuffle", 34_999, 7.297)):
        (costs,) = json.loads(tacit("plan", written(tmp_path, aggregation), "--json"))["reports"]
        assert costs["epsilon_at_delta"] == pytest.approx(at_delta, abs=0.01)
        del costs["epsilon_at_delta"]
        assert costs == {
            "step": "report",
            "epsilon": 2.5,
            "reports": 100,
            "releases": 20,
            "crowd": crowd,
            "epsilon_of_release": 250.0,
            "epsilon_of_run": 5000.0,
            "delta": 1e-6,
        }
    text = tacit("plan", written(tmp_path, "shuffle"))
    assert "local ε of 2.50" in text
    assert "34,999 distinct honest devices" in text


@pytest.mark.parametrize("aggregation", ["plain", "shuffle"])
def test_card_and_ledger_state_them_too(tmp_path, aggregation):
    """100 devices, twice 5 reports of 2.5: 12.5 a release and 25 a run, wherever somebody looks."""
    file, run = written(tmp_path, aggregation, users=100, rounds=2, k=5), tmp_path / "run"
    tacit("run", file, "--out", run, "--quiet")
    card = (run / "card.md").read_text()
    assert "local ε of 2.50" in card
    assert "12.50 together" in card
    assert "ε = 25.00: these hold against anyone, with δ = 0" in card
    assert "claim" in card
    (ledger,) = json.loads(tacit("ledger", "show", run, "--json"))["ledgers"]
    assert ledger["local_epsilon"] == 25.0
    assert "local ε of 25.00 by themselves, against anyone" in tacit("ledger", "show", run)


def test_only_reports_have_a_local_epsilon():
    events = [Public(), Gaussian(1.0), Pure(1.0, "discrete Laplace")]
    assert local_epsilon(events) is None
    assert local_epsilon([*events, Pure(0.5, "randomised reports", 4), Shuffled(0.25, 99, 8)]) == 4.0
