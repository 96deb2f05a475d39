"""`tacit ledger`: every release is shown, exported and verified, and looking changes nothing."""

import csv
import hashlib
import json
import shutil
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from ledger_runs import RUN, as_json, edit, record, values
from test_cli import process, refused, tacit

from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import START, Ledger, next_head
from tacit.guarantee import Relation

PARTIES = ["party-1", "party-2", "party-3"]


def listing(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file and folder below: mode, time of its last change, and hash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        sha = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (path.stat().st_mode, path.stat().st_mtime_ns, sha)
    return found


# -- show -----------------------------------------------------------------------------------------------------


def test_show_lists_every_release_with_the_epsilon_reached(private_runs):
    answer = tacit("ledger", "show", "here", cwd=private_runs)
    assert answer.returncode == 0, answer.stderr
    assert all(f"{party} · here/ledger/{party}.sqlite" in answer.stdout for party in PARTIES)
    _title, head, first, last, *_ = answer.stdout.splitlines()
    assert " ".join(head.split()) == "no. when run round step kind spent bytes from ε so far head"
    assert "contribute" in first
    assert "Gaussian(count=1, multiplier=" in first
    assert last.split()[-6:-2] == ["Public()", "24", "1", "party"]
    reading = "The reading for the fixed list of releases: ε = 2.000 at δ = 1e-06 (zero-out)."
    assert answer.stdout.count(f"{reading} The budget that holds: ε = 2 at δ = 1e-06") == 3


def test_show_as_json_has_the_accountants_epsilon(private_runs):
    table = as_json("show", "here", cwd=private_runs)
    assert (table["delta"], table["relation"]) == (1e-6, "zero-out")
    assert [ledger["party"] for ledger in table["ledgers"]] == PARTIES
    for ledger in table["ledgers"]:
        first, last = ledger["releases"]
        spent = Gaussian(first["event"]["multiplier"])
        assert first["epsilon"] == last["epsilon"] == ledger["epsilon"] == epsilon([spent], 1e-6, Relation.ZERO_OUT)
        assert (last["head"], last["devices"]) == (ledger["head"], None)
        assert first.keys().isdisjoint({"state", "body"})


def test_show_takes_a_ledger_a_folder_of_ledgers_and_another_delta(private_runs):
    one = as_json("show", "here/ledger/party-2.sqlite", cwd=private_runs)
    assert ([ledger["party"] for ledger in one["ledgers"]], one["delta"]) == (["party-2"], 1e-6)
    several = as_json("show", "shared", "--delta", "1e-4", cwd=private_runs)
    assert (len(several["ledgers"]), several["delta"]) == (3, 1e-4)
    for delta in ("0", "1", "-1", "nan"):
        refused(tacit("ledger", "show", "here", "--delta", delta, cwd=private_runs), 2, "between 0 and 1")


def test_runs_one_after_another_have_a_reading_for_a_fixed_list_and_a_budget_that_holds(private_runs):
    answer = tacit("ledger", "show", "second", cwd=private_runs)
    assert "4 releases in 2 runs" in answer.stdout
    assert answer.stdout.count("The budget that holds: ε = 9 at δ = 1e-06") == 3
    ledger = as_json("show", "second", cwd=private_runs)["ledgers"][0]
    reached = [release["epsilon"] for release in ledger["releases"]]
    events = [Gaussian(release["event"]["multiplier"]) for release in ledger["releases"] if release["kind"] == "sum"]
    assert reached[0] == reached[1] == epsilon(events[:1], 1e-6, Relation.ZERO_OUT)
    assert reached[2] == reached[3] == ledger["reading"] == epsilon(events, 1e-6, Relation.ZERO_OUT)
    assert ledger["budget"] == {"epsilon": 9.0, "delta": 1e-6, "days": None}
    kept = as_json("show", "shared", cwd=private_runs)["ledgers"][0]
    assert kept["budget"] == ledger["budget"]  # the ledger itself has it


def test_a_cohort_shows_how_many_devices_took_part(private_runs, tmp_path):
    changes = ("--set", "partition={by='device'}", "--set", "aggregation.dropout=0.2")
    assert tacit("run", private_runs / "run.toml", "--quiet", "--out", "dev", *changes, cwd=tmp_path).returncode == 0
    contribute, finish = as_json("show", "dev", cwd=tmp_path)["ledgers"][0]["releases"]
    assert 100 < contribute["devices"] == int(contribute["present"], 16).bit_count() < 200
    assert finish["devices"] == 200
    assert f"{contribute['devices']} devices" in tacit("ledger", "show", "dev", cwd=tmp_path).stdout
    assert tacit("ledger", "verify", "dev", cwd=tmp_path).returncode == 0


# -- export ---------------------------------------------------------------------------------------------------


def test_export_is_json_lines_whose_chain_can_be_followed_without_secrets(private_runs):
    answer = tacit("ledger", "export", "here", cwd=private_runs)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(row["party"], row["number"]) for row in rows] == [(party, n) for party in PARTIES for n in (1, 2)]
    assert all(row.keys().isdisjoint({"body", "state", "seal"}) for row in rows)
    before = START
    for row in rows[:2]:
        event = json.dumps(row["event"], sort_keys=True, separators=(",", ":"))
        assert (before := next_head(before, event, row["request"], row["payload"])) == row["head"]
    secrets = values(private_runs / "here/ledger/party-1.sqlite", "select state, seal from releases")
    assert not any(value in answer.stdout for row in secrets for value in row)
    assert as_json("export", "here", cwd=private_runs) == {"rows": rows}


def test_export_writes_the_format_of_the_ending_once(copied):
    lines = tacit("ledger", "export", "second", cwd=copied).stdout.splitlines()
    for ending in ("jsonl", "csv", "parquet"):
        answer = tacit("ledger", "export", "second", "--out", f"rows.{ending}", cwd=copied)
        assert (answer.returncode, "12 releases of 3 ledgers" in answer.stdout) == (0, True)
    assert (copied / "rows.jsonl").read_text().splitlines() == lines
    with (copied / "rows.csv").open(newline="") as file:
        from_csv = list(csv.DictReader(file))
    from_parquet = pq.read_table(copied / "rows.parquet").to_pylist()
    for line, row, other in zip(lines, from_csv, from_parquet, strict=True):
        kept = json.loads(line)
        assert (row["head"], int(row["size"]), json.loads(row["event"])) == (kept["head"], kept["size"], kept["event"])
        assert {**other, "event": json.loads(other["event"])} == kept
    for out, words in (("rows.csv", "exists"), ("rows.txt", ".jsonl, .csv, .parquet"), ("no/where.csv", "be written")):
        refused(tacit("ledger", "export", "here", "--out", out, cwd=copied), 2, words)
    assert as_json("export", "here", "--out", "x.csv", cwd=copied) == {"out": "x.csv", "rows": 6, "ledgers": 3}


# -- verify ---------------------------------------------------------------------------------------------------


def test_verify_prints_one_line_for_each_party(private_runs):
    answer = tacit("ledger", "verify", "second", cwd=private_runs)
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == PARTIES
    assert all("4 releases, nothing changed, 2 messages of the run found in it" in line for line in lines)
    table = as_json("verify", "second", cwd=private_runs)
    assert table["whole"] is True
    assert [ledger["messages"] for ledger in table["ledgers"]] == [2, 2, 2]


@pytest.mark.parametrize(
    ("changes", "messages", "ledgers"),
    [
        (("aggregation.name=ideal",), 2, 3),
        (("aggregation.name=secagg",), 6, 3),  # four exchanges, the contribution, and "finish"
        (("aggregation.name=secagg", "partition={by='device'}"), 2, 1),
        (("aggregation.name=shuffle", "partition={by='device'}", "method={name='gd-dr', rounds=2}"), 3, 1),
    ],
    ids=["ideal", "secagg", "devices", "reports"],
)
def test_sealed_contributions_are_verified_by_their_heads(private_runs, tmp_path, changes, messages, ledgers):
    sets = [word for change in changes for word in ("--set", change)]
    assert tacit("run", private_runs / "run.toml", "--quiet", "--out", "run", *sets, cwd=tmp_path).returncode == 0
    answer = tacit("ledger", "verify", "run", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count(f", {messages} messages") == ledgers
    assert tacit("ledger", "show", "run", cwd=tmp_path).returncode == 0


def test_a_head_that_was_noted_must_be_in_the_chain(private_runs):
    ledger, other, _third = as_json("verify", "shared", cwd=private_runs)["ledgers"]
    for place in ("shared", ledger["path"]):
        assert tacit("ledger", "verify", place, "--head", ledger["head"].upper(), cwd=private_runs).returncode == 0
    refused(tacit("ledger", "verify", "old", "--head", ledger["head"], cwd=private_runs), 6, "old", "was put back")
    cut = tacit("ledger", "verify", ledger["path"], "--head", other["head"], cwd=private_runs)
    refused(cut, 6, "party-1", "cut off")
    for head in ("abc", "", "g" * 64, ledger["head"][:-1]):
        refused(tacit("ledger", "verify", "shared", "--head", head, cwd=private_runs), 2, "64 hexadecimal digits")


def test_a_run_without_privacy_has_no_ledgers(tmp_path):
    (tmp_path / "run.toml").write_text(RUN.split("[privacy]")[0])
    assert tacit("run", "run.toml", "--quiet", "--out", "open", cwd=tmp_path).returncode == 0
    for command in ("show", "verify"):
        answer = tacit("ledger", command, "open", cwd=tmp_path)
        assert (answer.returncode, "NON-PRIVATE" in answer.stdout) == (0, True)
        assert as_json(command, "open", cwd=tmp_path)["ledgers"] == []
    answer = tacit("ledger", "export", "open", "--out", "rows.csv", cwd=tmp_path)
    assert (answer.returncode, answer.stdout, "NON-PRIVATE" in answer.stderr) == (0, "", True)
    assert not (tmp_path / "rows.csv").exists()


def test_what_is_not_a_ledger_is_bad_usage(copied):
    (copied / "notes.txt").write_text("hello")
    (copied / "empty").mkdir()
    edit(copied / "other.sqlite", "create table t (x)")
    for command in ("show", "verify", "export"):
        for place in ("nowhere", "nowhere.sqlite", "notes.txt", "empty", "other.sqlite", "run.toml"):
            refused(tacit("ledger", command, place, cwd=copied), 2, place.split(".")[0], "name a run folder")
    shutil.rmtree(copied / "shared")
    refused(tacit("ledger", "verify", "second", cwd=copied), 2, "shared", "ledgers")


def test_looking_changes_nothing_even_where_nothing_may_be_written(copied):
    ledgers = [copied / "here" / "ledger", *(copied / "here" / "ledger").iterdir()]
    for path in ledgers:
        path.chmod(0o500 if path.is_dir() else 0o400)
    before = listing(copied)
    for command in ("show", "verify", "export"):
        for place in ("here", "second", "shared", "shared/party-1.sqlite"):
            assert tacit("ledger", command, place, cwd=copied).returncode == 0
    assert process("ledger", "verify", "here", cwd=copied).returncode == 0
    assert listing(copied) == before
    ledgers[0].chmod(0o700)


def test_rows_that_a_writer_has_just_written_are_seen_and_left_where_they_are(tmp_path):
    writer = Ledger(tmp_path / "ann.sqlite", "ann")
    for round in (1, 2):
        record(writer, round)
    assert (tmp_path / "ann.sqlite-wal").stat().st_size > 0
    before = {name: kept[2] for name, kept in listing(tmp_path).items() if "shm" not in name}
    answer = tacit("ledger", "verify", "ann.sqlite", "--head", writer.head, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "ann: 2 releases" in answer.stdout
    assert {name: kept[2] for name, kept in listing(tmp_path).items() if "shm" not in name} == before
    record(writer, 3)
    assert "ann: 3 releases" in tacit("ledger", "verify", tmp_path, cwd=tmp_path).stdout
    writer.close()


def test_a_release_that_was_charged_and_lost_on_its_way_is_no_fault(copied):
    with closing(Ledger(copied / "here" / "ledger" / "party-1.sqlite", "party-1")) as ledger:
        record(ledger, 2)
    answer = tacit("ledger", "verify", "here", cwd=copied)
    assert answer.returncode == 0, answer.stderr
    assert "party-1: 3 releases, nothing changed, 2 messages" in answer.stdout
