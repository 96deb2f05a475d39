"""Noise that nobody can repeat: with `seeded = false` nothing private comes from the seed, and nothing is SIMULATED."""

import math

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from tacit.boundary import base_gate
from tacit.boundary.code import PUBLIC_GRID, Grid
from tacit.boundary.events import SampledGaussian, Skellam
from tacit.boundary.ledger import Ledger
from tacit.boundary.randomness import SecureStream
from tacit.boundary.trim import sample_ratings, sample_users
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.errors import PrivacyRefused, UsageError
from tacit.experiment import run
from tacit.methods import chosen
from tacit.prepare.run_file import check, plan

DATA = {"source": "demo", "users": 60, "items": 20, "ratings": 900}
CHAIN = {"name": "sgdmf", "factors": 3, "rounds": 2, "local_steps": 2, "sampling": 0.5, "fine_tuning": 1}


def file(method=None, aggregation="plain", partition=None, **sections) -> RunFile:
    base = {
        "data": DATA,
        "partition": partition or {"into": 4},
        "method": method or {"name": "bias"},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
        "aggregation": {"name": aggregation},
        "engine": {"seeded": False, "transcript": "full"},
    }
    return RunFile.model_validate({"evaluate": {"floor": False}, **base, **sections})


RUNS = {
    "a sum": file(),
    "a secure sum": file(aggregation="secagg"),
    "a chain": file(CHAIN),
    "a masked chain": file(CHAIN, "secagg"),
    "a chain per rating": file(CHAIN, privacy={"epsilon": 4.0, "delta": 1e-6, "unit": "rating"}),
    "a sum of gradients": file({**CHAIN, "local_steps": 1, "users": "together"}, "secagg"),
    "items divided": file({k: v for k, v in CHAIN.items() if k != "fine_tuning"}, partition={"by": "item", "into": 2}),
    "devices": file(partition={"by": "device", "into": 60}, data=DATA),
}


@pytest.mark.parametrize("name", RUNS)
def test_nothing_private_is_derived_from_the_seed(tmp_path, monkeypatch, name):
    """Every derived stream of a party's gate is forbidden, and the run ends all the same."""

    def forbidden(*purpose):
        raise AssertionError(f"{purpose} was derived")

    monkeypatch.setattr(base_gate, "derive", forbidden)
    monkeypatch.setattr(base_gate, "stream_key", forbidden)
    summary = run(RUNS[name], tmp_path / "run")
    assert summary["guarantee"]["simulated"] is False
    assert "SIMULATED" not in (tmp_path / "run" / "card.md").read_text()


def test_a_seeded_run_would_be_noticed(tmp_path, monkeypatch):
    """Planted: the gate goes on deriving."""
    monkeypatch.setattr(base_gate, "derive", lambda *purpose: (_ for _ in ()).throw(AssertionError("derived")))
    seeded = file(CHAIN, engine={"seeded": True})
    with pytest.raises(Exception, match="AssertionError"):
        run(seeded, tmp_path / "run")


def test_two_runs_of_one_file_meet_different_noise(tmp_path):
    one, other = (run(file(), tmp_path / name) for name in ("one", "other"))
    assert one["digest"] != other["digest"]
    assert one["guarantee"] == other["guarantee"]


def test_sums_are_of_whole_numbers_with_exact_noise_also_where_each_adds_its_own(tmp_path):
    """600 cells of 4 parties; five standard deviations of a sample variance, one false alarm in 1.7 million."""
    wide = {"source": "demo", "users": 60, "items": 300, "ratings": 900}
    made = plan(file(data=wide), *chosen({"name": "bias"}))
    terms = made.terms.steps["contribute"]
    grid = terms.code
    assert isinstance(grid, Grid)
    assert not terms.sealed
    (event,) = made.terms.events
    assert isinstance(event, Skellam)
    run(file(data=wide), tmp_path / "one")
    run(file(data=wide), tmp_path / "other")
    ledger = Ledger.open(next((tmp_path / "one" / "ledger").glob("*.sqlite")))
    assert ledger.rows()[0].spent == event
    ledger.close()
    cells = []
    for name in ("one", "other"):
        paths = sorted((tmp_path / name / "transcript" / "payloads").glob("000000-up-party-*"))
        bodies = [decode(path.read_bytes())["sealed"].reshape(-1, grid.bits // 8) for path in paths]
        assert len(bodies) == 4
        words = [np.pad(body, ((0, 0), (0, 8 - grid.bits // 8))).view("<u8").ravel() for body in bodies]
        cells.append(np.concatenate([grid.numbers(word) for word in words]))
    differences = cells[0] - cells[1]  # the same answers, but for rounding, with two noises
    assert abs(np.var(differences) / (2 * made.sigma()["contribute"] ** 2) - 1) < 5 * math.sqrt(2 / len(differences))


def test_chains_let_out_numbers_on_a_public_grid(tmp_path):
    run(file(CHAIN), tmp_path / "run")
    bodies = [decode(path.read_bytes()) for path in (tmp_path / "run" / "transcript" / "payloads").glob("*-up-party-*")]
    blocks = [body["items"] for body in bodies if "items" in body]
    assert blocks
    for block in blocks:
        steps = block.astype(np.float64) / PUBLIC_GRID
        assert_array_equal(steps, np.rint(steps))
    (event, *_) = plan(file(CHAIN), *chosen(CHAIN)).terms.events
    assert isinstance(event, SampledGaussian)


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"aggregation": "ideal"}, "simulations only"),
        ({"aggregation": "shuffle", "method": {"name": "gd-dr"}, "partition": {"by": "device"}}, "simulations only"),
    ],
)
def test_what_only_simulates_is_refused(sections, words):
    with pytest.raises(PrivacyRefused, match=words):
        check(file(**sections))


def test_signing_keys_that_come_from_the_seed_are_refused():
    signed = file().model_copy(
        update={"aggregation": file().aggregation.model_copy(update={"name": "secagg", "signed": True})}
    )
    with pytest.raises(PrivacyRefused, match="signing keys"):
        check(signed)


def test_a_cohort_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(PrivacyRefused, match="a cohort simulates"):
        run(file(partition={"by": "device"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_without_privacy_there_is_nothing_to_draw():
    with pytest.raises(UsageError, match="needs"):
        check(file(privacy=None))


def test_a_secure_stream_draws_what_queries_ask_for():
    """Means of 100,000 draws, five standard deviations; an order is a permutation; every row can be sampled."""
    stream, n = SecureStream(), 100_000
    assert abs(stream.random(n).mean() - 0.5) < 5 / math.sqrt(12 * n)
    assert abs(stream.integers(10, n).mean() - 4.5) < 5 * math.sqrt(8.25 / n)
    assert abs(stream.standard_normal(n).mean()) < 5 / math.sqrt(n)
    assert abs(len(stream.among(n, 0.3)) - 0.3 * n) < 5 * math.sqrt(0.21 * n)
    assert sorted(stream.permutation(50).tolist()) == list(range(50))
    assert stream.random(4, dtype=np.float32).dtype == np.float32
    assert stream.integers(3, (2, 2), dtype=np.int32).shape == (2, 2)
    indptr = np.arange(0, 1001, 10)
    assert 0 < len(sample_users(indptr, 0.5, stream).rows) < 100
    part = sample_ratings(indptr, 0.1, stream)
    assert 0 < len(part.entries) < 400
    assert (np.diff(part.entries) > 0).all()
    assert part.entries.dtype == np.int64
