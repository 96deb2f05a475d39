"""What the gate holds to by itself under a guarantee that does not say SIMULATED, whatever a plan says."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from stated import gate_of as protected
from stated import grid_of, promise, step_terms

from tacit.aggregation.ideal import Ideal
from tacit.boundary import Gate
from tacit.boundary import mechanisms as noise_module
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import SEALED
from tacit.boundary.randomness import Secure, Seeded
from tacit.boundary.wire import decode
from tacit.errors import PrivacyRefused
from tacit.partition import Setting
from tacit.rng import stream_key
from tacit.secure.masks import unpack

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


# -- the noise of a sum -------------------------------------------------------------------------------------------


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


# -- coins --------------------------------------------------------------------------------------------------------


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
    one, other = rounded_twice(tmp_path, monkeypatch, simulated=False)
    assert abs(np.sum(one != other) - CELLS / 2) < 5 * np.sqrt(CELLS) / 2


def test_planted_coins_from_a_seed_would_be_noticed(tmp_path, monkeypatch):
    """A simulation's come from the seed, and fall alike twice."""
    assert_array_equal(*rounded_twice(tmp_path, monkeypatch, simulated=True))


# -- where noise comes from ---------------------------------------------------------------------------------------


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
