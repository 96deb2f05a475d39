"""Noise is drawn anew at every call and added to every entry; events say what was added over what can move."""

import copy
import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st
from privacy_loss import seeded

from tacit.boundary import events
from tacit.boundary.discrete import discrete_gaussian
from tacit.boundary.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Skellam
from tacit.boundary.query import Rows
from tacit.boundary.randomness import Keyed, Secure, Seeded
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import stream_key

DISCRETE = [Skellam, DiscreteGaussian, DiscreteLaplace]


def blocks():
    return {"users": np.zeros((50, 4), dtype=np.float32), "items": np.ones((30, 4), dtype=np.float64)}


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
    with pytest.raises(PrivacyRefused, match="protects no one"):
        mechanism(amount)


KEY, OTHER = stream_key(7, "party-1", 3, "noise"), stream_key(8, "party-1", 3, "noise")
SOURCES = {"seeded": lambda: Seeded(KEY), "secure": Secure}


@pytest.fixture(params=SOURCES)
def source(request):
    return SOURCES[request.param]()


def test_shapes_and_dtypes(source):
    assert (source.words(5).dtype, source.uniform(4).dtype) == (np.uint64, np.float64)
    assert (source.integers(10, 7).dtype, source.normal(3).dtype) == (np.int64, np.float32)
    assert (source.uniform((2, 3)).shape, source.normal((3, 2, 1)).shape, source.normal(()).shape) == (
        (2, 3),
        (3, 2, 1),
        (),
    )
    assert source.words(0).size == source.uniform((0, 3)).size == source.integers(5, 0).size == source.normal(0).size


def test_no_two_calls_give_the_same(source):
    drawn = np.concatenate([source.words(n) for n in (1, 2, 3, 1000, 70_000, 1000, 1)])
    assert len(np.unique(drawn)) == len(drawn)
    noise = np.concatenate([source.normal(1000) for _ in range(5)]).reshape(5, 1000)
    assert np.all(np.abs(np.corrcoef(noise) - np.eye(5)) < 5 / np.sqrt(1000))


@given(st.data())
@settings(deadline=None, max_examples=50)
@pytest.mark.parametrize("kind", SOURCES)
def test_integers_stay_below_their_own_bound(kind, data):
    highs = data.draw(st.lists(st.one_of(st.integers(1, 3), st.integers(1, 2**63 - 1)), max_size=20))
    drawn = SOURCES[kind]().integers(np.array(highs, dtype=np.int64), len(highs))
    assert np.all((drawn >= 0) & (drawn < np.array(highs, dtype=np.int64)))


@pytest.mark.parametrize("high", [0, -1])
def test_integers_below_nothing_are_refused(source, high):
    with pytest.raises(UsageError, match="at least 1"):
        source.integers(high, 3)


def everything(source):
    floats = [source.normal(5)] if isinstance(source, Seeded) else []
    return [source.words(5), source.uniform(5), source.integers(1000, 5), discrete_gaussian(source, 1e6, 9), *floats]


@pytest.mark.parametrize("make", [Seeded, Keyed])
def test_the_same_key_gives_the_same_and_another_one_another(make):
    for a, b, c in zip(*(everything(make(key)) for key in (KEY, KEY, OTHER)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.array_equal(a, c)
    assert make(KEY).simulated == (make is Seeded)


@pytest.mark.parametrize("make", [Seeded, Keyed])
@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), "x" * 32, bytearray(32), 7, None])
def test_a_key_is_32_bytes(make, key):
    with pytest.raises(UsageError, match="32 bytes"):
        make(key)


def test_two_secure_sources_never_agree(monkeypatch):
    """32 sources, 200 words each: not one word in common (chance of one: 2⁻⁴⁰); with a key that repeats, all are."""
    drawn = np.concatenate([Secure().words(200) for _ in range(32)])
    assert len(np.unique(drawn)) == len(drawn)
    assert not Secure().simulated
    monkeypatch.setattr(os, "urandom", lambda n: stream_key(7, "fixed")[:n])
    np.testing.assert_array_equal(Secure().words(200), Secure().words(200))


@pytest.mark.parametrize("seed", [7, KEY, None])
def test_a_secure_source_cannot_be_seeded(seed):
    with pytest.raises(PrivacyRefused, match="cannot be seeded"):
        Secure(seed)


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("make", [Secure, lambda: Keyed(KEY)])
def test_a_private_source_cannot_be_copied_or_stored(make, copier):
    source = make()
    source.words(1)
    with pytest.raises(PrivacyRefused, match="copied or stored"):
        copier(source)


@pytest.mark.parametrize(
    "broken",
    [
        lambda n: (_ for _ in ()).throw(OSError("no entropy")),
        lambda n: (_ for _ in ()).throw(NotImplementedError("none")),
        lambda n: b"",
        lambda n: bytes(n),
        lambda n: b"\xff" * n,
        lambda n: os.getrandom(n - 1) if hasattr(os, "getrandom") else b"x",
    ],
)
def test_without_the_operating_systems_randomness_nothing_is_drawn(broken, monkeypatch):
    source = Secure()
    monkeypatch.setattr(os, "urandom", broken)
    for draw in (lambda: source.words(3), lambda: source.normal(3), lambda: source.integers(4, 3)):
        with pytest.raises(PrivacyRefused, match="operating system"):
            draw()


def test_the_key_is_in_no_attribute(monkeypatch):
    monkeypatch.setattr(os, "urandom", lambda n: KEY[:n])
    for source in (Secure(), Keyed(KEY)):
        source.words(4)
        assert all(value != KEY for value in vars(source).values())
        assert KEY.hex() not in repr(source) + repr(vars(source))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_draws_something_else():
    source = Secure()
    source.words(3)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, source.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 32) != source.words(4).tobytes()
    os.close(reading)
    os.close(writing)


def test_threads_share_a_secure_source_without_repeats():
    source = Secure()
    with ThreadPoolExecutor(4) as pool:
        drawn = np.concatenate(list(pool.map(source.words, [5000] * 40)))
    assert len(np.unique(drawn)) == len(drawn)


def test_a_secure_source_stops_before_its_counter_comes_round(monkeypatch):
    monkeypatch.setattr(Secure, "_MOST_BLOCKS", 100)
    source = Secure()
    source.words(100)
    with pytest.raises(PrivacyRefused, match="make a new one"):
        source.words(100)


@pytest.mark.parametrize("cut", [[1000], [1, 2, 3, 994], [500, 0, 500], [999, 1]])
@pytest.mark.parametrize("make", [Secure, lambda: Keyed(KEY)])
def test_the_words_are_aes_256_in_counter_mode_however_they_are_cut(make, cut, monkeypatch):
    """Wiping the key after use must not wipe it before."""
    monkeypatch.setattr(os, "urandom", lambda n: KEY[:n])
    stated = Cipher(algorithms.AES(KEY), modes.CTR(bytes(16))).encryptor().update(bytes(8000))
    source = make()
    drawn = np.concatenate([source.words(n) for n in cut])
    assert drawn.dtype == np.uint64
    np.testing.assert_array_equal(drawn, np.frombuffer(stated, dtype="<u8"))


def test_it_has_no_gaussians():
    x = np.zeros(3)
    for draw in (lambda s: s.add_normal(x, 1.0), lambda s: s.normal(3), lambda s: s.noised_rows(3, [0], x[None], 1.0)):
        with pytest.raises(PrivacyRefused, match="Skellam"):
            draw(Keyed(KEY))
    assert not x.any()
