"""Noise that was drawn is charged, whatever becomes of the release: by every way out, once."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary.events import Gaussian, Pure, Skellam
from tacit.boundary.gate import Gate
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection, Terms
from tacit.boundary.sealed import Grid
from tacit.errors import BadMessage
from tacit.guarantee import Guarantee, Relation, Trust, Unit
from tacit.secure.quantize import Pieces, Rounding

Z, CELLS = 5.0, 3
GUARANTEE = Guarantee(4.0, 1e-6, Unit.USER, Relation.ZERO_OUT, Trust.SILO, "everyone", True)


class Planted(Exception):
    """What fails, and when: an update, an agreement."""


class Ones:
    """A sum of one user's ones; also a problem, and a report."""

    sampling, epsilon = 1.0, 0.5

    def sensitivity(self, unit, relation):
        return math.sqrt(CELLS)

    def exact(self, state, stream):
        return {"x": np.ones(CELLS)}

    __call__ = exact

    def chunks(self, state, stream):
        yield Pieces(np.array([0, CELLS]), np.arange(CELLS), np.ones(CELLS), CELLS)

    def reports(self, stream, coins):
        return {"bit": np.zeros(1, dtype=np.int32)}

    def event(self, multiplier):
        return Gaussian(multiplier, 1)

    def blank(self):
        return {"x": np.zeros(CELLS)}

    def minimisers(self, linear, multiplier, stream):
        return {"x": linear["x"].astype(np.float32)}


def broken_update(state, noised, step):
    raise Planted


def moved(state, noised, step):
    return {"x": noised["x"].astype(np.float32)}


WHOLE = Grid(Rounding.fine(math.sqrt(CELLS), CELLS), 1.0, Z, 32, None, own=True)
WAYS = {
    "chain": (lambda gate: gate.chain(Ones(), moved, {}, 2, ("x",)), Gaussian(Z, 2), {}),
    "solve": (lambda gate: gate.solve(Ones()), Gaussian(Z, 1), {}),
    "sum": (lambda gate: gate.sum(Ones()), Gaussian(Z, 1), {}),
    "sum of whole numbers": (lambda gate: gate.sum(Ones()), WHOLE.event(1.0, 1), {"grids": {"tell": WHOLE}}),
    "report": (lambda gate: gate.report(Ones()), Pure(0.5, "reports"), {"reports": {"tell": Pure(0.5, "reports")}}),
}
EVERY = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def ledger(tmp_path):
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    yield ledger
    ledger.close()


def gate_of(ledger, event, more):
    twice = tuple(replace(event, count=2 * event.count) for event in (event,))
    terms = Terms(GUARANTEE, Z, {"tell": 2}, twice, **more)
    return Gate("party-1", 7, {}, protection=Protection(terms, ledger, Budget(40.0, 1e-6), "run", 7))


def disagree(kind, payload):
    raise BadMessage("planted")


@EVERY
def test_noise_whose_release_is_not_as_agreed_is_charged(ledger, way):
    leave, event, more = WAYS[way]
    gate = gate_of(ledger, event, more)
    with pytest.raises(BadMessage, match="planted"), gate.serving("tell", 1, 0, "ab" * 32, agreed=disagree):
        leave(gate)
    assert [row.spent for row in ledger.rows()] == [event]
    assert isinstance(event, (Gaussian, Skellam, Pure))


@EVERY
def test_a_release_that_leaves_is_charged_once(ledger, way):
    leave, event, more = WAYS[way]
    gate = gate_of(ledger, event, more)
    with gate.serving("tell", 1, 0, "ab" * 32):
        assert gate.made(leave(gate))
    assert [row.spent for row in ledger.rows()] == [event]


def test_a_chain_whose_update_fails_is_charged_whole(ledger):
    gate = gate_of(ledger, Gaussian(Z, 2), {})
    with pytest.raises(Planted), gate.serving("tell", 1, 0, "ab" * 32):
        gate.chain(Ones(), broken_update, {}, 2, ("x",))
    assert [row.spent for row in ledger.rows()] == [Gaussian(Z, 2)]


def test_what_is_owed_counts_towards_the_schedule(ledger):
    """Two releases were planned for; two that failed leave none."""
    gate = gate_of(ledger, Gaussian(Z, 2), {})
    for round in (1, 2):
        with pytest.raises(Planted), gate.serving("tell", round, 0, f"{round:064}"):
            gate.chain(Ones(), broken_update, {}, 2, ("x",))
    with pytest.raises(Exception, match="the run's guarantee covers 2"), gate.serving("tell", 3, 0, f"{3:064}"):
        gate.chain(Ones(), moved, {}, 2, ("x",))
    assert len(ledger.rows()) == 2


def test_a_refusal_before_any_noise_costs_nothing(ledger):
    gate = gate_of(ledger, Gaussian(Z, 1), {})
    with pytest.raises(Exception, match="more in step"), gate.serving("tell", 1, 0, "ab" * 32):
        gate.chain(Ones(), moved, {}, 3, ("x",))
    assert ledger.rows() == []
