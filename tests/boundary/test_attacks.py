"""Attacks that once worked, and the rules that stop them: each test states one."""

import os
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace

import numpy as np
import pytest
from stated import DELTA, gate_of, promise, step_terms

from tacit.aggregation.ideal import Ideal
from tacit.boundary import Gate
from tacit.boundary.account import epsilon
from tacit.boundary.clipped_sums import Clipped, Normalised
from tacit.boundary.events import Gaussian
from tacit.boundary.ledger import Ledger
from tacit.boundary.protection import BudgetSpent, total_epsilon
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.engine.inprocess import InProcess
from tacit.errors import BadMessage, PrivacyRefused, TacitError, TamperingFound
from tacit.experiment import run
from tacit.guarantee import Relation
from tacit.methods import bias, chosen
from tacit.prepare.run_file import plan

DATA = {"source": "demo", "users": 400, "items": 60, "ratings": 8000}


def file(**sections):
    base = {
        "data": DATA,
        "partition": {"into": 4},
        "method": {"name": "bias"},
        "privacy": {"epsilon": 1.0, "delta": 1e-6},
    }
    return RunFile.model_validate({"evaluate": {"floor": False}, **base, **sections})


def payload(folder, name):
    return decode((folder / "transcript" / "payloads" / name).read_bytes())


def stacked(blocks):
    return np.concatenate([np.asarray(blocks[n], np.float64) for n in ("errors", "weights")])


def test_two_runs_of_one_seed_under_ideal_do_not_share_their_noise(tmp_path):
    seen = []
    for k, e in enumerate((1.0, 2.0)):  # one kept ledger, budget not exceeded: every party charges both runs
        f = file(
            privacy={"epsilon": e, "delta": 1e-6, "ledger": str(tmp_path / "kept"), "budget": 9.0},
            aggregation={"name": "ideal"},
            engine={"transcript": "full"},
        )
        run(f, tmp_path / f"r{k}")
        z = plan(f, *chosen({"name": "bias"})).multiplier
        seen.append((stacked(payload(tmp_path / f"r{k}", "000000-up-sum.tct")), z))
    (y1, s1), (y2, s2) = seen
    recovered = (s1 * y2 - s2 * y1) / (s1 - s2)  # public numbers only: no seed, no run file
    run(file(privacy=None, engine={"transcript": "full"}), tmp_path / "exact")
    exact = sum(stacked(payload(tmp_path / "exact", f"000000-up-party-{p}.tct")) for p in range(1, 5))
    error = np.abs(recovered - exact).max()
    assert error > 0.1


@pytest.mark.parametrize("case", ["drop-outs", "attribute partition"])
def test_the_noise_holds_against_as_many_colluders_as_the_guarantee_states(case, tmp_path, monkeypatch):
    if case == "drop-outs":
        f = file(partition={"into": 10}, aggregation={"name": "ideal", "collusion": 0.3, "dropout": 0.5})
    else:
        f = file(partition={"by": "gender"}, aggregation={"name": "ideal", "collusion": 0.3})
    noises, real = [], Ideal.noise

    def noted(self, sigma, contributors):
        noises.append((real(self, sigma, contributors), sigma, contributors))
        return noises[-1][0]

    monkeypatch.setattr(Ideal, "noise", noted)
    summary = run(f, tmp_path / "run")
    word = summary["guarantee"]["against"].replace("up to ", "").split("coordinator and ")[1].split()[0]
    stated = 1 if word == "one" else int(word)
    for noise, sigma, contributors in noises:
        share = noise**2 / contributors
        left = noise**2 - min(stated, contributors) * share
        assert left >= sigma**2 * (1 - 1e-9)


def test_a_coordinator_cannot_ask_for_sealed_contributions_one_by_one(tmp_path, monkeypatch):
    got = {}

    def look(self, federation):
        for _ in federation.rounds(1):
            got.update(federation.ask("contribute"))
        raise PrivacyRefused("done looking")

    monkeypatch.setattr(bias.BiasCoordinator, "run", look)
    with pytest.raises((BadMessage, PrivacyRefused)):
        run(file(aggregation={"name": "ideal"}), tmp_path / "run")
    assert not got


Z = 2.0


def terms(releases=1, z=Z):
    return promise(step_terms(Clipped(("x",), 1.0), z, releases=releases))


def gate(path, t=None, budget=100.0, run="run-1"):
    return gate_of(path, t or terms(), budget=budget, run=run)


def q(value=0.0, cells=50):
    return {"x": np.full((1, cells), value)}, np.ones(1, dtype=np.int64)


@pytest.mark.parametrize("aggregation", ["plain", "ideal"])
def test_a_larger_sensitivity_is_met_with_more_noise_or_refused(tmp_path, monkeypatch, aggregation):
    """DESIGN 3.4: the noise follows the one query that is stated, wherever it is added; nobody types a bound in."""
    f = file(aggregation={"name": aggregation})
    small = plan(f, *chosen({"name": "bias"}))
    monkeypatch.setattr(Normalised, "sensitivity", lambda self, unit, relation: 5.0)
    large = plan(f, *chosen({"name": "bias"}))
    # in integers Δ₁ grows beside Δ₂, so that a little more than five times as much is needed
    assert large.sigma()["contribute"] == pytest.approx(5 * small.sigma()["contribute"], rel=1e-3)
    seen, real = [], Ideal.noise
    monkeypatch.setattr(Ideal, "noise", lambda self, s, c: seen.append(s) or real(self, s, c))
    run(f, tmp_path / "run")
    assert set(seen) == ({large.sigma()["contribute"]} if aggregation == "ideal" else set())


@pytest.mark.parametrize("claimed", [-1.0, 0.0, np.inf, np.nan])
def test_a_sensitivity_that_bounds_nothing_is_refused(tmp_path, monkeypatch, claimed):
    monkeypatch.setattr(Normalised, "sensitivity", lambda self, unit, relation: claimed)
    with pytest.raises(PrivacyRefused, match="no bound"):
        run(file(), tmp_path / "run")
    assert not (tmp_path / "run" / "ledger").exists()


def test_runs_with_different_units_compose_soundly(tmp_path):
    """Run 1 protects users (Delta 1), run 2 ratings (Delta 2). Per rating run 1's multiplier is z/2, not z."""
    kept = str(tmp_path / "kept")
    one = file(privacy={"epsilon": 2.0, "delta": 1e-6, "unit": "user", "ledger": kept, "budget": 4.5})
    two = file(privacy={"epsilon": 2.0, "delta": 1e-6, "unit": "rating", "ledger": kept, "budget": 4.5})
    run(one, tmp_path / "one")
    z1 = plan(one, *chosen({"name": "bias"})).multiplier
    z2 = plan(two, *chosen({"name": "bias"})).multiplier
    assert epsilon([Gaussian(z1 / 2), Gaussian(z2)], 1e-6, Relation.ZERO_OUT) > 4.5
    with pytest.raises(PrivacyRefused, match="is for another unit"):
        run(two, tmp_path / "two")


def test_two_processes_on_one_ledger_do_not_exceed_the_budget(tmp_path, monkeypatch):
    one = terms().guarantee.epsilon
    gates = [gate(tmp_path, budget=1.1 * one, run=f"run-{k}") for k in (1, 2)]
    one_looks, other_writes = gates
    real, looked = Gate._admitted, []

    def admitted(self, step):  # both look before either writes: what two processes do
        event = real(self, step)
        if self is one_looks and not looked:
            looked.append(True)
            with other_writes.serving("tell", 1, 0, "r1"):
                other_writes.sum(*q())
        return event

    monkeypatch.setattr(Gate, "_admitted", admitted)
    with suppress(BudgetSpent), one_looks.serving("tell", 1, 0, "r0"):
        one_looks.sum(*q())
    assert looked
    spent = total_epsilon(gates[0].protection.ledger.rows(), DELTA)
    assert spent <= 1.1 * one


def test_a_run_does_not_trust_a_ledger_that_was_changed(tmp_path):
    kept = {"epsilon": 1.0, "delta": 1e-6, "ledger": str(tmp_path / "kept"), "budget": 1.3}
    run(file(privacy=kept), tmp_path / "one")
    for p in (tmp_path / "kept").glob("*.sqlite"):
        with sqlite3.connect(p) as db:
            db.execute(
                """update releases set event = '{"count":1,"kind":"Gaussian","multiplier":1e9}' where step = 'contribute'"""
            )
        db.close()
    with pytest.raises(TamperingFound):
        run(file(privacy=kept, seed=8), tmp_path / "two")


def test_a_lost_answer_is_not_taken_for_tampering(tmp_path):
    """Three rounds, drop-outs: the party charges what was lost, and its next head is honest."""
    method = {"name": "sgdmf", "factors": 2, "rounds": 3, "local_steps": 1}
    summary = run(file(method=method, aggregation={"name": "plain", "dropout": 0.5}), tmp_path / "run")
    assert summary["rounds"] == 3
    with closing(Ledger.open(tmp_path / "run" / "ledger" / "party-2.sqlite")) as ledger:
        assert [row.step for row in ledger.rows()].count("contribute") == 3  # two of which did not arrive


def test_an_answer_without_a_head_is_noticed_in_a_private_run(tmp_path, monkeypatch):
    real = InProcess._serve
    monkeypatch.setattr(InProcess, "_serve", lambda self, *a: replace(real(self, *a), head="", event="", payload=""))
    with pytest.raises(TacitError):
        run(file(), tmp_path / "run")


def test_a_forged_payload_hash_is_noticed_under_a_sealed_aggregation_too(tmp_path, monkeypatch):
    """A public answer under ideal: its hash is not its body's, and the chain is forged to fit."""
    from tacit.boundary.ledger import next_head

    real, last = InProcess._serve, {}

    def swap(self, party, request, participants):
        a = real(self, party, request, participants)
        if request.step == "contribute":
            last[party.name] = a.head
            return a
        return replace(a, payload="0" * 64, head=next_head(last[party.name], a.event, request.hash, "0" * 64))

    monkeypatch.setattr(InProcess, "_serve", swap)
    with pytest.raises(TamperingFound):
        run(file(aggregation={"name": "ideal"}), tmp_path / "run")


def test_every_file_of_a_ledger_is_for_its_owner_only_while_it_is_open(tmp_path):
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o755)
    old = os.umask(0o022)
    try:
        Ledger(kept / "party-1.sqlite", "party-1")
    finally:
        os.umask(old)
    assert all(p.stat().st_mode & 0o077 == 0 for p in kept.iterdir())


def test_out_does_not_take_over_the_unfinished_run_of_another_file(tmp_path, monkeypatch):

    with monkeypatch.context() as m:
        m.setattr(
            "tacit.experiment._evaluate",
            lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt()),
        )
        with pytest.raises(KeyboardInterrupt):
            run(file(), tmp_path / "run")
    other = file(data={**DATA, "users": 500, "ratings": 9000})
    with pytest.raises(TacitError):
        run(other, tmp_path / "run")


def test_rows_of_this_run_that_its_terms_do_not_hold_still_count(tmp_path):
    """Same run id (same folder), other terms: what the first terms spent is neither 'earlier' nor 'planned'."""
    t1 = terms(releases=2, z=1.0)
    g = gate(tmp_path, t1, budget=100)
    with g.serving("tell", 1, 0, "r1"):
        g.sum(*q())
    t2 = terms(releases=2, z=8.0)
    b = t2.guarantee.epsilon * 1.6
    g2 = gate(tmp_path, t2, budget=b)
    with pytest.raises(PrivacyRefused), g2.serving("tell", 2, 0, "r2"):
        g2.sum(*q())


def test_what_a_party_failed_on_does_not_cross(tmp_path, monkeypatch):
    def crash(self, *a, **k):
        raise KeyError(
            f"user {self.ratings.user_ids[0]} rated {self.ratings.items[:3].tolist()} {self.ratings.values[:3].tolist()}"
        )

    crash.tacit_step = bias.BiasParty.steps["contribute"]
    monkeypatch.setattr(bias.BiasParty, "contribute", crash)
    with pytest.raises(TacitError) as e:
        run(file(), tmp_path / "run")
    assert "rated" not in str(e.value)
