"""Runs that an earlier version wrote open, verify and recommend: what a site has on disk outlives the code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tacit.boundary.ledger import Ledger
from tacit.cli import app
from tacit.model import Model

BEFORE = Path(__file__).with_name("before")
RUNS = ("bias", "vertical", "means")


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(BEFORE / request.param, tmp_path / "run"))


def test_its_ledgers_verify(run: Path) -> None:
    ledgers = sorted((run / "ledger").glob("*.sqlite"))
    assert ledgers or "privacy" not in (run / "run.toml").read_text()
    for path in ledgers:
        ledger = Ledger.open(path)
        ledger.verify()
        assert ledger.rows()
        ledger.close()
    told = CliRunner().invoke(app, ["ledger", "verify", str(run)])
    assert told.exit_code == 0, told.output


def test_its_model_recommends(run: Path) -> None:
    model = Model.load(run)
    first, second = model.item_ids[0].item(), model.item_ids[1].item()
    found = model.recommend({first: 5.0, second: 1.0}, n=3)
    assert len(found) == 3
    assert first not in dict(found)


def test_its_report_is_written_anew(run: Path) -> None:
    told = CliRunner().invoke(app, ["report", str(run)])
    assert told.exit_code == 0, told.output
