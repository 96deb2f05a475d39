"""`tacit compare --frontier`: many methods at many ε from one sweep file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.cli import app

SWEEP = """
[data]
source = "demo"
users = 60
items = 30
ratings = 900
[partition]
into = 3
[privacy]
epsilon = 1.0
[aggregation]
name = "ideal"
[evaluate]
ranking = false
[frontier]
methods = ["bias", "item-mean"]
levels = ["global-mean"]
epsilons = [1, inf]
seeds = [7, 8]
"""


def call(folder: Path, *more: str) -> tuple[int, str]:
    (folder / "sweep.toml").write_text(SWEEP)
    out = ["--out", str(folder / "frontier.html")]
    done = CliRunner().invoke(
        app, ["compare", "--frontier", str(folder / "sweep.toml"), *out, "--json", "--quiet", *more]
    )
    return done.exit_code, done.stdout


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("frontier")
    code, printed = call(folder)
    assert code == 0, printed
    return folder, json.loads(printed)


def test_every_point_has_the_mean_and_deviation_over_its_seeds(swept):
    _folder, found = swept
    points = {(point["method"], point["epsilon"]): point for point in found["points"]}
    assert set(points) == {("bias", 1.0), ("bias", None), ("item-mean", None), ("global-mean", None)}
    point = points["bias", 1.0]
    errors = [json.loads((Path(run) / "summary.json").read_text())["metrics"]["mse"] for run in point["runs"]]
    assert len(set(errors)) == 2
    assert point["metrics"]["mse"]["mean"] == pytest.approx(sum(errors) / 2)
    assert point["metrics"]["mse"]["sd"] == pytest.approx(abs(errors[0] - errors[1]) / 2**0.5)


def test_a_method_that_cannot_keep_the_guarantee_is_listed_with_the_reason(swept):
    _folder, found = swept
    (refused,) = found["refused"]
    assert refused["method"] == "item-mean, ε = 1.00"
    assert "guarantee" in refused["why"]


def test_finished_points_are_read_and_not_run_again(swept):
    folder, found = swept
    times = {run: (Path(run) / "summary.json").stat().st_mtime_ns for point in found["points"] for run in point["runs"]}
    code, printed = call(folder)
    assert code == 0
    assert json.loads(printed)["points"] == found["points"]
    assert {run: (Path(run) / "summary.json").stat().st_mtime_ns for run in times} == times


def test_the_page_has_each_method_and_level(swept):
    folder, _found = swept
    text = (folder / "frontier.html").read_text()
    assert all(word in text for word in ("bias", "item-mean", "global-mean, no privacy", "no privacy", "Not run"))


def test_runs_and_a_sweep_together_are_refused(tmp_path):
    code, _printed = call(tmp_path, "some-run")
    assert code == 2


def test_a_file_without_a_frontier_is_refused(tmp_path):
    (tmp_path / "run.toml").write_text("seed = 7\n")
    done = CliRunner().invoke(app, ["compare", "--frontier", str(tmp_path / "run.toml")])
    assert done.exit_code == 2
