"""With `seeded = false` nothing private comes from the seed; what the gate holds to by itself, whatever a plan says."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from stated import gate_of as protected
from stated import grid_of, promise, step_terms

from tacit.aggregation.ideal import Ideal
from tacit.boundary import Gate, base_gate
from tacit.boundary import mechanisms as noise_module
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import PUBLIC_GRID, SEALED, Grid
from tacit.boundary.events import SampledGaussian, Skellam
from tacit.boundary.ledger import Ledger
from tacit.boundary.randomness import Secure, SecureStream, Seeded
from tacit.boundary.trim import sample_ratings, sample_users
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.errors import PrivacyRefused
from tacit.experiment import run
from tacit.methods import chosen
from tacit.partition import Setting
from tacit.prepare.run_file import check, plan
from tacit.rng import stream_key
from tacit.secure.masks import unpack

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


def test_what_only_simulates_is_refused():
    with pytest.raises(PrivacyRefused, match="simulations only"):
        check(file(aggregation="ideal"))


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


Z, CELLS, SEED = 2.0, 1000, 7

QUERY = Clipped(("x",), 1.0)
GRID = grid_of(QUERY, CELLS, Z)
#: A sum whose noise somebody else would add, one whose noise is the party's own, and one of floats.
LEFT, OWN, FLOATS = "left", "own", "floats"


def gate_of(folder, noise=FLOATS, simulated=False, devices=0) -> Gate:
    """A party's gate with a ledger of its own, for one release."""
    terms = step_terms(QUERY, Z, code=None if noise == FLOATS else GRID, sealed=noise == LEFT)
    how = Ideal(Setting.HORIZONTAL, 4) if noise == LEFT else None
    return protected(folder, promise(terms, simulated=simulated), seed=SEED, devices=devices, how=how)


def told(gate: Gate, value: float):
    """The release of one user's vector, for the same request whoever is asked."""
    with gate.serving("tell", 1, 0, "request"):
        return decode(gate.sum({"x": np.full((1, CELLS), value)}, np.ones(1, dtype=np.int64)).body)


def steps(payload) -> np.ndarray:
    """A contribution in whole numbers."""
    return np.rint(GRID.numbers(unpack(payload[SEALED], CELLS, GRID.bits)) / GRID.rounding.step)


@pytest.mark.parametrize("devices", [0, 1, 3])
def test_a_sum_whose_noise_is_left_to_the_aggregation_does_not_leave_a_deployment(tmp_path, devices):
    gate = gate_of(tmp_path, LEFT, devices=devices)
    with pytest.raises(PrivacyRefused, match="leave the noise of a sum to the aggregation"):
        told(gate, 0.01)
    assert gate.protection.ledger.rows() == []
    simulated = gate_of(tmp_path / "simulated", LEFT, simulated=True, devices=devices)
    assert SEALED in told(simulated, 0.01)


def test_planted_a_gate_that_does_not_ask_would_let_out_what_carries_no_noise(tmp_path, monkeypatch):
    """Every cell is the vector's own, but for the coin that rounds it; a simulation's aggregation has yet to add it."""
    value = 10.5 * GRID.rounding.step
    simulated = told(gate_of(tmp_path / "simulated", LEFT, simulated=True), value)
    monkeypatch.setattr(Gate, "_require_simulation", lambda self, what: None)
    for payload in (simulated, told(gate_of(tmp_path, LEFT), value)):
        assert set(steps(payload)) == {10, 11}


class Silent:
    """No noise at all, so that what leaves shows how it was rounded."""

    def __init__(self, variance: float) -> None:
        pass

    def add(self, whole, _source):
        return whole


def rounded_twice(folder, monkeypatch, simulated: bool) -> tuple[np.ndarray, np.ndarray]:
    """What one vector, half-way between whole numbers, is rounded to for the same request by two services."""
    monkeypatch.setattr(noise_module, "Skellam", Silent)
    value = 10.5 * GRID.rounding.step
    one, other = (steps(told(gate_of(folder / name, OWN, simulated), value)) for name in ("one", "other"))
    assert set(one) == set(other) == {10, 11}
    return one, other


def test_a_deployment_tosses_fresh_coins_for_every_rounding(tmp_path, monkeypatch):
    """1,000 coins, of which 500 ± 79 differ, five standard deviations: one false alarm in 1.7 million."""
    one, other = rounded_twice(tmp_path / "deployed", monkeypatch, simulated=False)
    assert abs(np.sum(one != other) - CELLS / 2) < 5 * np.sqrt(CELLS) / 2
    # Planted: a simulation's come from the seed, and fall alike twice.
    assert_array_equal(*rounded_twice(tmp_path / "simulated", monkeypatch, simulated=True))


def sources(gate) -> list[type]:
    """What noise, coins and rounding are drawn from."""
    with gate.serving("tell", 1, 0, "request"):
        return [type(gate._source(purpose)) for purpose in ("noise", "rounding", "coins")]


def test_a_deployment_draws_from_a_source_that_nobody_can_repeat(tmp_path):
    """Not from a fresh key for a simulation's generator either: that one's Gaussians are for simulations."""
    assert sources(gate_of(tmp_path)) == [Secure] * 3
    assert sources(gate_of(tmp_path / "other", simulated=True)) == [Seeded] * 3


def fourfold(words: np.ndarray) -> np.ndarray:
    """Half the sum of four Gaussians for each cell, by Box and Muller's own formulas from a secure source's words."""
    radii, angles = words.reshape(8, -1)[:4], words.reshape(8, -1)[4:]
    radius = np.sqrt(-2 * np.log((radii.astype(np.float64) + 1) * 2.0**-64))
    angle = ((angles >> np.uint64(11)) + 0.5) * (np.pi * 2.0**-53) - np.pi / 2
    mirror = (angles & np.uint64(1)) * 2.0 - 1
    pairs = np.concatenate([mirror * radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    assert len(pairs) == 4
    return pairs.sum(axis=0) / 2


def noise_and_words(folder, monkeypatch) -> tuple[np.ndarray, list[np.ndarray]]:
    """The noise on a deployment's release of zeros, and the words that secure sources gave for it."""
    drawn, words = [], Secure.words

    def seen(self, n):
        drawn.append(words(self, n))
        return drawn[-1].copy()

    monkeypatch.setattr(Secure, "words", seen)
    return told(gate_of(folder), 0.0)["x"], drawn


def test_noise_that_leaves_a_deployment_is_half_the_sum_of_four_gaussians(tmp_path, monkeypatch):
    """What inverting a floating-point sampler has to be kept from (Holohan and Braghin 2021)."""
    noise, drawn = noise_and_words(tmp_path, monkeypatch)
    (words,) = drawn
    assert len(words) == 4 * CELLS
    assert_allclose(noise, Z * fourfold(words), rtol=1e-5, atol=1e-6)


def test_planted_a_simulation_s_generator_under_a_fresh_key_would_be_noticed(tmp_path, monkeypatch):
    """It is as fresh, and no test of two runs tells it apart."""
    keys = iter(range(9))
    monkeypatch.setattr(Gate, "_source", lambda self, *_purpose: Seeded(stream_key(next(keys), "fresh")))
    with pytest.raises(AssertionError):
        test_a_deployment_draws_from_a_source_that_nobody_can_repeat(tmp_path)
    noise, drawn = noise_and_words(tmp_path / "other", monkeypatch)
    assert np.all(noise != 0)
    assert drawn == []
