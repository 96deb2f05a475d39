"""A run file in, a run folder out."""

import json
import stat

import numpy as np
import pyarrow.parquet as pq
import pytest

from tacit.config import RunFile
from tacit.data.synthetic import demo
from tacit.errors import UsageError
from tacit.experiment import run
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare.loaded import prepare
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train, with_newcomers

DATA = {"source": "demo", "users": 60, "items": 40, "ratings": 900}
METHOD = {"name": "sgdmf", "factors": 4, "rounds": 3, "local_steps": 2}


def file(**sections) -> RunFile:
    return RunFile.model_validate({"data": DATA, "partition": {"by": "user", "into": 3}, "method": METHOD, **sections})


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One finished run: its folder and its summary."""
    folder = tmp_path_factory.mktemp("done") / "run"
    return folder, run(file(engine={"transcript": "full"}), folder)


def test_the_folder_holds_everything_and_is_for_its_owner_only(done):
    folder, summary = done
    names = {p.name for p in folder.iterdir()}
    assert names >= {"run.toml", "summary.json", "metrics.parquet", "ledger", "transcript", "model", "card.md"}
    assert "report.html" in names
    assert not any(name.endswith(".part") for name in names)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert RunFile.read(folder / "run.toml") == file(engine={"transcript": "full"})


def test_the_resolved_file_gives_the_same_run_again_and_nothing_is_overwritten(done, tmp_path):
    folder, first = done
    again = run(RunFile.read(folder / "run.toml"), tmp_path / "again")
    assert (first["digest"], first["metrics"]) == (again["digest"], again["metrics"])
    with pytest.raises(UsageError, match="finished run"):
        run(file(), folder)


def test_metrics_are_stored_per_round_and_per_user(done):
    folder, summary = done
    table = pq.read_table(folder / "metrics.parquet").to_pylist()
    rounds = [row for row in table if row["scope"] == "round"]
    assert [row["round"] for row in rounds] == [1, 2, 3]
    assert len({row["user"] for row in table if row["scope"] == "user" and row["metric"] == "mse"}) > 30
    assert rounds[-1]["value"] == pytest.approx(summary["metrics"]["mse"], rel=1e-5)  # nothing is tuned at home


def test_messages_add_up_to_the_summary_and_payloads_are_stored_on_request(done, tmp_path):
    folder, summary = done
    messages = pq.read_table(folder / "transcript" / "messages.parquet").to_pylist()
    for direction in ("up", "down"):
        assert summary[f"bytes_{direction}"] == sum(m["bytes"] for m in messages if m["direction"] == direction)
    assert len(list((folder / "transcript" / "payloads").iterdir())) == 4 * (1 + 3)
    run(file(), tmp_path / "digests")
    assert not (tmp_path / "digests" / "transcript" / "payloads").exists()


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(UsageError, match="not a run folder"):
        run(file(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["letters.txt"]


def test_two_runs_in_one_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(file())["run"] != run(file())["run"]


def test_users_held_out_are_folded_in_from_their_support():
    table = {"split": {"by": "cold-users", "test": 0.2}, "partition": {"into": 4}, "method": {"name": "sgdmf"}}
    prepared = prepare(RunFile.model_validate({"data": {"source": "demo"}, **table}))
    trained = train(prepared.run, prepared.parties)
    test = prepared.test
    errors = {}
    for name, predictor in (("folded", with_newcomers(trained, prepared.support, 1000)), ("plain", trained.predictor)):
        errors[name] = np.mean((predictor.predict(test.users, test.items) - test.values) ** 2)
    assert errors["folded"] < 0.85 * errors["plain"]


def test_seventy_thousand_devices_are_one_party():
    ratings = demo(users=70_000, items=200, ratings=400_000)
    method, parameters = chosen({"name": "sgdmf", "factors": 4, "rounds": 2})
    parties = partition(ratings, by="device")
    trained = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties)
    assert len(trained.parties) == 1
    assert trained.transcript.entries[0].copies == 70_000


def test_implicit_data_runs_with_a_method_that_ranks(tmp_path):
    summary = run(file(data={**DATA, "feedback": "implicit"}, method={"name": "popularity"}), tmp_path / "run")
    assert "mse" not in summary["metrics"]
    assert 0 < summary["metrics"]["hr@10"] <= 1


@pytest.mark.parametrize("by", ["random", "leave-one-out", "latest", "temporal", "cold-users", "cold-items"])
def test_every_split_makes_a_run(by, tmp_path):
    summary = run(file(split={"by": by, "test": 0.2}), tmp_path / "run")
    assert np.isfinite(summary["metrics"]["mse"])


@pytest.mark.parametrize("by", ["user", "item", "device", "group", "zip1", "genre", "gender"])
def test_every_partition_makes_a_run(by, tmp_path):
    method = {"name": "sgdmf", "factors": 4, "rounds": 3} if by == "device" else METHOD
    summary = run(file(partition={"by": by}, method=method), tmp_path / "run")
    settings = {"item": "vertical", "genre": "vertical", "device": "device"}
    assert summary["setting"] == settings.get(by, "horizontal")
    assert summary["bytes_up"] > 0


def test_a_password_in_the_source_is_not_kept(tmp_path):
    from tacit.report.folder import RunFolder

    address = "postgresql://ward:sesame@db.example/records"
    secret = file(data={"source": address, "query": "select 1"})
    with RunFolder.make(tmp_path / "run", "sgdmf", secret) as folder:
        assert "sesame" not in (tmp_path / "run" / "run.toml").read_text()
        assert folder.belongs_to(secret)
        assert not folder.belongs_to(file())
