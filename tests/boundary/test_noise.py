"""Mechanisms add noise to every entry, anew at every call, and their events say what was added over what can move."""

import math

import numpy as np
import pytest

from tacit.boundary import events
from tacit.boundary.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Skellam
from tacit.boundary.query import Rows
from tacit.boundary.randomness import Secure, Seeded
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import stream_key

DISCRETE = [Skellam, DiscreteGaussian, DiscreteLaplace]


def seeded(*purpose):
    return Seeded(stream_key(7, "mechanism", *purpose))


def blocks():
    return {"users": np.zeros((50, 4), dtype=np.float32), "items": np.ones((30, 4), dtype=np.float64)}


# -- Gaussian ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [seeded, Secure])
def test_gaussian_noise_is_added_in_place_to_every_entry_of_every_block(make):
    given = blocks()
    found = Gaussian(2.0).add(given, make())
    assert all(found[name] is given[name] for name in given)
    assert found["users"].dtype == np.float32
    assert found["items"].dtype == np.float64
    for name, was in blocks().items():
        assert np.count_nonzero(found[name] == was) == 0
        assert np.std(found[name] - was) == pytest.approx(2.0, rel=0.3)


def test_the_order_of_blocks_does_not_matter():
    one = Gaussian(1.0).add(blocks(), seeded("order"))
    other = Gaussian(1.0).add(dict(reversed(blocks().items())), seeded("order"))
    for name in one:
        np.testing.assert_array_equal(one[name], other[name])


def touched():
    """A block of 400 rows, three of which are other than 0, and one that is whole."""
    rows = np.array([0, 7, 399])
    return {"items": Rows(400, rows, np.full((3, 4), 3.0)), "users": np.full((50, 4), 1e6 + 1e-3)}


def test_what_is_0_but_in_a_few_rows_gets_the_noise_of_the_whole():
    whole = {name: x.dense() if isinstance(x, Rows) else x for name, x in touched().items()}
    wanted = Gaussian(2.0).add(whole, seeded("rows"))
    found = Gaussian(2.0).noised(dict(reversed(touched().items())), seeded("rows"))
    assert found.keys() == wanted.keys()
    for name, block in found.items():
        assert block.dtype == np.float32
        np.testing.assert_array_equal(block, wanted[name].astype(np.float32))
    given = touched()["users"]
    assert np.all(given == 1e6 + 1e-3), "the exact answer is left alone"


@pytest.mark.parametrize("make", [seeded, Secure])
def test_rows_that_nobody_touched_are_noised_too(make):
    """n = 1,600 cells, five standard deviations of a sample's; a false alarm in about two million."""
    found = Gaussian(2.0).noised(touched(), make())["items"]
    found[[0, 7, 399]] -= 3
    assert np.all(found != 0)
    assert np.std(found) == pytest.approx(2.0, abs=5 * 2.0 / np.sqrt(2 * 1600))


def test_a_block_that_cannot_take_noise_in_place_is_refused_before_any_other_is_touched():
    frozen, other = np.zeros(3, dtype=np.float32), np.zeros(3)
    frozen.flags.writeable = False
    for block in (np.zeros(3, dtype=np.int64), np.zeros((4, 4))[:, :2], frozen, np.zeros(2, dtype=">f4")):
        with pytest.raises(UsageError, match='"odd"'):
            Gaussian(1.0).add({"fine": other, "odd": block}, seeded())
    assert not other.any()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_and_does_not_stay(poison):
    values = np.array([[1.0, poison]])
    with pytest.raises(PrivacyRefused, match="items"):
        Gaussian(1.0).noised({"items": Rows(5, np.array([2]), values)}, seeded())
    assert not values.any()
    for dtype in (np.float32, np.float64):
        block = np.array([0, poison, 1], dtype=dtype)
        with pytest.raises(PrivacyRefused, match="not finite"):
            Gaussian(1.0).add({"g": block}, seeded())
        assert not block.any()


# -- discrete ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", DISCRETE)
@pytest.mark.parametrize("make", [seeded, Secure])
def test_discrete_noise_makes_a_new_array_of_whole_numbers(mechanism, make):
    x = np.full((40, 25), 7, dtype=np.int32)
    y = mechanism(100.0).add(x, make())
    assert y.dtype == np.int64
    assert y.shape == x.shape
    assert np.all(x == 7)
    assert np.count_nonzero(y == 7) < 150  # each with a chance of 0.04 or less
    again = mechanism(100.0).add(x, make("again") if make is seeded else make())
    assert not np.array_equal(y, again)
    for x in (np.zeros(3), np.zeros(3, dtype=bool)):
        with pytest.raises(UsageError, match="quantise"):
            mechanism(2.0).add(x, make())


def test_adding_wraps_around_rather_than_saturate():
    """A wrap costs accuracy; a value at the end of the range that stayed there would cost privacy."""
    x = np.full(1000, 2**63 - 1, dtype=np.int64)
    y = Skellam(100.0).add(x, seeded())
    assert 300 < np.count_nonzero(y < 0) < 700


# -- events --------------------------------------------------------------------------------------------------------


def test_events_are_noise_over_sensitivity():
    assert Gaussian(6.0).event(2.0, count=5) == events.Gaussian(3.0, 5)
    assert Skellam(8.0).event(l1=3.0, l2=2.0) == events.Skellam(8.0, 3.0, 2.0)
    assert DiscreteGaussian(8.0).event(2.0, dimensions=4, shares=3) == events.DiscreteGaussian(8.0, 2.0, 4, 3)
    spent = DiscreteLaplace(6.0).event(2.0, count=2)
    assert isinstance(spent, events.Pure)
    assert spent.epsilon == pytest.approx(1 / 3, rel=1e-15)
    assert spent.epsilon >= 2.0 / 6.0
    assert spent.count == 2
    assert all(events.from_json(events.to_json(make(1.0))) == make(1.0) for make in EVENTS.values())


def test_impossible_integer_answers_and_thin_shares_are_refused():
    with pytest.raises(UsageError, match="ℓ1"):
        Skellam(4.0).event(l1=1.0, l2=2.0)
    with pytest.raises(PrivacyRefused, match="Skellam"):
        DiscreteGaussian(1.9).event(1.0, 3, shares=2)
    assert DiscreteGaussian(2.0).event(1.0, 3, shares=2).shares == 2


EVENTS = {
    "gaussian": lambda s: Gaussian(1.0).event(s),
    "skellam l1": lambda s: Skellam(4.0).event(s, 1.0),
    "skellam l2": lambda s: Skellam(4.0).event(9.0, s),
    "discrete gaussian": lambda s: DiscreteGaussian(4.0).event(s, 3),
    "discrete laplace": lambda s: DiscreteLaplace(4.0).event(s),
}


@pytest.mark.parametrize("sensitivity", [math.inf, math.nan, 0.0, -1.0])
@pytest.mark.parametrize("name", EVENTS)
def test_an_answer_that_nothing_bounds_has_no_event(name, sensitivity):
    with pytest.raises(PrivacyRefused, match="sensitivity"):
        EVENTS[name](sensitivity)


@pytest.mark.parametrize("mechanism", [Gaussian, *DISCRETE])
@pytest.mark.parametrize("amount", [0.0, -1.0, math.nan, math.inf])
def test_noise_that_protects_nobody_is_refused(mechanism, amount):
    with pytest.raises(PrivacyRefused, match="protects nobody"):
        mechanism(amount)
