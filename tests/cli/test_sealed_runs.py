"""A finished run is held to its ledgers and to what was sealed when it ended; a log that was changed is not resumed."""

import json
import shutil
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from ledger_runs import edit

from tacit.cli.compare import compare
from tacit.cli.export import export
from tacit.cli.ledger_command import verify
from tacit.cli.run import finished, report
from tacit.cli.verified_ledgers import Run, verified
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.errors import TamperingFound
from tacit.experiment import run
from tacit.federation.calls import Logged
from tacit.federation.transcript import Entry
from tacit.report.folder import file_hash

DATA = {"source": "demo", "users": 60, "items": 20, "ratings": 600}
PUBLIC = {"data": DATA, "partition": {"into": 2}, "method": {"name": "bias"}}
OPEN = RunFile.model_validate(PUBLIC)
PRIVATE = RunFile.model_validate({**PUBLIC, "privacy": {"epsilon": 2.0, "delta": 1e-6}})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    run(PRIVATE, folder / "private")
    run(OPEN, folder / "open")
    return folder


@pytest.fixture
def private(made, tmp_path):
    return Path(shutil.copytree(made / "private", tmp_path / "private"))


@pytest.fixture
def non_private(made, tmp_path):
    return Path(shutil.copytree(made / "open", tmp_path / "open"))


def change_json(path: Path, change) -> None:
    table = json.loads(path.read_text())
    change(table)
    path.write_text(json.dumps(table, indent=2))


def refused(folder: Path, words: str, file: RunFile = PRIVATE) -> None:
    """Verify, report and resume all say so, and nothing is written."""
    card = (folder / "card.md").read_bytes()
    looks = [lambda: verified(folder), lambda: report(folder)]
    if (folder / "run.toml").read_bytes() == file.to_toml().encode():
        looks.append(lambda: finished(folder, file))
    for look in looks:
        with pytest.raises(TamperingFound, match=words):
            look()
    assert (folder / "card.md").read_bytes() == card


# -- the summary, and what else a run leaves -------------------------------------------------------------------


def test_a_run_as_it_was_left_verifies(private, non_private):
    assert len(verified(private)[1]) == 2
    assert verified(non_private)[1] == []
    for folder, file in ((private, PRIVATE), (non_private, OPEN)):
        (folder / "card.md").unlink()
        report(folder)
        assert (folder / "card.md").exists()
        assert finished(folder, file)["run"]


GUARANTEE = {"epsilon": 1.9999, "delta": 1e-9, "unit": "rating", "relation": "replace", "model": "local"}
GUARANTEE |= {"against": "everyone", "simulated": False, "claimed_epsilon": 0.1}


@pytest.mark.parametrize("key", GUARANTEE)
def test_a_changed_guarantee_is_found(private, key):
    change_json(private / "summary.json", lambda table: table["guarantee"].update({key: GUARANTEE[key]}))
    refused(private, r"summary\.json")


@pytest.mark.parametrize(("key", "value"), [("method", "sgdmf"), ("rounds", 9), ("metrics", {}), ("digest", "0" * 64)])
def test_a_changed_summary_is_found(non_private, key, value):
    change_json(non_private / "summary.json", lambda table: table.update({key: value}))
    refused(non_private, "was changed", OPEN)


@pytest.mark.parametrize("stated", [{"epsilon": 1.9}, {"epsilon": None}, {"epsilon": "2.0"}, None])
def test_a_guarantee_below_what_the_ledgers_hold_is_found_without_the_log(private, monkeypatch, stated):
    """Also where the log was sealed again by someone who holds its key."""
    change_json(
        private / "summary.json",
        lambda table: table.update(guarantee=None if stated is None else {**table["guarantee"], **stated}),
    )
    monkeypatch.setattr(Run, "check_record", lambda self: None)
    refused(private, "the run released what costs ε = 2")


def rewritten(folder: Path, name: str) -> None:
    path = folder / name
    if name.endswith(".parquet"):
        table = pq.read_table(path)
        pq.write_table(pa.concat_tables([table, table.slice(0, 1)]), path)
    elif name.endswith(".npz"):
        with np.load(path) as arrays:
            changed = {key: array * 2 if array.dtype.kind == "f" else array for key, array in arrays.items()}
        np.savez(path, **changed)
    else:
        changes = {"run.toml": ("2.0", "0.1"), "model/model.json": ("(2.00", "(0.10"), "about.json": ("60", "61")}
        old, new = changes[name]
        assert old in path.read_text()
        path.write_text(path.read_text().replace(old, new))


@pytest.mark.parametrize("name", ["run.toml", "model/model.json", "model/factors.npz", "about.json", "metrics.parquet"])
def test_a_changed_file_of_a_run_is_found(private, name):
    rewritten(private, name)
    refused(private, f"{name}.*was changed")


@pytest.mark.parametrize("name", ["summary.json", "about.json", "metrics.parquet", "run.toml", "transcript/run.id"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"[]"])
def test_a_file_of_a_run_that_cannot_be_decoded_is_tampering(private, name, content):
    (private / name).write_bytes(content)
    refused(private, name)


def test_a_file_that_was_removed_or_added_is_found(private):
    roster = private / "transcript" / "roster.json"
    roster.write_text("[]")  # as if its ledgers were at sites
    refused(private, "was not there when the run ended")
    roster.unlink()
    (private / "model" / "factors.npz").unlink()
    refused(private, r"factors\.npz.*is gone")


def test_a_finished_run_without_its_record_is_refused(private, non_private):
    for folder, file in ((private, PRIVATE), (non_private, OPEN)):
        for path in (folder / "transcript").glob("log.*"):
            path.unlink()
        refused(folder, "no record of how the run ended", file)


def test_the_folder_of_a_run_between_sites_is_held_to_its_record(private, capsys):
    """Its ledgers are elsewhere."""
    shutil.rmtree(private / "ledger")
    roster = private / "transcript" / "roster.json"
    roster.write_text('["party-1", "party-2"]')
    with closing(CallLog(private / "transcript" / "log.sqlite")) as log:  # as `up` seals it
        record = log.finished()
        log.finish({**record, "files": {**record["files"], "transcript/roster.json": file_hash(roster)}})
    verify(private, None, False)
    report(private)
    assert "what is sealed in its folder is unchanged" in capsys.readouterr().out
    change_json(private / "summary.json", lambda table: table["guarantee"].update(epsilon=0.1))
    for command in (lambda: verify(private, None, False), lambda: report(private)):
        with pytest.raises(TamperingFound, match=r"summary\.json.*epsilon"):
            command()


# -- the log ---------------------------------------------------------------------------------------------------


def kept_log(path: Path, calls: int = 3) -> Path:
    with closing(CallLog(path)) as log:
        for k in range(calls):
            entry = Entry(k, 1, "tell", "party-1", "up", "sum", 10, 1, "ab", "ok", "cd")
            log.keep(f"{k}/1/tell/ask", "request", Logged(b"result", (entry,), {"party-1": "head"}))
        log.finish({"summary": {}, "files": {}})
    return path


def swap(*pairs: tuple[int, int]) -> list[str]:
    return [f"update calls set number = {new} where number = {old}" for old, new in pairs]


TAMPERINGS = {
    "one word": ["update calls set entries = replace(entries, 'ok', 'OK') where number = 2"],
    "a result": ["update calls set result = x'00' where number = 1"],
    "a key": ["update calls set key = 'other' where number = 1"],
    "a request": ["update calls set request = 'other' where number = 3"],
    "a head": ["update calls set heads = '{}' where number = 3"],
    "not UTF-8": ["update calls set entries = cast(x'fffe' as text) where number = 2"],
    "middle removed": ["delete from calls where number = 2"],
    "last removed": ["delete from calls where number = 3"],
    "all removed": ["delete from calls"],
    "last removed, and the latest changed": [
        "delete from calls where number = 3",
        "update latest set number = 2, seal = (select seal from calls where number = 2)",
    ],
    "moved": swap((1, 9), (2, 1), (9, 2)),
    "added": ["insert into calls select 4, 'new', request, result, entries, heads, seal from calls where number = 3"],
    "no latest": ["delete from latest"],
    "the record": ["update finished set record = replace(record, '{}', '{\"a\": 1}')"],
    "a trigger": ["create trigger t after insert on calls begin delete from finished; end"],
    "a table gone": ["drop table finished"],
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_changed_log_is_found_when_it_is_opened(tmp_path, name):
    path = kept_log(tmp_path / "log.sqlite")
    CallLog.open(path).close()
    edit(path, *TAMPERINGS[name])
    for opened in (CallLog.open, CallLog):
        with pytest.raises(TamperingFound, match=r"log\.sqlite"):
            opened(path)


@pytest.mark.parametrize("content", [None, "", "ab" * 32, "zz", "ab"])
def test_a_log_with_another_key_or_none_is_refused(tmp_path, content):
    path = kept_log(tmp_path / "log.sqlite")
    key = path.with_suffix(".key")
    assert key.stat().st_mode & 0o777 == 0o600
    key.unlink()
    if content is not None:
        key.write_text(content)
    for opened in (CallLog.open, CallLog):
        with pytest.raises(TamperingFound, match=r"log\.(key|sqlite)"):
            opened(path)


def test_a_log_that_was_emptied_or_removed_is_not_begun_again(tmp_path):
    path = kept_log(tmp_path / "log.sqlite")
    path.write_bytes(b"")
    for _ in range(2):
        with pytest.raises(TamperingFound, match="missing or empty"):
            CallLog(path)
        path.unlink()


@pytest.mark.parametrize("statement", [TAMPERINGS["one word"][0].replace("2", "1"), "delete from calls"])
def test_a_run_is_not_resumed_from_a_changed_log(tmp_path, statement):
    def killed(glance):
        raise KeyboardInterrupt

    with suppress(KeyboardInterrupt):
        run(PRIVATE, tmp_path / "run", watch=killed)
    assert not (tmp_path / "run" / "summary.json").exists()
    verified(tmp_path / "run")
    edit(tmp_path / "run" / "transcript" / "log.sqlite", statement)
    with pytest.raises(TamperingFound, match=r"log\.sqlite"):
        run(PRIVATE, tmp_path / "run")
    with pytest.raises(TamperingFound, match=r"log\.sqlite"):
        verified(tmp_path / "run")


def test_the_record_of_a_run_that_was_cut_short_after_it_is_made_again(tmp_path, private):
    (private / "summary.json").unlink()
    verified(private)
    run(PRIVATE, private)
    verified(private)


def test_nothing_prints_a_guarantee_that_was_not_verified(private, tmp_path):
    change_json(private / "summary.json", lambda table: table["guarantee"].update(epsilon=0.1))
    with pytest.raises(TamperingFound, match="was changed"):
        export(private, tmp_path / "out", as_json=True)
    with pytest.raises(TamperingFound, match="was changed"):
        compare([private, private], tmp_path / "page.html", as_json=True, quiet=True)
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "page.html").exists()


def test_the_stated_guarantee_is_held_to_the_relation_of_the_ledgers(tmp_path, monkeypatch):
    """A rating that moves factors fitted at home is counted as a replaced user, which costs more than zero-out."""
    method = {"name": "sgdmf", "factors": 2, "rounds": 1, "local_steps": 1, "users": "pretrained", "sampling": 1.0}
    privacy = {"epsilon": 2.0, "delta": 1e-6, "unit": "rating"}
    run(RunFile.model_validate({**PUBLIC, "method": method, "privacy": privacy}), tmp_path / "run")
    change_json(tmp_path / "run" / "summary.json", lambda table: table["guarantee"].update(epsilon=1.8))
    monkeypatch.setattr(Run, "check_record", lambda self: None)
    refused(tmp_path / "run", "the run released what costs ε = 2")
