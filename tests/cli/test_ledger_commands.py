"""`tacit ledger`: every release is shown, every tampering is found and named, and looking changes nothing."""

import csv
import gc
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_cli import process, refused, tacit

from tacit.boundary import ledger as ledgers
from tacit.boundary.account import epsilon
from tacit.boundary.events import Gaussian, Public
from tacit.boundary.ledger import START, Ledger, Row, next_head
from tacit.cli.verified_ledgers import Run
from tacit.guarantee import Relation

RUN = """
[data]
source = "demo"
users = 200
items = 30
ratings = 2000
[partition]
into = 3
[method]
name = "bias"
[privacy]
epsilon = 2
delta = 1e-6
"""
COLUMNS = (
    *("number", "moment", "run", "round", "step", "attempt", "kind", "request", "event", "payload", "size"),
    *("contributors", "present", "state", "head", "seal", "body"),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three runs: `here` with its own ledgers; `first` and `second` with those in `shared`, and `old` between them."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "run.toml").write_text(RUN)
    shared = ("--set", "privacy.ledger=shared", "--set", "privacy.budget=9")
    for name, *changes in (("here",), ("first", *shared), ("second", *shared, "--set", "method.shrinkage=6")):
        answer = tacit("run", "run.toml", "--quiet", "--out", name, *changes, cwd=folder)
        assert answer.returncode == 0, answer.stderr
        if name == "first":
            shutil.copytree(folder / "shared", folder / "old")
    gc.collect()  # a run's log is closed when nobody holds it any more
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of them, to be tampered with."""
    return Path(shutil.copytree(made, tmp_path / "copy"))


def edit(path: Path, *statements: str) -> None:
    """Change a ledger behind its owner's back."""
    with closing(sqlite3.connect(path)) as database:
        for statement in statements:
            database.execute(statement)
        database.commit()


def listing(folder: Path) -> dict[str, tuple[int, int, str]]:
    """Every file and folder below: mode, time of its last change, and hash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        sha = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
        found[str(path.relative_to(folder))] = (path.stat().st_mode, path.stat().st_mtime_ns, sha)
    return found


# -- what is shown --------------------------------------------------------------------------------------------


def test_show_lists_every_release_with_the_epsilon_reached(made):
    answer = tacit("ledger", "show", "here", cwd=made)
    assert answer.returncode == 0, answer.stderr
    for party in ("party-1", "party-2", "party-3"):
        assert f"{party} · here/ledger/{party}.sqlite" in answer.stdout
    lines = answer.stdout.splitlines()
    head = ("no.", "when", "run", "round", "step", "kind", "spent", "bytes", "from", "ε so far", "head")
    assert lines[1].split() == " ".join(head).split()
    assert "contribute" in lines[2]
    assert "Gaussian(count=1, multiplier=" in lines[2]
    assert lines[3].split()[-6:-2] == ["Public()", "24", "1", "party"]
    reading = "The reading for the fixed list of releases: ε = 2.000 at δ = 1e-06 (zero-out)."
    assert answer.stdout.count(f"{reading} The budget that holds: ε = 2 at δ = 1e-06, whatever") == 3


def test_show_as_json_is_one_object_whose_epsilon_is_the_accountants(made):
    table = json.loads(tacit("ledger", "show", "here", "--json", cwd=made).stdout)
    assert (table["delta"], table["relation"]) == (1e-6, "zero-out")
    assert [ledger["party"] for ledger in table["ledgers"]] == ["party-1", "party-2", "party-3"]
    for ledger in table["ledgers"]:
        first, last = ledger["releases"]
        spent = Gaussian(first["event"]["multiplier"])
        assert first["epsilon"] == last["epsilon"] == ledger["epsilon"]
        assert ledger["epsilon"] == epsilon([spent], 1e-6, Relation.ZERO_OUT)
        assert (last["head"], last["devices"]) == (ledger["head"], None)
        assert "state" not in first
        assert "body" not in first


def test_show_takes_a_ledger_a_folder_of_ledgers_and_another_delta(made):
    one = json.loads(tacit("ledger", "show", "here/ledger/party-2.sqlite", "--json", cwd=made).stdout)
    assert [ledger["party"] for ledger in one["ledgers"]] == ["party-2"]
    assert one["delta"] == 1e-6
    several = json.loads(tacit("ledger", "show", "shared", "--delta", "1e-4", "--json", cwd=made).stdout)
    assert len(several["ledgers"]) == 3
    assert several["delta"] == 1e-4
    for delta in ("0", "1", "-1", "nan"):
        refused(tacit("ledger", "show", "here", "--delta", delta, cwd=made), 2, "between 0 and 1")


def test_runs_one_after_another_have_a_reading_for_a_fixed_list_and_a_budget_that_holds(made):
    answer = tacit("ledger", "show", "second", cwd=made)
    assert "4 releases in 2 runs" in answer.stdout
    assert answer.stdout.count("The budget that holds: ε = 9 at δ = 1e-06, whatever the reason for") == 3
    (ledger, *_) = json.loads(tacit("ledger", "show", "second", "--json", cwd=made).stdout)["ledgers"]
    reached = [release["epsilon"] for release in ledger["releases"]]
    events = [Gaussian(release["event"]["multiplier"]) for release in ledger["releases"] if release["kind"] == "sum"]
    assert reached[0] == reached[1] == epsilon(events[:1], 1e-6, Relation.ZERO_OUT)
    assert reached[2] == reached[3] == ledger["reading"] == epsilon(events, 1e-6, Relation.ZERO_OUT)
    assert ledger["budget"] == {"epsilon": 9.0, "delta": 1e-6, "days": None}
    shown = json.loads(tacit("ledger", "show", "shared", "--json", cwd=made).stdout)["ledgers"][0]
    assert shown["budget"] == ledger["budget"]  # by the ledger's own word: no run is named here


def test_a_cohort_shows_how_many_devices_took_part(made, tmp_path):
    changes = ("--set", "partition={by='device'}", "--set", "aggregation.dropout=0.2")
    assert tacit("run", made / "run.toml", "--quiet", "--out", "dev", *changes, cwd=tmp_path).returncode == 0
    (ledger,) = json.loads(tacit("ledger", "show", "dev", "--json", cwd=tmp_path).stdout)["ledgers"]
    contribute, finish = ledger["releases"]
    assert 100 < contribute["devices"] < 200
    assert contribute["devices"] == int(contribute["present"], 16).bit_count()
    assert finish["devices"] == 200
    assert f"{contribute['devices']} devices" in tacit("ledger", "show", "dev", cwd=tmp_path).stdout
    assert tacit("ledger", "verify", "dev", cwd=tmp_path).returncode == 0


# -- export ---------------------------------------------------------------------------------------------------


def test_export_is_json_lines_without_bodies_and_states(made):
    answer = tacit("ledger", "export", "here", cwd=made)
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [(row["party"], row["number"]) for row in rows] == [(f"party-{k}", n) for k in (1, 2, 3) for n in (1, 2)]
    assert all(row.keys().isdisjoint({"body", "state", "seal"}) for row in rows)
    before = START
    for row in rows[:2]:  # whoever holds an export can follow the chain
        event = json.dumps(row["event"], sort_keys=True, separators=(",", ":"))
        assert (before := next_head(before, event, row["request"], row["payload"])) == row["head"]
    with closing(sqlite3.connect(f"{(made / 'here/ledger/party-1.sqlite').as_uri()}?immutable=1", uri=True)) as kept:
        secret = [value for row in kept.execute("select state, seal from releases") for value in row]
    assert not any(value in answer.stdout for value in secret)
    assert json.loads(tacit("ledger", "export", "here", "--json", cwd=made).stdout) == {"rows": rows}


def test_export_writes_what_the_ending_says_once(folder):
    lines = tacit("ledger", "export", "second", cwd=folder).stdout.splitlines()
    for ending in ("jsonl", "csv", "parquet"):
        answer = tacit("ledger", "export", "second", "--out", f"rows.{ending}", cwd=folder)
        assert (answer.returncode, "12 releases of 3 ledgers" in answer.stdout) == (0, True)
    assert (folder / "rows.jsonl").read_text().splitlines() == lines
    with (folder / "rows.csv").open(newline="") as file:
        from_csv = list(csv.DictReader(file))
    from_parquet = pq.read_table(folder / "rows.parquet").to_pylist()
    for line, row, other in zip(lines, from_csv, from_parquet, strict=True):
        kept = json.loads(line)
        assert (row["head"], int(row["size"]), json.loads(row["event"])) == (kept["head"], kept["size"], kept["event"])
        assert {**other, "event": json.loads(other["event"])} == kept
    refused(tacit("ledger", "export", "here", "--out", "rows.csv", cwd=folder), 2, "already exists")
    refused(tacit("ledger", "export", "here", "--out", "rows.txt", cwd=folder), 2, ".jsonl, .csv, .parquet")
    refused(tacit("ledger", "export", "here", "--out", "no/where.csv", cwd=folder), 2, "cannot be written")
    told = json.loads(tacit("ledger", "export", "here", "--out", "x.csv", "--json", cwd=folder).stdout)
    assert told == {"out": "x.csv", "rows": 6, "ledgers": 3}


# -- verify: what is whole ------------------------------------------------------------------------------------


def test_verify_says_one_line_for_each_party(made):
    answer = tacit("ledger", "verify", "second", cwd=made)
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["party-1", "party-2", "party-3"]
    assert all("4 releases, nothing changed, 2 messages of the run found in it" in line for line in lines)
    told = json.loads(tacit("ledger", "verify", "second", "--json", cwd=made).stdout)
    assert told["whole"] is True
    assert [ledger["messages"] for ledger in told["ledgers"]] == [2, 2, 2]
    for place in ("first", "here", "shared", "shared/party-1.sqlite"):
        assert tacit("ledger", "verify", place, cwd=made).returncode == 0


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
def test_sealed_contributions_are_verified_by_their_heads(made, tmp_path, changes, messages, ledgers):
    sets = [word for change in changes for word in ("--set", change)]
    assert tacit("run", made / "run.toml", "--quiet", "--out", "run", *sets, cwd=tmp_path).returncode == 0
    answer = tacit("ledger", "verify", "run", cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count(f", {messages} messages") == ledgers
    assert tacit("ledger", "show", "run", cwd=tmp_path).returncode == 0


def test_a_head_that_was_kept_must_be_in_the_chain(made):
    (ledger, *others) = json.loads(tacit("ledger", "verify", "shared", "--json", cwd=made).stdout)["ledgers"]
    for place in ("shared", ledger["path"]):
        assert tacit("ledger", "verify", place, "--head", ledger["head"].upper(), cwd=made).returncode == 0
    refused(tacit("ledger", "verify", "old", "--head", ledger["head"], cwd=made), 6, "old", "was put back")
    stranger = others[0]["head"]
    refused(tacit("ledger", "verify", ledger["path"], "--head", stranger, cwd=made), 6, "party-1", "cut off")
    for head in ("abc", "", "g" * 64, ledger["head"][:-1]):
        refused(tacit("ledger", "verify", "shared", "--head", head, cwd=made), 2, "64 hexadecimal digits")


def test_a_run_without_privacy_has_nothing_to_verify_and_says_so(made, tmp_path):
    table = RUN.split("[privacy]")[0]
    (tmp_path / "run.toml").write_text(table)
    assert tacit("run", "run.toml", "--quiet", "--out", "open", cwd=tmp_path).returncode == 0
    for command in ("show", "verify"):
        answer = tacit("ledger", command, "open", cwd=tmp_path)
        assert (answer.returncode, "NON-PRIVATE" in answer.stdout) == (0, True)
        assert json.loads(tacit("ledger", command, "open", "--json", cwd=tmp_path).stdout)["ledgers"] == []
    answer = tacit("ledger", "export", "open", "--out", "rows.csv", cwd=tmp_path)
    assert (answer.returncode, answer.stdout, "NON-PRIVATE" in answer.stderr) == (0, "", True)
    assert not (tmp_path / "rows.csv").exists()


def test_what_is_no_ledger_is_bad_usage(folder):
    (folder / "notes.txt").write_text("hello")
    (folder / "empty").mkdir()
    edit(folder / "other.sqlite", "create table t (x)")
    for command in ("show", "verify", "export"):
        for place in ("nowhere", "nowhere.sqlite", "notes.txt", "empty", "other.sqlite", "run.toml"):
            refused(tacit("ledger", command, place, cwd=folder), 2, place.split(".")[0], "name a run folder")
    shutil.rmtree(folder / "shared")
    refused(tacit("ledger", "verify", "second", cwd=folder), 2, "shared", "kept its ledgers there")


def test_looking_changes_nothing(folder):
    before = listing(folder)
    for command in ("show", "verify", "export"):
        for place in ("here", "second", "shared", "shared/party-1.sqlite"):
            assert tacit("ledger", command, place, cwd=folder).returncode == 0
    assert listing(folder) == before


def test_a_ledger_that_cannot_be_written_is_verified_all_the_same(folder):
    paths = [folder / "here" / "ledger", *(folder / "here" / "ledger").iterdir()]
    for path in paths:
        path.chmod(0o500 if path.is_dir() else 0o400)
    before = listing(folder)
    assert process("ledger", "verify", "here", cwd=folder).returncode == 0
    assert listing(folder) == before
    paths[0].chmod(0o700)


def record(ledger: Ledger, round: int, event=Gaussian(9.0), body: bytes = b"body") -> Row:
    sha = hashlib.sha256(f"{ledger.party} {round}".encode()).hexdigest()
    return ledger.record(
        run="r", round=round, step="s", attempt=0, kind="sum", request=sha, event=event, body=body, sealed=False,
        contributors=1, present=None, state=b"state",
    )  # fmt: skip


def test_rows_that_a_writer_has_just_written_are_seen_and_left_where_they_are(tmp_path):
    writer = Ledger(tmp_path / "ann.sqlite", "ann")
    for round in (1, 2):
        record(writer, round)
    assert (tmp_path / "ann.sqlite-wal").stat().st_size > 0
    before = listing(tmp_path)
    answer = tacit("ledger", "verify", "ann.sqlite", "--head", writer.head, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "ann: 2 releases" in answer.stdout
    after = listing(tmp_path)
    assert {n: after[n][2] for n in after if "shm" not in n} == {n: before[n][2] for n in before if "shm" not in n}
    record(writer, 3)
    assert "ann: 3 releases" in tacit("ledger", "verify", tmp_path, cwd=tmp_path).stdout
    writer.close()


def test_an_unfinished_run_is_verified_by_the_coordinators_log(folder):
    for name in ("summary.json", "transcript/messages.parquet"):
        (folder / "second" / name).unlink()
    assert "2 messages" in tacit("ledger", "verify", "second", cwd=folder).stdout
    shutil.copy(folder / "old" / "party-1.sqlite", folder / "shared" / "party-1.sqlite")
    refused(tacit("ledger", "verify", "second", cwd=folder), 6, "party-1", "put back")


# -- verify: tampering ----------------------------------------------------------------------------------------


def changed(column: str, number: int) -> str:
    """An edit of one value of one row that its column's type allows."""
    if column in ("number", "round", "attempt", "size", "contributors"):
        value = f"{column} + 7"
    elif column == "event":
        value = "replace(event, 'multiplier\":2', 'multiplier\":9')" if number == 1 else "event || ' '"
    elif column in ("present", "body"):
        value = f"cast(coalesce({column}, x'') || x'00' as blob)"
    else:
        value = f"{column} || 'x'"
    return f"update releases set {column} = {value} where number = {number}"


EDITS = {f"{column} of release {n}": (changed(column, n),) for column in COLUMNS for n in (1, 4)}
EDITS |= {
    "the first row deleted": ("delete from releases where number = 1",),
    "a middle row deleted": ("delete from releases where number = 2",),
    "a middle row deleted and the others moved up": (
        "delete from releases where number = 2",
        "update releases set number = number - 1 where number > 2",
    ),
    "the last row cut off": ("delete from releases where number = 4",),
    "the last two rows cut off": ("delete from releases where number > 2",),
    "two rows swapped": (
        "update releases set number = -1 where number = 1",
        "update releases set number = 1 where number = 3",
        "update releases set number = 3 where number = -1",
    ),
    "a row added": (
        "insert into releases select 5, moment, run, round, step, attempt, kind, request || 'x', event, payload, size, "
        "contributors, present, state, head, seal, body from releases where number = 4",
    ),
    "a row doubled": (
        "insert into releases select 5, moment, run, round, step, attempt, kind, request, event, payload, size, "
        "contributors, present, state, head, seal, body from releases where number = 4",
    ),
    "the kept bytes removed": ("update releases set body = null",),
    "the state changed": ("update home set state = cast(state || x'00' as blob)",),
    "the state removed": ("delete from home",),
    "the format's name": ("update about set value = 'tacit ledger 2' where name = 'format'",),
    "the party's name": ("update about set value = 'party-9' where name = 'party'",),
    "the beginning": ("update about set value = '2020-01-01T00:00:00+00:00' where name = 'begun'",),
    "names on the first page swapped": (
        "update about set name = 'x' where name = 'party'",
        "update about set name = 'party' where name = 'begun'",
        "update about set name = 'begun' where name = 'x'",
    ),
    "the first schedule": ("update about set value = '[]' where name = 'first'",),
    "the first schedule's name and another swapped": (
        "update about set name = 'x' where name = 'first'",
        "update about set name = 'first' where name = 'begun'",
        "update about set name = 'begun' where name = 'x'",
    ),
    "the first schedule removed": ("delete from about where name = 'first'",),
    "a line added to the first page": ("insert into about values ('note', 'x')",),
    "the first page's seal": ("update about set value = value || 'x' where name = 'seal'",),
    "the first page's seal removed": ("delete from about where name = 'seal'",),
    "a trigger planted": ("create trigger t after insert on releases begin delete from releases; end",),
    "a table planted": ("create table more (x)",),
}


@pytest.mark.parametrize("statements", EDITS.values(), ids=EDITS)
def test_an_edited_ledger_is_found_and_its_party_named(folder, statements):
    edit(folder / "shared" / "party-2.sqlite", *statements)
    for place in ("shared", "second"):  # the ledgers by themselves, and with what the run saw
        answer = tacit("ledger", "verify", place, cwd=folder)
        refused(answer, 6, "party-2")
        assert "party-1" not in answer.stderr
    for command in ("show", "export"):
        refused(tacit("ledger", command, "shared/party-2.sqlite", cwd=folder), 6, "party-2")


def test_every_column_of_every_table_was_tampered_with(made):
    with closing(sqlite3.connect(f"{(made / 'shared/party-2.sqlite').as_uri()}?immutable=1", uri=True)) as database:
        columns = [row[1] for row in database.execute("pragma table_info(releases)")]
        tables = {row[0] for row in database.execute("select name from sqlite_master where type = 'table'")}
    assert tuple(columns) == COLUMNS
    assert tables == {"about", "releases", "home"}


def test_a_verification_that_looks_at_nothing_would_pass_every_edit(made, tmp_path, monkeypatch):
    """Planted: without `Ledger.verify`, none of the edits above is found; it is what finds them."""
    monkeypatch.setattr(Ledger, "verify", lambda self, head=None: len(self.rows()))
    for number, (_name, statements) in enumerate(EDITS.items()):
        (tmp_path / str(number)).mkdir()
        for name in ("party-2.sqlite", "party-2.key"):
            shutil.copy(made / "shared" / name, tmp_path / str(number) / name)
        edit(tmp_path / str(number) / "party-2.sqlite", *statements)
    missed = [n for n in range(len(EDITS)) if tacit("ledger", "verify", str(n), cwd=tmp_path).returncode == 0]
    assert missed == list(range(len(EDITS)))


class Anything(str):
    """Equal to everything: what a check that was left out compares with."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


def resealed(path: Path, *statements: str) -> None:
    """Tampering by somebody who has the key: rows are edited, and sealed anew."""
    edit(path, *statements)
    owner = Ledger(path, path.stem)
    for row in owner.rows():
        seal = owner._seal(*(getattr(row, name) for name in ledgers._ROW.split(", ")))
        owner._database.execute("update releases set seal = ? where number = ?", (seal, row.number))
    owner.close()


def test_the_chain_is_what_finds_an_edit_by_somebody_with_the_key(folder, monkeypatch):
    path = folder / "shared" / "party-2.sqlite"
    cheaper = "update releases set event = replace(event, 'multiplier\":2', 'multiplier\":9') where number = 1"
    resealed(path, cheaper)
    refused(tacit("ledger", "verify", "shared", cwd=folder), 6, "party-2", "release 1 was changed")
    monkeypatch.setattr(ledgers, "next_head", lambda *parts: Anything())
    assert tacit("ledger", "verify", "shared", cwd=folder).returncode == 0  # planted: without the chain, unseen


@pytest.mark.parametrize("column", ["moment", "run", "round", "step", "attempt", "kind", "size", "contributors"])
def test_the_seals_are_what_finds_an_edit_beside_the_chain(folder, monkeypatch, column):
    edit(folder / "shared" / "party-2.sqlite", changed(column, 1))
    refused(tacit("ledger", "verify", "shared", cwd=folder), 6, "party-2", "release 1 was changed")
    monkeypatch.setattr(Ledger, "_seal", lambda self, *values: Anything())
    assert tacit("ledger", "verify", "shared", cwd=folder).returncode == 0  # planted: without seals, unseen


def put_back(folder: Path) -> None:
    shutil.copy(folder / "old" / "party-2.sqlite", folder / "shared" / "party-2.sqlite")


def begin_anew(folder: Path) -> None:
    for name in ("party-2.sqlite", "party-2.key"):
        (folder / "shared" / name).unlink()
    Ledger(folder / "shared" / "party-2.sqlite", "party-2").close()


def rewrite(folder: Path) -> None:
    """The party itself writes a whole new chain, with its own key, in which it spent less."""
    path = folder / "shared" / "party-2.sqlite"
    key = path.with_suffix(".key").read_text()
    with closing(Ledger(path, "party-2")) as ledger:
        rows, home = ledger.rows(), ledger.state()
    path.unlink()
    Ledger(path.with_name("new.sqlite"), "party-2").close()
    path.with_name("new.sqlite").rename(path)
    path.with_name("new.key").unlink()
    path.with_suffix(".key").write_text(key)
    with closing(Ledger(path, "party-2")) as ledger:
        about = {"format": ledgers.FORMAT, "party": "party-2", "begun": ledger._about()["begun"]}
        ledger._database.execute("update about set value = ? where name = 'seal'", (ledger._page_seal(about),))
        for row in rows:
            event = Public() if row.kind == "public" else Gaussian(1e6)
            ledger.record(
                run=row.run, round=row.round, step=row.step, attempt=row.attempt, kind=row.kind, request=row.request,
                event=event, body=b"x" * row.size, sealed=False, contributors=row.contributors, present=row.present,
                state=home,
            )  # fmt: skip


@pytest.mark.parametrize("tampering", [put_back, begin_anew, rewrite])
def test_what_the_run_saw_is_what_finds_a_ledger_that_is_whole_and_wrong(folder, monkeypatch, tampering):
    head = json.loads(tacit("ledger", "verify", "shared/party-2.sqlite", "--json", cwd=folder).stdout)
    tampering(folder)
    assert tacit("ledger", "verify", "shared", cwd=folder).returncode == 0  # by itself nothing is wrong with it
    answer = tacit("ledger", "verify", "second", cwd=folder)
    refused(answer, 6, "party-2", "old ledger was put back")
    assert "party-1" not in answer.stderr
    kept = ("--head", head["ledgers"][0]["head"])
    refused(tacit("ledger", "verify", "shared/party-2.sqlite", *kept, cwd=folder), 6, "party-2", "put back")
    monkeypatch.setattr(Run, "messages", [])
    assert tacit("ledger", "verify", "second", cwd=folder).returncode == 0  # planted: without what left, unseen


def test_the_run_before_still_holds_after_an_old_ledger_was_put_back(folder):
    put_back(folder)
    assert tacit("ledger", "verify", "first", cwd=folder).returncode == 0


def other_key(path: Path) -> None:
    path.with_suffix(".key").write_text("ab" * 32 + "\n")


def anothers_key(path: Path) -> None:
    shutil.copy(path.with_name("party-1.key"), path.with_suffix(".key"))


def no_key(path: Path) -> None:
    path.with_suffix(".key").unlink()


def broken_key(path: Path) -> None:
    path.with_suffix(".key").write_text("not a key")


def no_ledger(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def overwritten(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def torn(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:4096])


def no_tables(path: Path) -> None:
    edit(path, "drop table about")


def anothers_ledger(path: Path) -> None:
    for suffix in (".sqlite", ".key"):
        shutil.copy(path.with_name(f"party-1{suffix}"), path.with_suffix(suffix))


WHOLE_FILES = [other_key, anothers_key, no_key, broken_key, no_ledger, emptied, overwritten, torn, cut, no_tables]


@pytest.mark.parametrize("damage", WHOLE_FILES)
def test_a_damaged_ledger_or_key_is_found_and_its_party_named(folder, damage):
    damage(folder / "shared" / "party-2.sqlite")
    for command, place in (("verify", "shared"), ("verify", "second"), ("show", "second"), ("export", "shared")):
        answer = tacit("ledger", command, place, cwd=folder)
        refused(answer, 6, "party-2")
        assert answer.stderr.count('"shared/') <= 2
    if damage is not no_ledger:
        refused(tacit("ledger", "verify", "shared/party-2.sqlite", cwd=folder), 6, "party-2")


def test_anothers_ledger_under_a_partys_name_is_found(folder):
    anothers_ledger(folder / "here" / "ledger" / "party-2.sqlite")
    refused(tacit("ledger", "verify", "here", cwd=folder), 6, "is that of party-1", "party-2 is gone")


def test_a_run_whose_ledgers_are_gone_altogether_is_found(folder):
    shutil.rmtree(folder / "here" / "ledger")
    refused(tacit("ledger", "verify", "here", cwd=folder), 6, "party-1", "party-2", "party-3", "gone")
    (folder / "here" / "ledger").mkdir()
    run = folder / "here" / "run.toml"
    run.write_text(run.read_text().split("[privacy]")[0])  # as if it had been NON-PRIVATE
    refused(tacit("ledger", "verify", "here", cwd=folder), 6, "party-1", "gone")
    run.unlink()
    refused(tacit("ledger", "verify", "here", cwd=folder), 2, "run.toml")


def test_all_parties_that_were_tampered_with_are_named(folder):
    for party in ("party-1", "party-3"):
        edit(folder / "here" / "ledger" / f"{party}.sqlite", "update releases set moment = '' where number = 1")
    answer = tacit("ledger", "verify", "here", cwd=folder)
    refused(answer, 6, "party-1", "party-3")
    assert "party-2" not in answer.stderr


def rewritten_messages(folder: Path, change) -> None:
    """The transcript, each message changed; and no log that knows better."""
    path = folder / "here" / "transcript" / "messages.parquet"
    for name in ("log.sqlite", "log.key"):
        (folder / "here" / "transcript" / name).unlink()
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist([change(dict(row)) for row in table.to_pylist()], table.schema), path)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("head", "0" * 64, "does not hold what left party-1"),
        ("head", "", "does not hold what left party-1"),
        ("bytes", 1, "differ about what left party-1"),
        ("copies", 2, "differ about what left party-1"),
        ("kind", "chain", "differ about what left party-1"),
        ("digest", "0" * 64, "do not add up to the digest"),
        ("round", 2, "do not add up to the digest"),
        ("status", "lost", "do not add up to the digest"),
    ],
)
def test_a_transcript_that_differs_from_the_ledgers_is_found(folder, column, value, words):
    rewritten_messages(folder, lambda row: row | {column: value} if row["direction"] == "up" else row)
    refused(tacit("ledger", "verify", "here", cwd=folder), 6, words)


def test_a_transcript_that_is_gone_or_damaged_is_found(folder):
    path = folder / "here" / "transcript" / "messages.parquet"
    path.write_bytes(path.read_bytes()[:100])
    refused(tacit("ledger", "verify", "here", cwd=folder), 6, "messages.parquet", "is damaged")
    path.unlink()
    refused(tacit("ledger", "verify", "here", cwd=folder), 6, "messages.parquet", "is gone")
    (folder / "here" / "summary.json").unlink()
    (folder / "here" / "transcript" / "log.sqlite").write_bytes(os.urandom(4096))
    refused(tacit("ledger", "verify", "here", cwd=folder), 6, "log.sqlite", "is damaged")


def test_rows_beyond_what_arrived_are_no_fault(folder):
    """A release that was charged and then lost on its way stays charged."""
    path = folder / "here" / "ledger" / "party-1.sqlite"
    with closing(Ledger(path, "party-1")) as ledger:
        record(ledger, 2)
    answer = tacit("ledger", "verify", "here", cwd=folder)
    assert answer.returncode == 0, answer.stderr
    assert "party-1: 3 releases, nothing changed, 2 messages" in answer.stdout


# -- the command line -----------------------------------------------------------------------------------------


def test_help_names_the_commands_and_loads_nothing_heavy():
    code = (
        "import sys; from typer.testing import CliRunner; from tacit.cli import app\n"
        "answer = CliRunner().invoke(app, ['--help']); assert answer.exit_code == 0; print(answer.stdout)\n"
        "print([name for name in ('numpy', 'pyarrow', 'scipy', 'sqlite3') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(word in answer.stdout for word in ("plan", "explain", "ledger", "export"))
    assert answer.stdout.splitlines()[-1] == "[]"


def test_tampering_has_its_exit_code_in_a_process_of_its_own(folder):
    assert process("ledger", "verify", "here", cwd=folder).returncode == 0
    edit(folder / "here" / "ledger" / "party-1.sqlite", "update home set state = x'00'")
    refused(process("ledger", "verify", "here", cwd=folder), 6, "party-1", "state")


def test_explain_answers_here_too(tmp_path):
    assert json.loads(tacit("explain", "1", "1e-6", "--json", cwd=tmp_path).stdout)["epsilon"] == 1
