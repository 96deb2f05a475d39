"""Biases first, factors at home: what leaves is what leaves without them, and the factors use the biases."""

import numpy as np
import pytest

import tacit
from tacit.config import RunFile
from tacit.engine.simulate import train
from tacit.errors import UsageError
from tacit.experiment import check, run
from tacit.methods import chosen
from tacit.methods.baselines.tune import from_biases

LEARNED, HIDDEN = tacit.split(tacit.load("demo"), test=0.1, seed=7)


def fit(name="bias", **parameters):
    return train(*chosen({"name": name, **parameters}), tacit.partition(LEARNED, into=5), seed=7)


def mse(predictor) -> float:
    return float(np.mean((predictor.predict(HIDDEN.users, HIDDEN.items) - HIDDEN.values) ** 2))


def test_what_leaves_does_not_change():
    assert fit(fine_tuning=3).transcript.digest == fit().transcript.digest
    np.testing.assert_array_equal(fit(fine_tuning=3).model.item_scores, fit().model.item_scores)


def test_it_is_better_than_biases_and_than_each_silo_alone():
    tuned = fit(fine_tuning=20)
    assert mse(tuned.predictor) < mse(tuned.before_fine_tuning) == mse(fit().predictor)
    assert mse(tuned.predictor) < mse(fit("local").predictor)


def test_factors_begin_as_biases():
    """Before any pass a user's predictions rise with the biases of the items."""
    share = tacit.partition(LEARNED, into=5)[0]
    b = np.linspace(-1, 1, share.ratings.n_items).astype(np.float32)
    U, V = from_biases(share.ratings, b, 6, np.random.default_rng(0))
    assert (np.square(V).sum(axis=1) <= share.ratings.scale.span * (1 + 1e-5)).all()
    correlation = np.corrcoef(b, (U @ V.T).mean(axis=0))[0, 1]
    assert correlation > 0.9


def test_a_private_run_lets_out_biases_only(tmp_path):
    table = {
        "data": {"source": "demo", "users": 60, "items": 30, "ratings": 900},
        "partition": {"by": "user", "into": 3},
        "method": {"name": "bias", "fine_tuning": 2, "factors": 4},
        "privacy": {"epsilon": 2.0, "delta": 1e-6},
        "engine": {"transcript": "full"},
    }
    summary = run(RunFile.model_validate(table), tmp_path / "run")
    assert (
        summary["bytes_up"]
        == run(RunFile.model_validate({**table, "method": {"name": "bias"}}), tmp_path / "plain")["bytes_up"]
    )
    assert summary["metrics"] != summary["metrics_shared"]


@pytest.mark.parametrize("by", ["item", "device"])
def test_only_silos_of_users_tune(by):
    table = {"partition": {"by": by, "into": 3}, "method": {"name": "bias", "fine_tuning": 2}}
    with pytest.raises(UsageError, match="fine_tuning = 2 is for silos"):
        check(RunFile.model_validate({**table, "privacy": {"epsilon": 1.0, "delta": 1e-6}}))
