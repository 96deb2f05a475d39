"""Private runs whose ledgers are shown, verified and tampered with."""

import gc
import shutil
from pathlib import Path

import pytest
from ledger_runs import RUN
from test_cli import tacit


@pytest.fixture(scope="session")
def private_runs(tmp_path_factory):
    """Three runs: `here` with its own ledgers; `first` and `second` with those in `shared`, and `old` between them."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run.toml").write_text(RUN)
    shared = ("--set", "privacy.ledger=shared", "--set", "privacy.budget=9")
    for name, *changes in (("here",), ("first", *shared), ("second", *shared, "--set", "method.shrinkage=6")):
        answer = tacit("run", "run.toml", "--quiet", "--out", name, *changes, cwd=folder)
        assert answer.returncode == 0, answer.stderr
        if name == "first":
            shutil.copytree(folder / "shared", folder / "old")
    gc.collect()  # closes the runs' logs
    return folder


@pytest.fixture
def copied(private_runs, tmp_path):
    """A copy of them, to be tampered with."""
    return Path(shutil.copytree(private_runs, tmp_path / "copy"))
