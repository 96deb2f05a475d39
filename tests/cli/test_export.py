"""`tacit export`: shared factors and nothing else, stamped, whole or not at all."""

import json
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from test_cli import refused, tacit

from tacit.config import RunFile
from tacit.experiment import run
from tacit.model import Model

DATA = {"source": "demo", "users": 30, "items": 20, "ratings": 300}
SGDMF = {"name": "sgdmf", "factors": 3, "rounds": 2, "local_steps": 1}
FACTORS = ["factor_1", "factor_2", "factor_3"]


def a_run(folder: Path, by: str = "user", method: dict | None = None, **sections) -> Path:
    table = {"data": DATA, "partition": {"by": by, "into": 2}, "method": method or SGDMF, **sections}
    run(RunFile.model_validate(table), folder)
    return folder


def tables(folder: Path) -> dict[str, list[str]]:
    """Every file of an export; of tables their columns."""
    return {
        path.name: pq.read_schema(path).names if path.suffix == ".parquet" else []
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


WITHOUT_USERS = {"README.md": [], "guarantee.json": [], "items.parquet": ["item", *FACTORS]}


@pytest.mark.parametrize(
    ("by", "method", "expected"),
    [
        ("user", SGDMF, WITHOUT_USERS),
        ("device", {"name": "sgdmf", "factors": 3, "rounds": 2}, WITHOUT_USERS),
        ("item", SGDMF, {**WITHOUT_USERS, "users.parquet": ["row", *FACTORS]}),
        ("user", {"name": "bias"}, {**WITHOUT_USERS, "items.parquet": ["item", "base", "factor_1", "order"]}),
        ("item", {"name": "bias"}, {**WITHOUT_USERS, "items.parquet": ["item", "base", "factor_1", "order"]}),
        ("user", {"name": "item-mean"}, {**WITHOUT_USERS, "items.parquet": ["item", "base"]}),
        ("user", {"name": "random"}, {**WITHOUT_USERS, "items.parquet": ["item", "keys"]}),
    ],
)
def test_it_is_a_model_of_what_is_shared_and_nothing_else(tmp_path, by, method, expected):
    a_run(tmp_path / "done", by, method)
    answer = tacit("export", "done", "--out", "out", cwd=tmp_path)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert tables(tmp_path / "out") == expected
    own, exported = Model.load(tmp_path / "done"), Model.load(tmp_path / "out")
    history = {own.item_ids[0].item(): 5.0, own.item_ids[3].item(): 1.0}
    assert exported.recommend(history) == own.recommend(history)
    assert (exported.stamp, exported.method, exported.item_ids) == (own.stamp, own.method, own.item_ids)
    assert {path.name for path in tmp_path.iterdir()} == {"done", "out"}


def test_the_numbers_and_ids_are_the_models(tmp_path):
    a_run(tmp_path / "done", "item")
    out = tacit("export", "done", "--out", "out", "--json", cwd=tmp_path).stdout
    files = ["README.md", "guarantee.json", "items.parquet", "users.parquet"]
    assert json.loads(out) == {"run": "done", "out": "out", "files": files, "items": 20, "stamp": "NON-PRIVATE"}
    model, items = Model.load(tmp_path / "done"), pq.read_table(tmp_path / "out" / "items.parquet")
    users = pq.read_table(tmp_path / "out" / "users.parquet")
    assert items["item"].to_pylist() == model.item_ids.ids.tolist()
    for table, factors in ((items, model.item_factors), (users, model.user_factors)):
        assert np.array_equal(np.column_stack([table[name].to_numpy() for name in FACTORS]), factors)
    assert users["row"].to_pylist() == list(range(30))


def test_every_file_carries_the_stamp_and_the_guarantee(tmp_path):
    private = {"privacy": {"epsilon": 2.0, "delta": 1e-6}}
    a_run(tmp_path / "done", method={"name": "bias"}, **private)
    a_run(tmp_path / "open")
    for name, words in (("done", "(2.00, 1e-06)-DP"), ("open", "NON-PRIVATE")):
        answer = tacit("export", name, cwd=tmp_path)
        folder = tmp_path / f"{name}-model"
        promised = json.loads((folder / "guarantee.json").read_text())
        summary = json.loads((tmp_path / name / "summary.json").read_text())
        assert answer.returncode == 0
        assert words in answer.stdout
        assert words in promised["stamp"]
        assert promised["guarantee"] == summary["guarantee"]
        assert promised["scale"] == [1.0, 5.0]
        assert promised["digest"] == summary["digest"]
        assert json.loads(pq.read_schema(folder / "items.parquet").metadata[b"tacit"]) == promised
        assert f"**{promised['stamp']}**" in (folder / "README.md").read_text()


def test_a_run_that_is_missing_unfinished_or_damaged_is_refused(tmp_path):
    refused(tacit("export", "nowhere", cwd=tmp_path), 2, "no run folder")
    refused(tacit("export", ".", cwd=tmp_path), 2, "not a run folder")
    a_run(tmp_path / "done")
    (tmp_path / "done" / "model" / "factors.npz").write_bytes(b"no factors")
    refused(tacit("export", "done", cwd=tmp_path), 6, "was changed")
    (tmp_path / "done" / "summary.json").unlink()
    refused(tacit("export", "done", cwd=tmp_path), 2, "not finished", "--resume")
    assert {path.name for path in tmp_path.iterdir()} == {"done"}


def test_what_is_there_is_never_overwritten(tmp_path):
    a_run(tmp_path / "done")
    (tmp_path / "out").mkdir()
    assert tacit("export", "done", "--out", "out", cwd=tmp_path).returncode == 0  # an empty folder is no loss
    before = (tmp_path / "out" / "guarantee.json").stat().st_mtime_ns
    refused(tacit("export", "done", "--out", "out", cwd=tmp_path), 2, "already exists", "--out")
    assert (tmp_path / "out" / "guarantee.json").stat().st_mtime_ns == before
    (tmp_path / "file").write_text("mine")
    refused(tacit("export", "done", "--out", "file", cwd=tmp_path), 2, "already exists")
    refused(tacit("export", "done", "--out", "file/out", cwd=tmp_path), 2, "cannot be written")
    assert {path.name for path in tmp_path.iterdir()} == {"done", "out", "file"}


def test_a_disk_that_refuses_leaves_nothing_behind(tmp_path, monkeypatch):
    a_run(tmp_path / "done")

    def refuse(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tacit.cli.export.os.replace", refuse)
    refused(tacit("export", "done", "--out", "out", cwd=tmp_path), 2, "No space left on device")
    assert {path.name for path in tmp_path.iterdir()} == {"done"}


def test_user_factors_where_they_belong_to_the_parties_are_not_let_out(tmp_path, monkeypatch):
    """Planted: a model folder that holds what a horizontal run never shares, and that was sealed so."""
    monkeypatch.setattr(import_module("tacit.cli.export"), "check_finished", lambda folder: None)
    a_run(tmp_path / "done")
    model = Model.load(tmp_path / "done")
    planted = {"item_ids": model.item_ids.ids, "items": model.item_factors}
    users = np.ones((30, 3), dtype=np.float32)
    np.savez(tmp_path / "done" / "model" / "factors.npz", states=users, **planted)
    refused(tacit("export", "done", cwd=tmp_path), 4, "stay with the parties")
    assert {path.name for path in tmp_path.iterdir()} == {"done"}
