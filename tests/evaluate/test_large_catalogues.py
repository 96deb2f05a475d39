"""Evaluation in blocks and threads: the same numbers, within bounds, with progress; fewer users, or errors alone."""

import threading

import numpy as np
import pytest

from tacit.config import EvaluateSection
from tacit.data import demo
from tacit.data.split import split
from tacit.evaluate import evaluate, metrics, positions
from tacit.evaluate.evaluation import evaluate_as_configured
from tacit.model import Fitted, Hashed, NonNegative
from tacit.rng import derive

PARTS = split(demo(users=90, items=60, ratings=1800, seed=3), test=0.2, seed=3)


def factors(n=90, m=60):
    stream = derive(5, "factors")
    states, items = (stream.random((size, 6)).astype(np.float32) for size in (n, m))
    return Fitted(NonNegative(1.0, 5.0, items), states)


class Spied:
    """A predictor that notes how much is asked of it, and by whom."""

    rates = True

    def __init__(self, inner):
        self.inner, self.heights, self.threads = inner, [], set()

    def predict(self, users, items):
        return self.inner.predict(users, items)

    def scores(self, users):
        self.heights.append(len(users))
        self.threads.add(threading.current_thread().name)
        return self.inner.scores(users)


def test_blocks_and_threads_change_no_metric_and_bound_what_is_held(monkeypatch):
    whole = evaluate(factors(), PARTS.test, seen=PARTS.train, k=5)
    for cells, draws in ((60 * 7, 10**6), (60 * 7, 99 * 20), (1, 1)):
        monkeypatch.setattr(positions, "CELLS", cells)
        monkeypatch.setattr(positions, "DRAWS", draws)
        monkeypatch.setattr(metrics, "PAIRS", 13)
        monkeypatch.setattr(positions.os, "cpu_count", lambda: 3)
        spied = Spied(factors())
        blocks = evaluate(spied, PARTS.test, seen=PARTS.train, k=5)
        assert blocks.metrics == pytest.approx(whole.metrics)
        assert blocks.intervals["rank"] == whole.intervals["rank"]
        assert max(spied.heights) <= max(1, cells // 60)
        assert all(name.startswith("tacit-evaluate") for name in spied.threads)


def test_progress_rises_to_one(monkeypatch):
    monkeypatch.setattr(positions, "CELLS", 60 * 10)
    heard = []
    evaluate(factors(), PARTS.test, seen=PARTS.train, progress=heard.append)
    assert len(heard) >= 8
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


def test_a_run_file_can_leave_ranking_out_unless_the_method_only_ranks():
    judged = evaluate_as_configured(factors(), PARTS.test, PARTS.train, EvaluateSection(ranking=False), 7)
    assert set(judged.metrics) == {"mse", "rmse", "mae"}
    only = Fitted(Hashed(np.arange(60, dtype=np.uint64)), np.arange(90, dtype=np.uint64)[:, None])
    judged = evaluate_as_configured(only, PARTS.test, PARTS.train, EvaluateSection(ranking=False), 7)
    assert "ndcg@10" in judged.metrics
    assert any("only ranks" in note for note in judged.notes)


def test_several_cut_offs_are_each_as_alone_and_rank_is_there_once():
    several = evaluate(factors(), PARTS.test, seen=PARTS.train, k=[2, 5])
    for k in (2, 5):
        alone = evaluate(factors(), PARTS.test, seen=PARTS.train, k=k)
        assert {name: several.metrics[name] for name in alone.metrics} == alone.metrics
    assert list(several.metrics)[-1] == "rank"
    assert len(several.metrics) == 3 + 2 * 7 + 1
