"""Parties compute side by side, so a party's step has one thread of BLAS; the rest of the process keeps its own."""

import threading

import numpy as np
import scipy.linalg  # noqa: F401  it brings a BLAS of its own
from one_site import Sites, offer_of, run_file
from threadpoolctl import threadpool_info, threadpool_limits

from tacit.data.synthetic import demo
from tacit.federation import Facts
from tacit.kernels.blas import one_blas_thread
from tacit.methods import chosen
from tacit.methods.bias import BiasParty
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train


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
