"""`tacit ledger verify`: every tampering is found, its party is named, and what finds it is known."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_runs import as_json, edit, values
from test_cli import process, refused, tacit

from tacit.boundary import ledger as ledgers
from tacit.boundary.events import Gaussian, Public
from tacit.boundary.ledger import Ledger
from tacit.cli.verified_ledgers import Run

COLUMNS = (
    *("number", "moment", "run", "round", "step", "attempt", "kind", "request", "event", "payload", "size"),
    *("contributors", "present", "state", "head", "seal", "body"),
)
VALUES = {name: f"{name} + 7" for name in ("number", "round", "attempt", "size", "contributors")}
VALUES |= {name: f"cast(coalesce({name}, x'') || x'00' as blob)" for name in ("present", "body")}
COPY = f"insert into releases select 5, {', '.join(COLUMNS[1:])} from releases where number = 4"


def changed(column: str, number: int) -> str:
    """An edit of one value of one row that its column's type allows."""
    value = VALUES.get(column, f"{column} || 'x'")
    if column == "event":
        value = "replace(event, 'multiplier\":2', 'multiplier\":9')" if number == 1 else "event || ' '"
    return f"update releases set {column} = {value} where number = {number}"


EDITS = {f"{column} of release {n}": [changed(column, n)] for column in COLUMNS for n in (1, 4)}
EDITS |= {
    "a middle row deleted": [
        "delete from releases where number = 2",
        "update releases set number = 2 where number = 3",
    ],
    "the last two rows cut off": ["delete from releases where number > 2"],
    "two rows swapped": [
        f"update releases set number = {new} where number = {old}" for old, new in ((1, -1), (3, 1), (-1, 3))
    ],
    "a row added": [COPY.replace("request,", "request || 'x',")],
    "a row doubled": [COPY],
    "the state changed": ["update home set state = cast(state || x'00' as blob)"],
    "the party's name": ["update about set value = 'party-9' where name = 'party'"],
    "the first schedule": ["update about set value = '[]' where name = 'first'"],
    "facts swapped": [
        f"update about set name = '{new}' where name = '{old}'"
        for old, new in (("party", "x"), ("begun", "party"), ("x", "begun"))
    ],
    "the first page's seal removed": ["delete from about where name = 'seal'"],
    "a line added to the first page": ["insert into about values ('note', 'x')"],
    "a trigger planted": ["create trigger t after insert on releases begin delete from releases; end"],
    "a table planted": ["create table more (x)"],
}


@pytest.mark.parametrize("statements", EDITS.values(), ids=EDITS)
def test_an_edited_ledger_is_found_and_its_party_named(copied, statements):
    edit(copied / "shared" / "party-2.sqlite", *statements)
    for place in ("shared", "second"):  # the ledgers by themselves, and with what the run saw
        answer = tacit("ledger", "verify", place, cwd=copied)
        refused(answer, 6, "party-2")
        assert "party-1" not in answer.stderr
    for command in ("show", "export"):
        refused(tacit("ledger", command, "shared/party-2.sqlite", cwd=copied), 6, "party-2")


def test_every_column_of_every_table_was_tampered_with(private_runs):
    path = private_runs / "shared" / "party-2.sqlite"
    assert tuple(row[1] for row in values(path, "pragma table_info(releases)")) == COLUMNS
    tables = values(path, "select name from sqlite_master where type = 'table'")
    assert {row[0] for row in tables} == {"about", "releases", "home"}


def test_a_verification_that_looks_at_nothing_would_pass_every_edit(private_runs, tmp_path, monkeypatch):
    """Planted: without `Ledger.verify`, none of the edits above is found; it is what finds them."""
    monkeypatch.setattr(Ledger, "verify", lambda self, head=None: len(self.rows()))
    for number, statements in enumerate(EDITS.values()):
        (tmp_path / str(number)).mkdir()
        for name in ("party-2.sqlite", "party-2.key"):
            shutil.copy(private_runs / "shared" / name, tmp_path / str(number) / name)
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


def test_the_chain_is_what_finds_an_edit_by_someone_with_the_key(copied, monkeypatch):
    path = copied / "shared" / "party-2.sqlite"
    edit(path, changed("event", 1))
    owner = Ledger(path, path.stem)
    for row in owner.rows():
        seal = owner._seal(*(getattr(row, name) for name in ledgers._ROW.split(", ")))
        owner._database.execute("update releases set seal = ? where number = ?", (seal, row.number))
    owner.close()
    refused(tacit("ledger", "verify", "shared", cwd=copied), 6, "party-2", "release 1 was changed")
    monkeypatch.setattr(ledgers, "next_head", lambda *parts: Anything())
    assert tacit("ledger", "verify", "shared", cwd=copied).returncode == 0  # planted: without the chain, unseen


@pytest.mark.parametrize("column", ["moment", "run", "round", "step", "attempt", "kind", "size", "contributors"])
def test_the_seals_are_what_finds_an_edit_outside_the_chain(copied, monkeypatch, column):
    edit(copied / "shared" / "party-2.sqlite", changed(column, 1))
    refused(tacit("ledger", "verify", "shared", cwd=copied), 6, "party-2", "release 1 was changed")
    monkeypatch.setattr(Ledger, "_seal", lambda self, *values: Anything())
    assert tacit("ledger", "verify", "shared", cwd=copied).returncode == 0  # planted: without seals, unseen


# -- ledgers that are whole, and not the right ones -----------------------------------------------------------


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
    same = ("run", "round", "step", "attempt", "kind", "request", "contributors", "present")
    with closing(Ledger(path, "party-2")) as ledger:
        about = {"format": ledgers.FORMAT, "party": "party-2", "begun": ledger._about()["begun"]}
        ledger._database.execute("update about set value = ? where name = 'seal'", (ledger._page_seal(about),))
        for row in rows:
            event, kept = Public() if row.kind == "public" else Gaussian(1e6), {k: getattr(row, k) for k in same}
            ledger.record(**kept, event=event, body=b"x" * row.size, sealed=False, state=home)


@pytest.mark.parametrize("tampering", [put_back, begin_anew, rewrite])
def test_what_the_run_saw_is_what_finds_a_ledger_that_is_whole_and_wrong(copied, monkeypatch, tampering):
    (before,) = as_json("verify", "shared/party-2.sqlite", cwd=copied)["ledgers"]
    tampering(copied)
    assert tacit("ledger", "verify", "shared", cwd=copied).returncode == 0  # by itself nothing is wrong with it
    answer = tacit("ledger", "verify", "second", cwd=copied)
    refused(answer, 6, "party-2", "old ledger was put back")
    assert "party-1" not in answer.stderr
    head = ("--head", before["head"])
    refused(tacit("ledger", "verify", "shared/party-2.sqlite", *head, cwd=copied), 6, "party-2", "put back")
    assert (tacit("ledger", "verify", "first", cwd=copied).returncode == 0) == (tampering is put_back)
    monkeypatch.setattr(Run, "messages", [])
    assert tacit("ledger", "verify", "second", cwd=copied).returncode == 0  # planted: without what left, unseen


def test_an_unfinished_run_is_verified_by_the_coordinators_log(copied):
    for name in ("summary.json", "transcript/messages.parquet"):
        (copied / "second" / name).unlink()
    assert "2 messages" in tacit("ledger", "verify", "second", cwd=copied).stdout
    put_back(copied)
    refused(tacit("ledger", "verify", "second", cwd=copied), 6, "party-2", "put back")


DAMAGES = {
    "another key": lambda path: path.with_suffix(".key").write_text("ab" * 32 + "\n"),
    "no key": lambda path: path.with_suffix(".key").unlink(),
    "a broken key": lambda path: path.with_suffix(".key").write_text("not a key"),
    "no ledger": lambda path: path.unlink(),
    "overwritten": lambda path: path.write_bytes(os.urandom(8192)),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:4096]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_ledger_or_key_is_found_and_its_party_named(copied, damage):
    DAMAGES[damage](copied / "shared" / "party-2.sqlite")
    for command, place in (("verify", "shared"), ("verify", "second"), ("show", "second"), ("export", "shared")):
        answer = tacit("ledger", command, place, cwd=copied)
        refused(answer, 6, "party-2")
        assert answer.stderr.count('"shared/') <= 2
    if damage != "no ledger":
        refused(tacit("ledger", "verify", "shared/party-2.sqlite", cwd=copied), 6, "party-2")


def test_a_strangers_ledger_under_a_partys_name_is_found(copied):
    for suffix in (".sqlite", ".key"):
        shutil.copy(copied / f"here/ledger/party-1{suffix}", copied / f"here/ledger/party-2{suffix}")
    refused(tacit("ledger", "verify", "here", cwd=copied), 6, "is that of party-1", "party-2 is gone")


def test_a_run_whose_ledgers_are_all_gone_is_found(copied):
    shutil.rmtree(copied / "here" / "ledger")
    refused(tacit("ledger", "verify", "here", cwd=copied), 6, "party-1", "party-2", "party-3", "gone")
    (copied / "here" / "ledger").mkdir()
    run = copied / "here" / "run.toml"
    run.write_text(run.read_text().split("[privacy]")[0])  # as if it had been NON-PRIVATE
    refused(tacit("ledger", "verify", "here", cwd=copied), 6, "party-1", "gone")
    run.unlink()
    refused(tacit("ledger", "verify", "here", cwd=copied), 2, "run.toml")


def test_all_parties_that_were_tampered_with_are_named(copied):
    for party in ("party-1", "party-3"):
        edit(copied / "here" / "ledger" / f"{party}.sqlite", "update releases set moment = '' where number = 1")
    answer = process("ledger", "verify", "here", cwd=copied)
    refused(answer, 6, "party-1", "party-3")
    assert "party-2" not in answer.stderr


# -- the transcript -------------------------------------------------------------------------------------------


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
def test_a_transcript_that_differs_from_the_ledgers_is_found(copied, column, value, words):
    path = copied / "here" / "transcript" / "messages.parquet"
    for name in ("log.sqlite", "log.key"):  # they would know better
        path.with_name(name).unlink()
    table = pq.read_table(path)
    rows = [row | {column: value} if row["direction"] == "up" else row for row in table.to_pylist()]
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path)
    refused(tacit("ledger", "verify", "here", cwd=copied), 6, words)


def test_a_transcript_that_is_gone_or_damaged_is_found(copied):
    path = copied / "here" / "transcript" / "messages.parquet"
    path.write_bytes(path.read_bytes()[:100])
    refused(tacit("ledger", "verify", "here", cwd=copied), 6, "messages.parquet", "is damaged")
    path.unlink()
    refused(tacit("ledger", "verify", "here", cwd=copied), 6, "messages.parquet", "is gone")
    (copied / "here" / "summary.json").unlink()
    path.with_name("log.sqlite").write_bytes(os.urandom(4096))
    refused(tacit("ledger", "verify", "here", cwd=copied), 6, "log.sqlite", "is damaged")
