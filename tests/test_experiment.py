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


def test_the_folder_holds_everything_and_is_for_its_owner_only(tmp_path):
    folder = tmp_path / "run"
    summary = run(file(), folder)
    names = {p.name for p in folder.iterdir()}
    assert {
        "run.toml",
        "summary.json",
        "metrics.parquet",
        "ledger",
        "transcript",
        "model",
        "card.md",
        "report.html",
    } <= names
    assert not any(name.endswith(".part") for name in names)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert RunFile.read(folder / "run.toml") == file()


def test_the_resolved_file_gives_the_same_run_again(tmp_path):
    first = run(file(), tmp_path / "first")
    second = run(RunFile.read(tmp_path / "first" / "run.toml"), tmp_path / "second")
    assert first["digest"] == second["digest"]
    assert first["metrics"] == second["metrics"]


def test_metrics_are_kept_per_round_and_per_user(tmp_path):
    run(file(), tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "metrics.parquet").to_pylist()
    rounds = [row["round"] for row in table if row["scope"] == "round"]
    users = {row["user"] for row in table if row["scope"] == "user" and row["metric"] == "mse"}
    assert rounds == [1, 2, 3]
    assert len(users) > 30


def test_the_last_round_is_the_final_model_where_nothing_is_tuned_at_home(tmp_path):
    summary = run(file(), tmp_path / "run")
    table = pq.read_table(tmp_path / "run" / "metrics.parquet").to_pylist()
    last = [row["value"] for row in table if row["scope"] == "round"][-1]
    assert last == pytest.approx(summary["metrics"]["mse"], rel=1e-5)


def test_messages_add_up_to_the_summary(tmp_path):
    summary = run(file(), tmp_path / "run")
    messages = pq.read_table(tmp_path / "run" / "transcript" / "messages.parquet").to_pylist()
    for direction in ("up", "down"):
        assert summary[f"bytes_{direction}"] == sum(m["bytes"] for m in messages if m["direction"] == direction)


def test_payloads_are_kept_when_asked_for(tmp_path):
    run(file(engine={"transcript": "full"}), tmp_path / "full")
    run(file(), tmp_path / "digests")
    assert len(list((tmp_path / "full" / "transcript" / "payloads").iterdir())) == 4 * (1 + 3)
    assert not (tmp_path / "digests" / "transcript" / "payloads").exists()


def test_a_finished_run_is_not_overwritten(tmp_path):
    run(file(), tmp_path / "run")
    with pytest.raises(UsageError, match="finished run"):
        run(file(), tmp_path / "run")


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(UsageError, match="not a run folder"):
        run(file(), tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["letters.txt"]


def test_two_runs_in_one_second_get_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(file())["run"] != run(file())["run"]


def test_users_held_out_are_folded_in_from_their_support():
    prepared = prepare(
        RunFile.model_validate(
            {
                "data": {"source": "demo"},
                "split": {"by": "cold-users", "test": 0.2},
                "partition": {"into": 4},
                "method": {"name": "sgdmf"},
            }
        )
    )
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
