"""`tacit.fit`: the recommended model, private with `epsilon`."""

import pytest

import tacit
from tacit.errors import UsageError
from tacit.guarantee import NON_PRIVATE


@pytest.fixture(scope="module")
def silos():
    return tacit.partition(tacit.load("demo", users=90, items=40, ratings=1500), into=3)


def test_three_silos_share_one_noise_and_keep_the_asked_guarantee(silos):
    model = tacit.fit(silos, epsilon=2)
    assert model.method == "auto"
    assert model.guarantee_.epsilon <= 2
    assert model.guarantee_.unit == "user"
    assert model.guarantee_.trust == "distributed"
    assert len(model.recommend("u1", n=3)) == 3


def test_two_silos_add_noise_of_their_own():
    two = tacit.partition(tacit.load("demo", users=60, items=40, ratings=1000), into=2)
    assert tacit.fit(two, epsilon=2).guarantee_.trust == "silo"


def test_devices_share_one_noise():
    devices = tacit.partition(tacit.load("demo", users=90, items=40, ratings=1500), by="device")
    assert tacit.fit(devices, epsilon=2).guarantee_.trust == "distributed"


def test_without_epsilon_nothing_is_promised(silos):
    assert tacit.fit(silos).guarantee_ == NON_PRIVATE


def test_the_same_seed_gives_the_same_model(silos):
    first, again, other = (tacit.fit(silos, epsilon=2, seed=seed).transcript_.digest for seed in (7, 7, 8))
    assert first == again != other


def test_ratings_that_nobody_holds_are_refused():
    with pytest.raises(UsageError, match=r"tacit\.partition"):
        tacit.fit(tacit.load("demo", users=60, items=40, ratings=1000), epsilon=1)
