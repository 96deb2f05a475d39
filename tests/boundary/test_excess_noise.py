"""Add-then-remove, piece by piece: a share has every piece of excess, and what is taken out is what was put in."""

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from tacit.boundary.sealed import Grid
from tacit.boundary.seals import Circle, Seals, excess_of, marked

from tacit.boundary.noise import Skellam
from tacit.boundary.source import Keyed, Seeded
from tacit.rng import stream_key
from tacit.secure.graph import choose
from tacit.secure.quantize import Rounding
from tacit.secure.shares import Shares

PARTIES, SIZE = 10, 400
SHARES = Shares.of(PARTIES, tolerate=0.3, colluding=1)
SEEDS = tuple(bytes([level]) * 32 for level in range(SHARES.extras))


def grid():
    return Grid(Rounding.fine(1.0, 4), 1.0, 8.0, 32, SHARES)


NAMES = tuple(f"party-{k}" for k in range(1, PARTIES + 1))
CIRCLE = Circle("run", NAMES, choose(PARTIES, 0.3, 1), SHARES)
SEALS = Seals("party-1", CIRCLE, lambda: None, lambda state: None, lambda *purpose: b"")


@pytest.fixture
def noised(monkeypatch):
    """A party's vector of zeros with its share of the noise, the pieces' seeds being known."""
    monkeypatch.setattr(Seals, "_sealer", lambda self, context: SimpleNamespace(extras=SEEDS))
    return SEALS.noised(np.zeros(SIZE, dtype=np.int64), grid(), Seeded(stream_key(7, "share")), "ab" * 32)


def test_there_are_pieces_of_excess_to_speak_of():
    assert SHARES.extras == 3
    assert min(SHARES.excess(grid().variance)) > 1


def test_a_share_is_the_base_and_every_piece_of_excess(noised):
    """To the last bit: each piece is the noise of its own seed, at its own variance."""
    base = Skellam(SHARES.base(grid().variance)).sample(SIZE, Seeded(stream_key(7, "share")))
    excess = excess_of({"party-1": dict(enumerate(SEEDS))}, grid(), SHARES, SIZE)
    assert_array_equal(noised, base + excess)
    assert np.count_nonzero(excess) > SIZE / 2


@pytest.mark.parametrize("survivors", [7, 8, 9, 10])
def test_what_so_many_survivors_leave_is_what_they_need(noised, survivors):
    """The pieces that are spared come out; the variance of what stays in, by its own parts, is what is left of it."""
    spare = SHARES.spare(survivors)
    taken = excess_of({"party-1": dict(enumerate(SEEDS[:spare]))}, grid(), SHARES, SIZE)
    stays = Skellam(SHARES.base(grid().variance)).sample(SIZE, Seeded(stream_key(7, "share")))
    for variance, seed in list(zip(SHARES.excess(grid().variance), SEEDS, strict=True))[spare:]:
        stays = stays + Skellam(variance).sample(SIZE, Keyed(seed))
    assert_array_equal(noised - taken, stays)
    honest = survivors - SHARES.colluding
    assert honest / survivors * SHARES.left(grid().variance, survivors) >= grid().variance


def test_every_partys_revealed_pieces_are_taken_out():
    revealed = {f"party-{k}": {0: bytes([k]) * 32, 1: bytes([90 + k]) * 32} for k in (1, 2)}
    both = excess_of(revealed, grid(), SHARES, SIZE)
    assert_array_equal(both, sum(excess_of({name: seeds}, grid(), SHARES, SIZE) for name, seeds in revealed.items()))
    assert_array_equal(excess_of({}, grid(), SHARES, SIZE), np.zeros(SIZE))


@pytest.mark.parametrize("survivors", [7, 8, 9, 10])
def test_how_many_pieces_are_revealed_follows_from_the_list(monkeypatch, survivors):
    revealed = []

    def unmask(listed, reveal, signed):
        revealed.append((list(listed), list(reveal)))
        return b"answer"

    monkeypatch.setattr(Seals, "_sealer", lambda self, context: SimpleNamespace(unmask=unmask, state=lambda: b""))
    SEALS.unmask("ab" * 32, marked(NAMES[:survivors], NAMES))
    assert revealed == [(list(NAMES[:survivors]), list(range(SHARES.spare(survivors))))]
