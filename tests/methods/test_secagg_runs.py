"""Whole runs under secure sums: what they promise, how they end, how they are resumed, and what is seen of them."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from method_runs import rows_of, run_file

from tacit.boundary.events import SampledSkellam, Skellam
from tacit.boundary.ledger import Ledger
from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.engine.call_log import CallLog
from tacit.engine.inprocess import InProcess
from tacit.errors import PeerFailed, PrivacyRefused, TamperingFound, UsageError
from tacit.experiment import run
from tacit.federation.dropout import Attendance
from tacit.model import Model
from tacit.prepare.loaded import prepare
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records

DATA = {"source": "demo", "users": 60, "items": 20, "ratings": 700}
DEVICES = {"source": "demo", "users": 12, "items": 30, "ratings": 200}
EXCHANGES = ("advertise", "share", "collect", "contribute", "unmask", "finish")
SGDMF = {"name": "sgdmf", "factors": 3, "sampling": 0.2, "pretraining": 20, "fine_tuning": 0}


def file(silos=10, seed=7, aggregation=None, **sections) -> RunFile:
    hidden = {"name": "secagg", **(aggregation or {})}
    return run_file(seed=seed, aggregation=hidden, **{"data": DATA, "partition": {"into": silos}, **sections})


def contributions(folder, step="contribute"):
    """By party, (round, attempt) of every contribution that was charged."""
    return {
        party: [(row.round, row.attempt) for row in rows if row.step == step] for party, rows in rows_of(folder).items()
    }


# -- bias -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of `bias` with ten silos, its transcript in full."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    return folder, run(file(engine={"transcript": "full"}), folder)


def test_the_guarantee_says_how_many_honest_parties_it_rests_on(whole):
    folder, summary = whole
    guarantee = summary["guarantee"]
    assert (guarantee["model"], guarantee["unit"], guarantee["relation"]) == ("distributed", "user", "zero-out")
    assert guarantee["against"] == "the coordinator and one colluding party, if 6 honest parties stay"
    assert 3.9 < guarantee["epsilon"] <= 4.0
    assert guarantee["simulated"] is True
    assert "NON-PRIVATE" not in (folder / "card.md").read_text()


def test_every_party_is_charged_for_one_skellam_sum(whole):
    for party, rows in rows_of(whole[0]).items():
        assert [row.step.partition(":")[0] for row in rows] == list(EXCHANGES), party
        spent = [row.spent for row in rows if row.step == "contribute"]
        assert [(type(event), event.count) for event in spent] == [(Skellam, 1)]


def test_what_the_coordinators_transcript_holds(whole):
    """Masked vectors, sums, public facts and protocol messages: no numbers of a single party."""
    folder, _summary = whole
    messages = pq.read_table(folder / "transcript" / "messages.parquet").to_pylist()
    steps = {(m["call"], m["party"] == "sum"): m["step"] for m in messages}
    seen = set()
    for path in (folder / "transcript" / "payloads").glob("*-up-*.tct"):
        call, _up, sender = path.stem.split("-", 2)
        for name, value in decode(path.read_bytes()).items():
            kind = value.dtype.name if isinstance(value, np.ndarray) else type(value).__name__
            who = "sum" if sender == "sum" else "a party"
            seen.add((who, steps[int(call), sender == "sum"], "…" if name.startswith("party-") else name, kind))
    assert seen == {
        ("a party", "advertise:contribute", "keys", "uint8"),
        ("a party", "share:contribute", "…", "uint8"),
        ("a party", "collect:contribute", "rejected", "uint8"),
        ("a party", "contribute", "sealed", "uint8"),
        ("a party", "unmask:contribute", "answer", "uint8"),
        ("sum", "contribute", "errors", "float32"),
        ("sum", "contribute", "weights", "float32"),
        ("a party", "finish", "done", "bool"),
    }
    masked = [m for m in messages if m["step"] == "contribute" and m["direction"] == "up" and m["party"] != "sum"]
    assert len(masked) == 10
    assert all(m["digest"] == "" and m["bytes"] > 0 for m in masked)


# -- drop-outs --------------------------------------------------------------------------------------------------------


def test_drop_outs_that_are_allowed_for_do_not_end_a_run(tmp_path):
    summary = run(file(aggregation={"dropout": 0.2, "tolerate": 0.3}), tmp_path / "run")
    lost = pq.read_table(tmp_path / "run" / "transcript" / "messages.parquet").to_pylist()
    assert any(m["status"] == "lost" for m in lost)
    assert summary["guarantee"]["model"] == "distributed"


def test_a_void_round_ends_the_run_with_one_sentence(tmp_path):
    with pytest.raises(PeerFailed, match="Too few parties stayed") as failed:
        run(file(aggregation={"dropout": 0.9}), tmp_path / "run")
    assert "\n" not in str(failed.value)
    assert failed.value.exit_code == 5
    assert not (tmp_path / "run" / "summary.json").exists()
    assert rows_of(tmp_path / "run").keys() == {f"party-{k}" for k in range(1, 11)}


def test_a_signed_survivor_list_is_for_a_coordinator_that_lies(tmp_path):
    summary = run(file(aggregation={"signed": True, "tolerate": 0.2}), tmp_path / "run")
    assert "who may lie about who stayed" in summary["guarantee"]["against"]
    steps = {row.step for rows in rows_of(tmp_path / "run").values() for row in rows}
    assert "confirm:contribute" in steps


# -- SGDMF ------------------------------------------------------------------------------------------------------------


def test_one_local_step_is_a_sum_with_one_noise(tmp_path):
    summary = run(file(6, method={**SGDMF, "rounds": 2, "local_steps": 1}), tmp_path / "run")
    assert summary["guarantee"]["model"] == "distributed"
    assert summary["guarantee"]["against"].endswith("if 4 honest parties stay")
    for rows in rows_of(tmp_path / "run").values():
        spent = [row.spent for row in rows if row.step == "contribute"]
        assert [type(event) for event in spent] == [SampledSkellam] * 2


def test_more_local_steps_are_a_chain_under_masks(tmp_path, monkeypatch):
    """Each silo has its own noise, so the trust model is the silo's; the coordinator sees the mean alone, which is the
    plain one but for fixed-point rounding. One round: another V would be another request, with another noise."""
    monkeypatch.setattr(PreparedRun, "bound", "the same noise for both")
    chain = {**SGDMF, "rounds": 1, "local_steps": 3, "sampling": 1.0}
    masked = run(file(6, method=chain, engine={"transcript": "full"}), tmp_path / "masked")
    plain = run(file(6, method=chain, aggregation={"name": "plain"}), tmp_path / "plain")
    assert masked["guarantee"]["model"] == plain["guarantee"]["model"] == "silo"
    factors = [Model.load(tmp_path / name).item_factors for name in ("masked", "plain")]
    np.testing.assert_allclose(*factors, atol=1e-5)
    assert np.abs(factors[0]).max() > 0.1
    seen = {}
    for path in (tmp_path / "masked" / "transcript" / "payloads").glob("*-up-*.tct"):
        for name, value in decode(path.read_bytes()).items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                seen.setdefault(path.stem.split("-", 2)[2], set()).add(name)
    assert seen == {"sum": {"mean"}}


def test_synsgd_is_sgdmf_with_one_local_step(tmp_path, monkeypatch):
    """Under one name and one hash of terms, since noise derives from these too."""
    monkeypatch.setattr(PreparedRun, "bound", "the same noise for both")
    common = {k: v for k, v in SGDMF.items() if k != "name"} | {"rounds": 2}
    models = []
    for method in (
        {"name": "sgdmf", **common, "local_steps": 1, "users": "together"},
        {"name": "synsgd", **common},
    ):
        prepared = prepare(file(6, method=method))
        named = replace(prepared.run, method=replace(prepared.run.method, name="sgdmf"), run="run")
        records = Records.of(named, tmp_path / method["name"])
        models.append(train(named, prepared.parties, records=records).model)
    np.testing.assert_array_equal(models[0].item_factors, models[1].item_factors)


def test_another_payload_for_the_same_rounds_vector_is_refused_and_recorded(tmp_path, monkeypatch):
    """A coordinator that asks for round 1's gradient at other factors too, to subtract the one from the other."""
    deliver, caught = InProcess.deliver, []

    def lying(self, requests, attendance):
        answers = deliver(self, requests, attendance)
        request = requests.get("party-1")
        if request is not None and request.step == "contribute" and not caught:
            payload = decode(request.body)
            other = replace(request, body=encode({**payload, "items": payload["items"] + np.float32(1)}))
            with pytest.raises(PrivacyRefused, match="not answered twice under other terms") as refusal:
                self.parties["party-1"].answer(other)
            caught.append(str(refusal.value))
        return answers

    monkeypatch.setattr(InProcess, "deliver", lying)
    run(file(6, method={**SGDMF, "rounds": 1, "local_steps": 1}), tmp_path / "run")
    path = tmp_path / "run" / "ledger" / "party-1.sqlite"
    with closing(Ledger.open(path)) as ledger:
        assert [told["why"] for told in ledger.refusals()["told"]] == caught != []
    assert contributions(tmp_path / "run")["party-1"] == [(1, 0)]
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("""update about set value = '{"number": 0, "told": []}' where name = 'refusals'""")
    with pytest.raises(TamperingFound, match="first page"):
        rows_of(tmp_path / "run")


def test_a_silo_whose_budget_is_spent_is_left_out_and_the_others_go_on(tmp_path):
    """Its ledger holds an earlier run. It refuses at the first exchange, before anything of it leaves."""
    budget = {"epsilon": 4.0, "delta": 1e-6, "budget": 5.0}
    run(file(6, privacy={**budget, "ledger": str(tmp_path / "first")}), tmp_path / "a")
    (tmp_path / "second").mkdir()
    for kind in ("sqlite", "key"):
        shutil.copy(tmp_path / "first" / f"party-3.{kind}", tmp_path / "second")
    again = {**budget, "ledger": str(tmp_path / "second")}
    run(file(6, privacy=again, aggregation={"retries": 1}), tmp_path / "b")
    charged = {party: len(rows) for party, rows in contributions(tmp_path / "second").items()}
    assert charged == {f"party-{k}": 1 for k in range(1, 7)}
    assert len({row.run for row in rows_of(tmp_path / "second")["party-3"]}) == 1


# -- devices ----------------------------------------------------------------------------------------------------------


def test_devices_that_are_parties_run_the_protocol_and_a_cohort_simulates_it(tmp_path):
    single = run(file(data=DEVICES, partition={"by": "device", "into": 12}), tmp_path / "single")
    cohort = run(file(data=DEVICES, partition={"by": "device"}), tmp_path / "cohort")
    assert single["setting"] == cohort["setting"] == "device"
    assert single["guarantee"] == cohort["guarantee"]
    assert single["guarantee"]["against"].endswith("if 8 honest devices stay")
    steps = [{row.step for rows in rows_of(tmp_path / n).values() for row in rows} for n in ("single", "cohort")]
    assert "unmask:contribute" in steps[0]
    assert steps[1] == {"contribute", "finish"}
    assert (len(rows_of(tmp_path / "single")), len(rows_of(tmp_path / "cohort"))) == (12, 1)


# -- resuming ---------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The coordinator is killed."""


SMALL = file(4, data={"source": "demo", "users": 12, "items": 8, "ratings": 60}, aggregation={"tolerate": 0.25})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small") / "run"
    return run(SMALL, folder), charges(folder)


def charges(folder):
    """By party, every release: its step, what it cost, and for which request; keys and masks differ, these do not."""
    return {
        party: [(row.step, row.round, row.attempt, row.event) for row in rows]
        for party, rows in rows_of(folder).items()
    }


def killed(monkeypatch, owner, method, number, after, folder):
    """A run in which the number-th call of a method fails, before or after its work."""
    real, calls = getattr(owner, method), iter(range(1000))

    def failing(self, *args, **kwargs):
        now = next(calls) == number
        if now and not after:
            raise Crash
        result = real(self, *args, **kwargs)
        if now:
            raise Crash
        return result

    with monkeypatch.context() as broken:
        broken.setattr(owner, method, failing)
        with pytest.raises(Crash):
            run(SMALL, folder)
    assert not (folder / "summary.json").exists()


#: Between exchanges, and within each of the six: four parties, one row each.
KILLS = [(InProcess, "deliver", k, after) for k in range(6) for after in (False, True)]
KILLS += [(Ledger, "record", k, True) for k in (1, 5, 10, 13, 18, 22)] + [
    (CallLog, "keep", k, False) for k in (0, 3, 4)
]


@pytest.mark.parametrize(
    ("owner", "method", "number", "after"), KILLS, ids=[f"{m} {k} {'after' if a else 'before'}" for _, m, k, a in KILLS]
)
def test_a_run_that_was_killed_anywhere_is_resumed_to_the_same_end(
    tmp_path, monkeypatch, small, owner, method, number, after
):
    killed(monkeypatch, owner, method, number, after, tmp_path / "run")
    summary = run(SMALL, tmp_path / "run")
    expected, charged = small
    assert summary["digest"] == expected["digest"]
    assert summary["metrics"] == expected["metrics"]
    assert charges(tmp_path / "run") == charged


def test_a_release_that_is_charged_twice_is_noticed(tmp_path, small):
    """Planted: a party that answers one exchange anew, as if it had forgotten it."""
    run(SMALL, tmp_path / "run")
    with closing(Ledger(tmp_path / "run" / "ledger" / "party-1.sqlite", "party-1")) as ledger:
        row = next(row for row in ledger.rows() if row.step == "contribute")
        again = {"run": row.run, "step": row.step, "kind": "sum", "request": "ab" * 32, "round": row.round}
        ledger.record(**again, event=row.spent, body=b"x", state=ledger.state())
    assert charges(tmp_path / "run") != small[1]


# -- not so yet -------------------------------------------------------------------------------------------------------


def test_a_run_with_drop_outs_is_resumed(tmp_path, monkeypatch):
    """party-4 is lost while shares are collected, so the coordinator cannot foretell its next head; the log says so by
    leaving it out, and a resumed `Line` only adds what the log holds to what it has from earlier calls."""

    def over(facts, dropout, round, call, exchanges):
        away = {"party-4": np.array([False])}
        return [Attendance.full()] * 2 + [Attendance({}, away)] * 3

    monkeypatch.setattr(Attendance, "over", over)
    expected = run(SMALL, tmp_path / "whole")
    killed(monkeypatch, InProcess, "deliver", 5, False, tmp_path / "run")
    assert run(SMALL, tmp_path / "run")["digest"] == expected["digest"]


# -- many parties, and what is told ----------------------------------------------------------------------------------


def test_a_secure_sum_of_a_hundred_parties_is_logged_and_ends(tmp_path):
    """Their letters together are far longer than a message's header may be."""
    data = {"source": "demo", "users": 300, "items": 20, "ratings": 3000}
    summary = run(file(100, data=data), tmp_path / "run")
    assert summary["guarantee"]["against"].endswith("if 69 honest parties stay")
    assert "void" not in summary


@pytest.mark.parametrize(
    ("parties", "aggregation"), [(2, {}), (10, {"signed": True, "tolerate": 0.6}), (5, {"collusion": 0.8})]
)
def test_a_secure_sum_that_cannot_be_is_refused_before_anything_is_written(tmp_path, parties, aggregation):
    wanted = file(partition={"into": parties}, aggregation={"name": "secagg", **aggregation})
    with pytest.raises((UsageError, PrivacyRefused)):
        run(wanted, tmp_path / "run")
    assert not (tmp_path / "run").exists()
