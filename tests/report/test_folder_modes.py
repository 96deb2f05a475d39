"""What a run leaves is its owner's alone, file by file: a folder is copied, and its mode stays behind."""

import os
import stat

import pytest

from tacit.config import RunFile
from tacit.experiment import run


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_no_file_of_a_run_folder_can_be_read_by_others(tmp_path, usual_umask):
    file = RunFile.model_validate(
        {
            "data": {"source": "demo", "users": 60, "items": 40, "ratings": 900},
            "partition": {"by": "user", "into": 3},
            "method": {"name": "bias"},
            "privacy": {"epsilon": 4.0, "delta": 1e-6},
            "engine": {"transcript": "full"},
        }
    )
    run(file, tmp_path / "run")
    modes = {
        str(path.relative_to(tmp_path)): stat.S_IMODE(path.stat().st_mode)
        for path in (tmp_path / "run").rglob("*")
        if path.is_file()
    }
    expected = ("run.toml", "summary.json", "metrics.parquet", "card.md", "report.html", "about.json")
    assert {f"run/{name}" for name in expected} <= modes.keys()
    assert any("payloads" in name for name in modes)
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
