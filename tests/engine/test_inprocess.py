"""The in-process engine: its contract, threads that change nothing, turns, and one BLAS thread for a party's step."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  it brings a BLAS of its own
from one_site import Sites, offer_of, run_file
from threadpoolctl import threadpool_info, threadpool_limits

from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent
from tacit.boundary.release import Kind
from tacit.data.synthetic import demo
from tacit.engine import InProcess
from tacit.engine import inprocess as module
from tacit.engine.inprocess import Turns
from tacit.federation import Facts, Party
from tacit.federation.dropout import Attendance
from tacit.federation.messages import Request
from tacit.kernels.blas import one_blas_thread
from tacit.methods import chosen
from tacit.methods.bias import BiasParty
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.testing.engine_contract import EngineContract


class TestInProcess(EngineContract):
    def make(self, parties: Sequence[Party], timeout: float | None = None) -> InProcess:
        return InProcess(parties, timeout=timeout)


class TestOneThread(EngineContract):
    def make(self, parties: Sequence[Party], timeout: float | None = None) -> InProcess:
        return InProcess(parties, timeout=timeout, workers=1)


@pytest.mark.parametrize("workers", [2, 7])
def test_results_do_not_depend_on_threads(workers):
    class Threads(EngineContract):
        def make(self, parties, timeout=None):
            return InProcess(parties, workers=workers)

    found = []
    for contract in (Threads(), TestOneThread()):
        federation, _members = contract.federation()
        vector = np.zeros(25, dtype=np.float32)
        for t in federation.rounds(4):
            vector = federation.mean("walk", vector=vector, t=t)
        found.append((federation.transcript.digest, vector.tobytes()))
    assert found[0] == found[1]


PATIENCE = 120.0


class Busy:
    """Counts how many are at work together."""

    def __init__(self):
        self.now, self.most, self._lock = 0, 0, threading.Lock()

    def work(self, seconds=0.002):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(seconds)
        with self._lock:
            self.now -= 1


def test_one_computes_at_a_time_and_others_do_while_one_is_aside():
    turns, busy, met = Turns(), Busy(), threading.Barrier(4)

    def one(_number):
        with turns.taken():
            busy.work()
            with turns.aside():
                met.wait(PATIENCE)  # all four are aside together, which they could not be if a turn were kept
            busy.work()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(4)))
    assert busy.most == 1
    assert turns.free


def test_a_disk_that_fails_gives_the_turn_back_before_it_is_over():
    turns = Turns()

    def fail():
        with turns.taken():
            try:
                with turns.aside():
                    raise OSError("disk full")
            finally:
                assert not turns.free

    with pytest.raises(OSError, match="disk full"):
        fail()
    assert turns.free


class FakeParty:
    """As much of a party as an engine needs; it refuses whatever it is asked, after some work."""

    def __init__(self, name, work, kind=Kind.CHAIN, ledger=True):
        self.name, self._work, self.member = name, work, SimpleNamespace(devices=0)
        self.steps = {"improve": SimpleNamespace(kind=kind)}
        self.ledger = SimpleNamespace(refuse=lambda *_refusal: None)
        self.gate = SimpleNamespace(protection=SimpleNamespace(ledger=self.ledger, run="run") if ledger else None)

    def step(self, name):
        return self.steps.get(name)

    def answer(self, request, present=None):
        self._work(self)
        raise BudgetSpent("no")


def ask(parties, size=10, **options):
    engine = InProcess(parties, **options)
    request = Request("m", "", "improve", 1, 0, bytes(size))
    try:
        return [answer.status for answer in engine.deliver(dict.fromkeys(engine.parties, request), Attendance.full())]
    finally:
        engine.close()


def most_together(size=10, kind=Kind.CHAIN, ledger=True, **options):
    busy = Busy()
    parties = [FakeParty(f"party-{k}", lambda _party: busy.work(0.05), kind, ledger) for k in range(4)]
    assert ask(parties, size, **options) == ["refused"] * 4
    return busy.most


def test_short_chains_take_turns_and_long_ones_do_not():
    assert most_together() == 1
    assert most_together(ledger=False) == 1
    assert most_together(size=module.LARGE) > 1
    assert most_together(kind=Kind.PUBLIC) > 1


def test_with_a_timeout_nobody_waits_for_somebody_elses_turn():
    assert most_together(timeout=PATIENCE) > 1


def test_a_party_computes_while_others_wait_for_their_disks():
    met = threading.Barrier(3)

    def wait(party):
        with party.ledger.aside():
            met.wait(PATIENCE)

    assert ask([FakeParty(f"party-{k}", wait) for k in range(3)]) == ["refused"] * 3


def test_a_ledger_steps_aside_while_it_commits(tmp_path):
    ledger, turns, seen = Ledger(tmp_path / "party-1.sqlite", "party-1"), Turns(), []

    def aside():
        seen.append(turns.free)
        return turns.aside()

    ledger.aside = aside
    with turns.taken():
        ledger.note("unit", "user", "was kept for another unit")
        assert not turns.free
    assert seen == [False]
    assert ledger.verify() == 0


def blas_threads() -> set[int]:
    np.ones((2, 2)) @ np.ones((2, 2))
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_a_party_s_step_has_one_thread_of_blas_at_a_site_too_and_what_follows_has_all(tmp_path, monkeypatch):
    seen, contribute = [], BiasParty.contribute

    def looked_at(party):
        seen.append(blas_threads())
        return contribute(party)

    looked_at.tacit_step = contribute.tacit_step
    monkeypatch.setattr(BiasParty, "contribute", looked_at)
    parties = partition(demo(users=30, items=20, seed=1), into=3, seed=1)
    prepared = PreparedRun.of(*chosen({"name": "bias"}), Facts.of(parties, 1))
    sites = Sites(tmp_path, offer_of(run_file())).begin()
    with threadpool_limits(2, user_api="blas"):
        train(prepared, parties)
        assert seen == [{1}] * 3
        sites.conduct()
        assert seen == [{1}] * 6
        assert blas_threads() == {2}
    sites.leave()


def test_one_who_comes_while_it_is_held_changes_nothing():
    """Neither by leaving last, nor by leaving first: else one thread would be what is remembered, for good."""
    entered, leave = threading.Event(), threading.Event()

    def other():
        with one_blas_thread():
            entered.set()
            leave.wait(60)

    before = blas_threads()
    thread = threading.Thread(target=other)
    with one_blas_thread():
        thread.start()
        assert entered.wait(60)
        with one_blas_thread():
            pass
        assert blas_threads() == {1}
    leave.set()
    thread.join(60)
    assert blas_threads() == before


def test_threads_come_back_after_a_failure():
    with threadpool_limits(2, user_api="blas"):
        try:
            with one_blas_thread():
                raise ValueError("a step failed")
        except ValueError:
            pass
        assert blas_threads() == {2}
