"""Add-then-remove, piece by piece: a share has every piece of excess, and what is taken out is what was put in."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from stated import grid_of, step_terms

from tacit.aggregation.secagg import SecAgg
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.endpoint import Endpoint, Peers
from tacit.boundary.mechanisms import Skellam
from tacit.boundary.randomness import Keyed, Seeded
from tacit.federation.messages import pack_parties
from tacit.partition import Setting
from tacit.rng import stream_key
from tacit.secure.noise_shares import NoiseShares

PARTIES, SIZE = 10, 400
SHARES = NoiseShares.of(PARTIES, tolerate=0.3, colluding=1)
SEEDS = tuple(bytes([level]) * 32 for level in range(SHARES.extras))


NAMES = tuple(f"party-{k}" for k in range(1, PARTIES + 1))
SECAGG = SecAgg(Setting.HORIZONTAL, PARTIES, 0.3, 1)
QUERY = Clipped(("x",), 1.0)
TERMS = step_terms(QUERY, 8.0, code=grid_of(QUERY, 4, 8.0), sealed=True)


def grid():
    return TERMS.code


def excess_of(revealed):
    return SECAGG._excess(revealed, SimpleNamespace(terms=TERMS, size=SIZE))


def endpoint(**more):
    """party-1's, for one sum; what it draws comes from one known stream."""
    bare = Endpoint(
        "party-1",
        Peers("run", NAMES),
        "ab" * 32,
        1,
        source=lambda *purpose: Seeded(stream_key(7, "share")),
        seed=lambda *purpose: b"",
        load=lambda name: None,
        save=lambda name, array: None,
        simulate=lambda what: None,
    )
    return replace(bare, **more)


@pytest.fixture
def noised(monkeypatch):
    """A party's vector of zeros with its share of the noise, the pieces' seeds being known."""
    monkeypatch.setattr(SecAgg, "_sealer", lambda self, endpoint: SimpleNamespace(extras=SEEDS))
    return SECAGG.noised(np.zeros(SIZE, dtype=np.int64), TERMS, endpoint())


def test_there_are_pieces_of_excess_to_speak_of():
    assert SHARES.extras == 3
    assert min(SHARES.excess(grid().variance)) > 1


def test_a_share_is_the_base_and_every_piece_of_excess(noised):
    """To the last bit: each piece is the noise of its own seed, at its own variance."""
    base = Skellam(SHARES.base(grid().variance)).sample(SIZE, Seeded(stream_key(7, "share")))
    excess = excess_of({"party-1": dict(enumerate(SEEDS))})
    assert_array_equal(noised, base + excess)
    assert np.count_nonzero(excess) > SIZE / 2


@pytest.mark.parametrize("survivors", [7, 8, 9, 10])
def test_what_so_many_survivors_leave_is_what_they_need(noised, survivors):
    """The pieces that are spared come out; the variance of what stays in, by its own parts, is what is left of it."""
    spare = SHARES.spare(survivors)
    taken = excess_of({"party-1": dict(enumerate(SEEDS[:spare]))})
    stays = Skellam(SHARES.base(grid().variance)).sample(SIZE, Seeded(stream_key(7, "share")))
    for variance, seed in list(zip(SHARES.excess(grid().variance), SEEDS, strict=True))[spare:]:
        stays = stays + Skellam(variance).sample(SIZE, Keyed(seed))
    assert_array_equal(noised - taken, stays)
    honest = survivors - SHARES.colluding
    assert honest / survivors * SHARES.remaining_variance(grid().variance, survivors) >= grid().variance


def test_every_partys_revealed_pieces_are_taken_out():
    revealed = {f"party-{k}": {0: bytes([k]) * 32, 1: bytes([90 + k]) * 32} for k in (1, 2)}
    both = excess_of(revealed)
    assert_array_equal(both, sum(excess_of({name: seeds}) for name, seeds in revealed.items()))
    assert_array_equal(excess_of({}), np.zeros(SIZE))


@pytest.mark.parametrize("survivors", [7, 8, 9, 10])
def test_how_many_pieces_are_revealed_follows_from_the_list(monkeypatch, survivors):
    revealed = []

    def unmask(listed, reveal, signed):
        revealed.append((list(listed), list(reveal)))
        return b"answer"

    monkeypatch.setattr(SecAgg, "_sealer", lambda self, endpoint: SimpleNamespace(unmask=unmask, state=lambda: b""))
    SECAGG.answer("unmask", {"context": "ab" * 32, "survivors": pack_parties(NAMES[:survivors], NAMES)}, endpoint())
    assert revealed == [(list(NAMES[:survivors]), list(range(SHARES.spare(survivors))))]
