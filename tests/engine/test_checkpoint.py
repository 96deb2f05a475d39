"""A run without privacy that is cut short goes on from what was saved, or starts over; both end in the same result."""

import sqlite3

import numpy as np
import pytest

from tacit.config import AggregationSection, RunFile
from tacit.data import demo
from tacit.data.split import split
from tacit.engine import checkpoint as module
from tacit.engine.checkpoint import SavedRun, made_of
from tacit.engine.inprocess import InProcess
from tacit.experiment import run
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train

PARTS = split(demo(users=40, items=25, seed=7), test=0.2, seed=7)
SGDMF = {"name": "sgdmf", "rounds": 5, "factors": 3}
CASES = {
    "horizontal": (SGDMF, {"into": 2}),
    "fine-tuned": ({**SGDMF, "fine_tuning": 2, "users": "pretrained"}, {"into": 2}),
    "vertical": (SGDMF, {"by": "item", "into": 2}),
    "devices": (SGDMF, {"by": "device"}),
    "summed": ({**SGDMF, "local_steps": 1}, {"into": 2}),
    "central": ({"name": "central", "sweeps": 5, "factors": 3}, {"into": 2}),
    "als and ease": ({"name": "auto"}, {"into": 2}),
}


class Cut(BaseException):
    """Like a kill: nobody catches it."""


def stop_at(round):
    def watch(glance):
        if glance.round == round:
            raise Cut

    return watch


@pytest.fixture
def at_every_call(monkeypatch):
    """Saved after each call, whatever that costs."""
    monkeypatch.setattr(module, "EVERY", 0.0)
    monkeypatch.setattr(module, "SHARE", 1e9)


@pytest.fixture
def asked(monkeypatch):
    """The rounds that parties are asked in."""
    rounds, deliver = [], InProcess.deliver

    def noted(engine, requests, attendance):
        rounds.extend({request.round for request in requests.values()})
        return deliver(engine, requests, attendance)

    monkeypatch.setattr(InProcess, "deliver", noted)
    return rounds


def trained(case, path=None, watch=None, made="the same"):
    (method, parameters), parties = chosen(CASES[case][0]), partition(PARTS.train, **CASES[case][1], seed=7)
    saved = None if path is None else SavedRun(path, made)
    aggregation = AggregationSection(dropout=0.2 if case == "devices" else 0.0)
    run = PreparedRun.of(method, parameters, Facts.of(parties, 7), aggregation=aggregation)
    found = train(run, parties, saved=saved, test=PARTS.test, watch=watch)
    predicted = found.predictor.predict(PARTS.test.users, PARTS.test.items)
    return found.transcript.digest, found.transcript.meter.bytes_up, found.history, found.rounds, predicted.tolist()


@pytest.mark.parametrize("case", CASES)
def test_it_goes_on_where_it_was_saved_and_ends_as_if_never_cut(case, tmp_path, at_every_call, asked):
    whole, path = trained(case), tmp_path / "saved.sqlite"
    with pytest.raises(Cut):
        trained(case, path, stop_at(3))
    assert path.stat().st_mode & 0o777 == 0o600
    asked.clear()
    assert trained(case, path) == whole
    assert min(asked, default=9) > (0 if case == "central" else 3)  # `central` asks once, and then trains by itself


def test_parties_would_be_wrong_without_what_they_had_at_home(tmp_path, at_every_call, monkeypatch):
    """The comparison above can fail."""
    whole, path = trained("horizontal"), tmp_path / "saved.sqlite"
    with pytest.raises(Cut):
        trained("horizontal", path, stop_at(3))
    monkeypatch.setattr(SavedRun, "restore", lambda self, homes, rounds: [])
    assert trained("horizontal", path) != whole


@pytest.mark.parametrize(("every", "made"), [(60.0, "the same"), (0.0, "something else")])
def test_what_was_not_saved_yet_or_of_another_run_is_done_again(
    tmp_path, at_every_call, asked, monkeypatch, every, made
):
    monkeypatch.setattr(module, "EVERY", every)
    whole, path = trained("horizontal"), tmp_path / "saved.sqlite"
    with pytest.raises(Cut):
        trained("horizontal", path, stop_at(3), made)
    asked.clear()
    assert trained("horizontal", path) == whole
    assert 1 in asked


def test_another_rating_division_or_file_makes_another_run():
    parties = partition(PARTS.train, into=2, seed=7)
    other = partition(PARTS.train.keep(np.arange(PARTS.train.n_ratings) > 0), into=2, seed=7)
    assert made_of("a", parties) == made_of("a", partition(PARTS.train, into=2, seed=7))
    assert len({made_of("a", parties), made_of("b", parties), made_of("a", other)}) == 3


@pytest.mark.parametrize("damage", [b"", b"not a database", b"SQLite format 3\0" + bytes(5000)])
def test_a_damaged_file_is_no_obstacle(damage, tmp_path):
    path = tmp_path / "saved.sqlite"
    path.write_bytes(damage)
    assert trained("horizontal", path) == trained("horizontal")


def test_a_full_disk_does_not_end_a_run(tmp_path, at_every_call, monkeypatch):
    def full(self, database):
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(SavedRun, "_save", full)
    assert trained("horizontal", tmp_path / "saved.sqlite") == trained("horizontal")
    assert list(tmp_path.iterdir()) == []


def test_a_file_grows_only_so_far_and_what_it_holds_by_then_is_used(tmp_path, at_every_call, asked, monkeypatch):
    whole, path = trained("horizontal"), tmp_path / "saved.sqlite"
    with pytest.raises(Cut):
        trained("horizontal", path, stop_at(1))
    monkeypatch.setattr(module, "MOST", path.stat().st_size - 1)
    for round in (3, 4):
        asked.clear()
        with pytest.raises(Cut):
            trained("horizontal", path, stop_at(round))
        assert min(asked) == 2
    assert trained("horizontal", path) == whole


def test_a_run_folder_is_resumed_and_keeps_nothing_of_it_when_finished(tmp_path, at_every_call, asked):
    shape = {"data": {"users": 40, "items": 25}, "partition": {"into": 2}, "method": SGDMF}
    shape["evaluate"] = {"ranking": False}
    file, same = RunFile.model_validate(shape), ("digest", "metrics", "intervals", "rounds", "bytes_up", "bytes_down")
    with pytest.raises(Cut):
        run(file, tmp_path / "cut", stop_at(3))
    asked.clear()
    resumed = run(file, tmp_path / "cut")
    assert [round for round in asked if round > 1] == [4, 5, 5]  # round 1 is that of `bias` beside it
    whole = run(file, tmp_path / "whole")
    assert {key: resumed[key] for key in same} == {key: whole[key] for key in same}
    assert not list((tmp_path / "cut" / "transcript").glob("saved*"))
