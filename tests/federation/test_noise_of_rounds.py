"""Every round's sum has noise of its own, share by share, and a share that was drawn is charged though nothing left."""

import numpy as np
import pytest
from secure_stage import Stage
from stated import gate_of, grid_of, promise, step_terms

from tacit.aggregation.ideal import HiddenSum
from tacit.aggregation.secagg import SecAgg
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.code import SEALED
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.errors import PrivacyRefused, TacitError
from tacit.prepare.loaded import prepare
from tacit.prepare.simulate import train
from tacit.prepare.simulated_ledgers import Records


def test_two_rounds_shares_have_nothing_in_common(monkeypatch):
    """Neither the piece that stays nor the seeds of those that may be revealed, for the same party and step."""
    stage, seen, noised = Stage(), [], SecAgg.noised

    def noted(self, exact, terms, endpoint):
        if endpoint.party == "party-1":
            words = endpoint.source("noise", 0).words(4).tolist()  # the piece that stays grows from these
            seen.append((words, self._party(endpoint).extras))
        return noised(self, exact, terms, endpoint)

    monkeypatch.setattr(SecAgg, "noised", noted)
    stage.sum()
    stage.sum()
    (first, extras), (second, others) = seen
    assert first != second
    assert extras
    assert not set(extras) & set(others)


def test_a_share_that_was_drawn_and_never_left_is_charged(monkeypatch):
    stage = Stage()

    def seal(self, vector, terms, endpoint):
        raise PrivacyRefused("planted")

    monkeypatch.setattr(SecAgg, "seal", seal)
    with pytest.raises(TacitError):
        stage.sum()
    charged = [row.spent for row in stage.ledger("party-1").rows() if row.step == "contribute"]
    assert charged == [stage.grid.event(1.0, 1)]


def test_ones_own_noise_on_whole_numbers_is_drawn_anew(tmp_path):
    query = Clipped(("x",), 1.0)
    terms = promise(step_terms(query, 4.0, releases=2, code=grid_of(query, 60, 4.0)))
    gate, bodies = gate_of(tmp_path, terms), []
    for round in (1, 2):
        with gate.serving("tell", round, 0, f"{round:064}"):
            nothing = {"x": np.zeros((1, 60))}, np.ones(1, dtype=np.int64)
            bodies.append(decode(gate.sum(*nothing).body)[SEALED])
    assert np.count_nonzero(bodies[0] != bodies[1]) > 30


def test_a_simulated_sums_noise_is_drawn_anew(tmp_path, monkeypatch):
    drawn, added = [], HiddenSum._shared_noise

    def noted(*given):
        drawn.append(added(*given))
        return drawn[-1].copy()

    monkeypatch.setattr(HiddenSum, "_shared_noise", noted)
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
