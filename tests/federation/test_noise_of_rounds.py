"""Every round's sum has noise of its own, share by share, and a share that was drawn is charged though nothing left."""

import numpy as np
import pytest
from tacit.boundary.sealed import SEALED, Grid
from tacit.boundary.seals import Seals
from test_secure_sums import Stage

from tacit.boundary.gate import Gate
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import Budget, Protection, Terms
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.errors import PrivacyRefused, TacitError
from tacit.federation import sums
from tacit.guarantee import Guarantee, Relation, Trust, Unit
from tacit.prepare.data import prepare
from tacit.prepare.records import Records
from tacit.prepare.simulate import train
from tacit.secure.quantize import Rounding


def test_two_rounds_shares_have_nothing_in_common(monkeypatch):
    """Neither the piece that stays nor the seeds of those that may be revealed, for the same party and step."""
    stage, seen, noised = Stage(), [], Seals.noised

    def noted(self, vector, grid, source, context):
        if self.party == "party-1":
            words = source.words(4).tolist()  # the piece that stays grows from these
            seen.append((words, self._sealer(context).extras))
        return noised(self, vector, grid, source, context)

    monkeypatch.setattr(Seals, "noised", noted)
    stage.sum()
    stage.sum()
    (first, extras), (second, others) = seen
    assert first != second
    assert extras
    assert not set(extras) & set(others)


def test_a_share_that_was_drawn_and_never_left_is_charged(monkeypatch):
    stage = Stage()

    def masked(self, vector, bits, context):
        raise PrivacyRefused("planted")

    monkeypatch.setattr(Seals, "masked", masked)
    with pytest.raises(TacitError):
        stage.sum()
    grid = stage.plan.terms.grids["contribute"]
    charged = [row.spent for row in stage.ledger("party-1").rows() if row.step == "contribute"]
    assert charged == [grid.event(1.0, 1)]


class Ones:
    sampling = 1.0

    def sensitivity(self, unit, relation):
        return 1.0


def test_ones_own_noise_on_whole_numbers_is_drawn_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(Gate, "_whole", lambda self, query, grid: np.zeros(60, dtype=np.int64))
    grid = Grid(Rounding.fine(1.0, 4), 1.0, 4.0, 32, None, own=True)
    promise = Guarantee(4.0, 1e-6, Unit.USER, Relation.ZERO_OUT, Trust.SILO, "everyone", True)
    terms = Terms(promise, 4.0, {"tell": 2}, (grid.event(1.0, 2),), grids={"tell": grid})
    ledger = Ledger(tmp_path / "party-1.sqlite", "party-1")
    gate = Gate("party-1", 7, {}, protection=Protection(terms, ledger, Budget(50.0, 1e-6), "run", 7))
    bodies = []
    for round in (1, 2):
        with gate.serving("tell", round, 0, f"{round:064}"):
            bodies.append(decode(gate.sum(Ones()).body)[SEALED])
    ledger.close()
    assert np.count_nonzero(bodies[0] != bodies[1]) > 30


def test_a_simulated_sums_noise_is_drawn_anew(tmp_path, monkeypatch):
    drawn, added = [], sums.added_noise

    def noted(*given):
        drawn.append(added(*given))
        return drawn[-1].copy()

    monkeypatch.setattr(sums, "added_noise", noted)
    file = RunFile.model_validate(
        {
            "data": {"source": "demo", "users": 20, "items": 8, "ratings": 100},
            "partition": {"by": "device"},
            "method": {"name": "sgdmf", "factors": 2, "rounds": 2},
            "privacy": {"epsilon": 4.0, "delta": 1e-4},
            "aggregation": {"name": "ideal"},
        }
    )
    prepared = prepare(file)
    train(prepared.run, prepared.parties, records=Records.unlimited(prepared.run, tmp_path))
    first, second = drawn
    assert np.count_nonzero(first != second) > 8
