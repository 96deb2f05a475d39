"""examples/plugin: a private method of three differently noised sums over item features, outside the package.

What a plugin's author tests: `TestFeatureSlopes` brings what every method must do, `test_plugin_bounds.py` attacks what
its queries state. The rest shows what holds of this one.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
from plugged import FOLDER, installed, plugged

from tacit.config import RunFile
from tacit.model import Model
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records
from tacit.testing.method_contract import MethodContract

PRIVATE = {"epsilon": 4.0, "delta": 1e-4}
FEATURES = {"features": ["genres", "year"]}
STEPS = ["means", "tastes", "slopes"]


@pytest.fixture(autouse=True)
def method():
    with plugged():
        yield


def file(users=120, items=40, ratings=2400, seed=7, **sections) -> RunFile:
    base = {
        "seed": seed,
        "data": {"users": users, "items": items, "ratings": ratings},
        "public": FEATURES,
        "partition": {"into": 3},
        "method": {"name": "feature-slopes"},
        "aggregation": {"tolerate": 0.0},
    }
    return RunFile.model_validate({**base, **sections})


def held(folder, **sections):
    """A run in this process: what was prepared, and what came of it."""
    made = prepare(file(**sections))
    return made, train(made.run, made.parties, records=Records.of(made.run, folder / "ledgers"))


def under(aggregation, **others):
    return {"aggregation": {"name": aggregation, "tolerate": 0.0}, **others}


def rmse(folder, **sections) -> float:
    made, trained = held(folder, **sections)
    errors = trained.predictor.predict(made.test.users, made.test.items) - made.test.values
    return float(np.sqrt(np.mean(np.square(errors, dtype=np.float64))))


class TestFeatureSlopes(MethodContract):
    name = "feature-slopes"
    parameters = {"directions": 2}
    seeded = False  # without noise nothing random crosses

    def pytest_generate_tests(self, metafunc):
        with plugged():
            super().pytest_generate_tests(metafunc)


def test_it_has_fewer_than_150_lines_and_needs_nothing_else():
    assert [path.name for path in FOLDER.glob("*.py")] == ["tacit_slopes.py"]
    assert len((FOLDER / "tacit_slopes.py").read_text(encoding="utf-8").splitlines()) < 150


@pytest.mark.parametrize("privacy", [None, PRIVATE], ids=["non-private", "private"])
@pytest.mark.parametrize("aggregation", ["plain", "ideal", "secagg"])
def test_it_runs_under_every_aggregation_of_sums(tmp_path, aggregation, privacy):
    made, trained = held(tmp_path, **under(aggregation, privacy=privacy))
    sums = [entry.step for entry in trained.transcript.entries if entry.kind == "sum" and entry.direction == "up"]
    assert list(dict.fromkeys(sums)) == STEPS
    assert np.isfinite(trained.predictor.scores(np.arange(made.train.n_users))).all()
    if privacy is None:
        assert trained.model.stamp.startswith("NON-PRIVATE")
        assert bool(made.run.hidden) is (aggregation != "plain")
    else:
        assert 0.998 * 4.0 <= made.run.guarantee.epsilon <= 4.0


def test_it_runs_on_single_devices_too(tmp_path):
    partition = {"by": "device"}
    for privacy in (None, PRIVATE):
        held(tmp_path, users=30, ratings=600, partition=partition, privacy=privacy, **under("secagg"))


def test_it_beats_means_that_nothing_protects_and_features_help(tmp_path):
    """On the demo at ε = 4, over three seeds: RMSE 0.93 against 1.00 of item means without any noise."""
    size = {"users": 1000, "items": 500, "ratings": 50_000}
    bare = np.mean([rmse(tmp_path / "0", seed=s, method={"name": "item-mean"}, **size) for s in (1, 2, 3)])
    loud, quiet, blind = (
        np.mean([rmse(tmp_path / f"{k}-{s}", seed=s, privacy=privacy, public=public, **size) for s in (1, 2, 3)])
        for k, (privacy, public) in enumerate([({"epsilon": 4.0}, FEATURES), (None, FEATURES), (None, {})])
    )
    assert loud < 0.96 * bare
    assert quiet < 0.86 * bare
    assert quiet < blind - 0.02


# -- found by name ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return installed(tmp_path_factory.mktemp("site"))


def test_the_command_line_runs_its_own_run_file_where_it_is_installed(site, tmp_path):
    line = [sys.executable, "-c", "from tacit.cli import app; app()", "run", str(FOLDER / "run.toml"), "--quiet"]
    line += ["--out", "done", "--set", "data.users=200", "--set", "evaluate.floor=false"]
    for folder, code in ((site, 0), (tmp_path, 2)):
        done = subprocess.run(
            line, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
    assert 'There is no method "feature-slopes".' in done.stderr
    assert Model.load(tmp_path / "done").method == "feature-slopes"
