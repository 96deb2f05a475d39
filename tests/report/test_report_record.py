"""A run folder, read back."""

import pytest
from fake_run import GUARANTEE, SUMMARY, three_rounds, write_run

from tacit.errors import UsageError
from tacit.report import RunRecord, readings
from tacit.report.folder import PARTS


def test_a_folder_that_is_missing_or_no_run_says_what_to_name(tmp_path):
    with pytest.raises(UsageError, match="no run folder"):
        RunRecord.read(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"not a run folder.*run\.toml"):
        RunRecord.read(tmp_path)


@pytest.mark.parametrize("part", [p for p in PARTS if p != "run.toml"])
def test_an_unfinished_run_says_how_to_finish_it(tmp_path, part):
    folder = write_run(tmp_path / "run")
    (folder / part).unlink()
    with pytest.raises(UsageError, match=rf"not finished.*{part}.*--resume"):
        RunRecord.read(folder)


@pytest.mark.parametrize("name", ["summary.json", "about.json"])
@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "{}", "\x00"])
def test_a_damaged_file_is_named_in_one_sentence(tmp_path, name, text):
    folder = write_run(tmp_path / "run")
    (folder / name).write_text(text)
    with pytest.raises(UsageError, match=rf"{name}.*cannot be read") as caught:
        RunRecord.read(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("part", ["metrics.parquet", "transcript/messages.parquet"])
def test_a_damaged_table_is_named_when_it_is_read(tmp_path, part):
    folder = write_run(tmp_path / "run")
    (folder / part).write_bytes(b"no table")
    record = RunRecord.read(folder)
    with pytest.raises(UsageError, match="is not the table that a run writes"):
        _ = record.metrics, record.messages


@pytest.mark.parametrize("key", sorted(GUARANTEE))
def test_a_guarantee_that_lacks_a_word_is_refused(tmp_path, key):
    stated = {k: v for k, v in GUARANTEE.items() if k != key}
    with pytest.raises(UsageError, match=f"guarantee.{key}"):
        RunRecord.read(write_run(tmp_path / "run", summary={"guarantee": stated}))


def test_what_was_written_is_what_is_read(tmp_path):
    record = RunRecord.read(write_run(tmp_path / "run"))
    assert record.summary.metrics == SUMMARY["metrics"]
    assert record.name == "run"
    assert record.run_file.seed == 7
    rounds, values = record.per_round("mse")
    assert rounds.tolist() == [1, 2, 3]
    assert values.tolist() == [1.2, 0.9, 0.7601]
    ids, errors = record.per_user("mse")
    assert (ids[0], len(ids)) == ("u0", 40)
    assert errors[-1] == pytest.approx(1.4)
    assert record.scope_metrics("round") == ["mse"]


def test_traffic_adds_up_in_every_direction(tmp_path):
    record = RunRecord.read(write_run(tmp_path / "run"))
    assert readings.transcript_totals(record) == (6600, 6000)
    assert [(row.title, row.up, row.down) for row in readings.by_party(record)] == [
        ("North (party-1)", 3300, 3000),
        ("South (party-2)", 3300, 3000),
    ]
    moved = readings.by_round(record)
    assert moved.rounds.tolist() == [1, 2, 3]
    assert moved.up.sum() == 6600
    assert moved.down.sum() == 6000
    assert [(s.step, s.answered, s.up) for s in readings.by_step(record)] == [("improve", 6, 6600), ("finish", 2, 0)]


def test_lost_and_late_answers_are_counted_apart(tmp_path):
    rows = [*three_rounds(), (5, 3, "improve", "party-1", "up", "chain", 0, 0, "", "lost")]
    rows.append((5, 3, "improve", "party-2", "up", "chain", 500, 7, "ee", "late"))
    record = RunRecord.read(write_run(tmp_path / "run", messages=rows))
    assert readings.troubles(record) == {"late": 7, "lost": 1}
    assert readings.transcript_totals(record)[0] == 7100
    assert readings.transcript_totals(record, arrived_only=True)[0] == 6600


def test_steps_beyond_the_colours_are_put_together(tmp_path):
    rows = [(k, 1, f"step-{k}", "party-1", "up", "sum", 100 + k, 1, "", "ok") for k in range(9)]
    record = RunRecord.read(write_run(tmp_path / "run", messages=rows))
    moved = readings.few_steps(readings.by_round(record), 6)
    assert moved.steps[-1] == "other steps"
    assert len(moved.steps) == 6
    assert moved.up.sum() == sum(100 + k for k in range(9))


def test_passwords_do_not_survive_reading(tmp_path):
    source = "postgresql://ann:s3cret@db/shop"
    about = {"notes": [f'read from "{source}"', "password=s3cret\\"]}
    folder = write_run(tmp_path / "run", about=about, run=f'[data]\nsource = "{source}"\n')
    record = RunRecord.read(folder)
    assert "s3cret" not in record.run_text
    assert "s3cret" not in record.about.model_dump_json()
