"""`bias`: the first private method, in simulation."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

from tacit.config import RunFile
from tacit.errors import PrivacyRefused, UsageError
from tacit.experiment import run
from tacit.methods.bias import item_biases
from tacit.rng import derive
from tacit.testing.method_contract import MethodContract

DATA = {"source": "demo", "users": 400, "items": 60, "ratings": 8000}


def file(**sections) -> RunFile:
    base = {
        "data": DATA,
        "partition": {"into": 4},
        "method": {"name": "bias"},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
    }
    return RunFile.model_validate({"evaluate": {"floor": False}, **base, **sections})


class TestBias(MethodContract):
    name = "bias"
    seeded = False  # without privacy nothing random crosses
    refused = {("vertical", "secagg"): "bias has none here"}


def test_without_noise_it_is_a_model_of_biases(tmp_path):
    """Nearly as good as the truth's own additive part allows, and clearly better than item means."""
    plain = run(file(privacy=None), tmp_path / "bias")["metrics"]["mse"]
    means = run(file(privacy=None, method={"name": "item-mean"}), tmp_path / "means")["metrics"]["mse"]
    assert plain < 0.97 * means


def test_more_privacy_costs_more(tmp_path):
    errors = [
        run(file(privacy={"epsilon": e, "delta": 1e-6}, aggregation={"name": "ideal"}), tmp_path / str(e))["metrics"][
            "mse"
        ]
        for e in (0.2, 50.0)
    ]
    assert errors[0] > errors[1]


def test_the_guarantee_says_who_is_protected_from_whom(tmp_path):
    for name, model, aggregation in (("silos", "silo", "plain"), ("sum", "distributed", "ideal")):
        summary = run(file(aggregation={"name": aggregation}), tmp_path / name)
        guarantee = summary["guarantee"]
        assert guarantee["epsilon"] <= 4.0
        assert (guarantee["unit"], guarantee["relation"], guarantee["model"]) == ("user", "zero-out", model)
        assert guarantee["simulated"] is True
        assert "NON-PRIVATE" not in (tmp_path / name / "card.md").read_text()
    devices = run(file(partition={"by": "device"}), tmp_path / "devices")
    assert devices["guarantee"]["model"] == "local"


def test_one_noise_for_all_is_better_than_each_its_own(tmp_path):
    """On average over four seeds: one draw of little noise may be unlucky."""
    own, one = (
        [
            run(file(seed=seed, aggregation={"name": name}), tmp_path / f"{name}{seed}")["metrics"]["mse"]
            for seed in range(4)
        ]
        for name in ("plain", "ideal")
    )
    assert sum(one) < sum(own)


def test_biases_are_found_under_noise():
    """m = 3,000 items with planted biases of standard deviation 0.5 and a popularity tail."""
    stream = derive(7, "planted")
    S = stream.gamma(0.6, 30, 3000)
    b = stream.normal(0.1, 0.5, 3000)
    sigma = 2.0
    A = S * b + stream.normal(0, sigma, 3000)
    noised = S + stream.normal(0, sigma / 0.7, 3000)
    found = item_biases(A, noised, sigma, sigma / 0.7)
    assert np.corrcoef(found, b)[0, 1] > 0.75
    assert np.mean((found - b) ** 2) < np.mean((b - b.mean()) ** 2) * 0.6
    popular = S > 40
    assert np.mean((found - b)[popular] ** 2) < 0.05


@pytest.mark.parametrize(
    ("sections", "error", "words"),
    [
        ({"privacy": {"epsilon": 1.0, "delta": 0.01}}, UsageError, "1/users"),
        ({"method": {"name": "item-mean"}}, PrivacyRefused, "NON-PRIVATE"),
        ({"engine": {"seeded": False}, "aggregation": {"name": "ideal"}}, PrivacyRefused, "seeded"),
        (
            {"partition": {"by": "item", "into": 3}, "aggregation": {"name": "ideal"}},
            PrivacyRefused,
            "bias has none here",
        ),
        ({"privacy": {"epsilon": 1.0, "accounting": "paper"}}, PrivacyRefused, "paper"),
        ({"data": {"source": "nowhere.csv"}}, UsageError, "public fact"),
    ],
)
def test_what_cannot_be_kept_is_refused_before_data_is_touched(tmp_path, sections, error, words):
    with pytest.raises(error, match=words):
        run(file(**sections), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_kept_ledger_refuses_the_second_run_unless_the_budget_allows_it(tmp_path):
    kept = {"epsilon": 4.0, "delta": 1e-6, "ledger": str(tmp_path / "ledgers")}
    same = {"partition": {"by": "device"}}
    run(file(privacy=kept, **same), tmp_path / "first")
    with pytest.raises(PrivacyRefused, match="its budget is 4"):
        run(file(privacy=kept, seed=8, **same), tmp_path / "second")
    run(file(privacy={**kept, "budget": 20.0}, seed=8, **same), tmp_path / "third")
    assert json.loads((tmp_path / "third" / "summary.json").read_text())["guarantee"]["epsilon"] <= 4.0


def test_one_party_without_budget_stops_the_run_or_is_left_out(tmp_path, monkeypatch):
    from tacit.boundary.protection import Protection

    real = Protection.would_reach
    monkeypatch.setattr(Protection, "would_reach", lambda self: 99.0 if self.ledger.party == "party-2" else real(self))
    with pytest.raises(PrivacyRefused, match="party-2 refuses"):
        run(file(privacy={"epsilon": 4.0, "delta": 1e-6, "on_refusal": "stop"}), tmp_path / "stop")
    run(file(), tmp_path / "continue")
    messages = pq.read_table(tmp_path / "continue" / "transcript" / "messages.parquet").to_pylist()
    refused = [(m["party"], m["step"]) for m in messages if m["status"] == "refused"]
    assert refused == [
        ("party-2", "contribute"),
        ("party-2", "finish"),
    ]  # it has no part in a run that it cannot afford


def test_a_budget_for_a_period_prints_the_lifetime_beside_it(tmp_path):
    kept = {"epsilon": 4.0, "delta": 1e-6, "ledger": str(tmp_path / "ledgers"), "budget": 20.0, "period": 30.0}
    for seed, name in ((7, "first"), (8, "second")):
        run(file(privacy=kept, seed=seed, partition={"by": "device"}), tmp_path / name)
    assert "lifetime" not in (tmp_path / "first" / "card.md").read_text()
    assert "all runs together: ε = " in (tmp_path / "second" / "card.md").read_text()


@pytest.mark.parametrize("aggregation", ["ideal", "secagg"])
def test_a_hidden_sum_without_privacy_is_the_same_sum_and_non_private(tmp_path, aggregation):
    """In fixed point as fine as float32; that single contributions are hidden limits nothing that the sum says."""
    plain = run(file(privacy=None), tmp_path / "plain")
    hidden = run(file(privacy=None, aggregation={"name": aggregation}), tmp_path / "hidden")
    assert hidden["metrics"]["mse"] == pytest.approx(plain["metrics"]["mse"], rel=1e-4)
    stamp = json.loads((tmp_path / "hidden" / "model" / "model.json").read_text())["stamp"]
    assert stamp.startswith("NON-PRIVATE")
    assert not list((tmp_path / "hidden" / "ledger").glob("*.sqlite"))


def test_a_kept_ledger_is_bound_to_its_people_and_its_unit(tmp_path):
    """Another seed deals other users to party-1; budgets would start anew for them under her name."""
    kept = {"epsilon": 4.0, "delta": 1e-6, "ledger": str(tmp_path / "ledgers"), "budget": 50.0}
    run(file(privacy=kept), tmp_path / "first")
    with pytest.raises(PrivacyRefused, match="with releases in the ledger"):
        run(file(privacy=kept, seed=8), tmp_path / "second")
    with pytest.raises(PrivacyRefused, match="another unit"):
        run(file(privacy={**kept, "unit": "rating"}), tmp_path / "third")


def test_it_comes_to_the_noiseless_answer_as_noise_goes_away(tmp_path):
    """A sweep towards no noise ends at no noise: ε = 200 and 1e6 within 2 % of none."""
    errors = [run(file(privacy=None), tmp_path / "none")["metrics"]["mse"]]
    for e in (200.0, 1e6):
        private = {"privacy": {"epsilon": e, "delta": 1e-6}, "aggregation": {"name": "ideal"}}
        errors.append(run(file(**private), tmp_path / str(e))["metrics"]["mse"])
    assert max(errors) < 1.02 * min(errors)
