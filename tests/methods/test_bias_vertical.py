"""`bias` where items are divided: every silo noises its own items, and one user's s releases compose."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from tacit.boundary import Gate
from tacit.boundary.account import epsilon
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.ledger import Ledger, ledgers_in
from tacit.boundary.release import Kind
from tacit.boundary.spec import unprotected
from tacit.boundary.wire import decode
from tacit.config import RunFile
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings
from tacit.data.synthetic import demo
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.methods import chosen
from tacit.methods.bias import BiasParameters, VerticalBiasParty, specs
from tacit.methods.context import Context, Target
from tacit.partition import Setting, partition
from tacit.prepare import plan as plans
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.run_file import plan

SILOS = 3
DATA = {"source": "demo", "users": 400, "items": 60, "ratings": 8000}
WHOLE = demo(users=40, items=30, ratings=500)
PARTIES = partition(WHOLE, into=SILOS, by="item")


def file(**sections) -> RunFile:
    base = {
        "data": DATA,
        "partition": {"by": "item", "into": SILOS},
        "method": {"name": "bias"},
        "privacy": {"epsilon": 4.0, "delta": 1e-6},
    }
    return RunFile.model_validate({"evaluate": {"floor": False}, **base, **sections})


def silo(
    number: int, ratings: Ratings | None = None, unit: Unit | None = None, **parameters: float
) -> VerticalBiasParty:
    share = PARTIES[number] if ratings is None else replace(PARTIES[number], ratings=ratings)
    facts = replace(Facts.of(PARTIES, 7), unit=unit)
    public = PublicFacts(facts.users, facts.items, facts.scale, facts.ratings)
    target = None if unit is None else Target(1.0, 1e-6, unit)
    (spec,) = specs(BiasParameters(**parameters), Context(public, Setting.VERTICAL, SILOS, target))
    gate = Gate(share.name, 7, {}, terms=unprotected({"contribute": (spec, Kind.CHAIN)}))
    return VerticalBiasParty(share, BiasParameters(**parameters), facts, gate)


def spent(folder) -> float:
    """ε of one answer from every silo, since one user is in all of them; each ledger by itself says so."""
    rows = []
    for path in ledgers_in(folder / "ledger"):
        ledger = Ledger.open(path)
        rows += [row.spent for row in ledger.rows()]
        ledger.close()
    assert len(rows) == SILOS
    true = float(epsilon([replace(row, count=1) for row in rows], 1e-6, Relation.ZERO_OUT))
    assert [float(epsilon([row], 1e-6, Relation.ZERO_OUT)) for row in rows] == [true] * SILOS
    return true


# -- the guarantee --------------------------------------------------------------------------------------------


def test_what_all_silos_released_of_one_user_is_within_the_guarantee(tmp_path):
    summary = run(file(), tmp_path / "run")
    assert summary["guarantee"]["unit"] == "user"
    assert spent(tmp_path / "run") <= summary["guarantee"]["epsilon"] * (1 + 1e-6) <= 4.0 * (1 + 1e-6)
    assert spent(tmp_path / "run") > 3.9  # and nothing of it is wasted


def test_a_plan_that_forgets_the_other_silos_is_noticed(tmp_path, monkeypatch):
    """Planted: one release is counted where a user is in three."""
    honest = plans.event_of
    monkeypatch.setattr(plans, "event_of", lambda query, z, count, *how: honest(query, z, count // 3, *how))
    with pytest.raises(AssertionError):
        test_what_all_silos_released_of_one_user_is_within_the_guarantee(tmp_path)


def test_a_rating_is_in_one_silo():
    made = {unit: plan(file(privacy={"epsilon": 1.0, "unit": unit}), *chosen({"name": "bias"})) for unit in Unit}
    for unit, parties, sensitivity in ((Unit.USER, SILOS, 1.0), (Unit.RATING, 1, np.hypot(2.0, 0.7))):
        (terms,) = made[unit].terms.steps.values()
        assert (terms.parties, terms.sensitivity, made[unit].mixed(terms)) == (parties, sensitivity, 1)
    ratio = made[Unit.USER].multiplier / made[Unit.RATING].multiplier
    assert ratio == pytest.approx(np.sqrt(SILOS), rel=1e-4)


def _asked(party: VerticalBiasParty):
    """What answers the party's step."""
    return party.gate.terms.steps["contribute"].query.over(*party._query_data())


# -- what leaves ----------------------------------------------------------------------------------------------


def test_what_leaves_is_a_function_of_the_noised_sums_alone(monkeypatch):
    """Two silos with other ratings and the same answer let out the same bytes."""
    fixed = _asked(silo(0))
    monkeypatch.setattr(Normalised, "over", lambda self, *data, **options: fixed)
    turned = replace(PARTIES[0].ratings, values=(6 - PARTIES[0].ratings.values).astype(np.float32))
    bodies = []
    for party in (silo(0), silo(0, turned)):
        with party.gate.serving("contribute", 1, 0, "request"):
            bodies.append(party.contribute().body)
    assert bodies[0] == bodies[1]
    assert list(decode(bodies[0])) == ["biases"]


def test_one_message_leaves_each_silo_and_nothing_of_the_others_comes_back(tmp_path):
    run(file(engine={"transcript": "full"}), tmp_path / "run")
    messages = pq.read_table(tmp_path / "run" / "transcript" / "messages.parquet").to_pylist()
    assert [m["party"] for m in messages if m["direction"] == "up"] == ["party-1", "party-2", "party-3"]
    payloads = tmp_path / "run" / "transcript" / "payloads"
    assert all(decode(path.read_bytes()) == {} for path in payloads.glob("*-down*"))
    sizes = [decode(path.read_bytes())["biases"].shape for path in sorted(payloads.glob("*-up-*"))]
    assert sum(n for (n,) in sizes) == 60


# -- how well it does -----------------------------------------------------------------------------------------


def test_one_silo_with_all_items_is_one_silo_with_all_users():
    """Without noise both estimate the same biases from the same sums."""
    from tacit.prepare.simulate import train

    method, parameters = chosen({"name": "bias"})
    scores = [
        train(PreparedRun.of(method, parameters, Facts.of(whole, 7)), whole).model.form.base
        for whole in (partition(WHOLE, into=1, by=by) for by in ("user", "item"))
    ]
    assert np.allclose(*scores, atol=1e-5)


def test_it_beats_item_means_and_more_privacy_costs_more(tmp_path):
    means = run(file(privacy=None, method={"name": "item-mean"}), tmp_path / "means")["metrics"]["mse"]
    errors = [run(file(privacy=None), tmp_path / "none")["metrics"]["mse"]]
    for e in (50.0, 0.2):
        errors.append(run(file(privacy={"epsilon": e, "delta": 1e-6}), tmp_path / str(e))["metrics"]["mse"])
    assert errors[0] < means
    assert errors[0] < errors[1] + 1e-3  # hardly any noise, which may be lucky
    assert errors[1] < errors[2]


def test_a_silo_that_refuses_leaves_its_items_to_their_users_levels(tmp_path, monkeypatch):
    from tacit.boundary.protection import Protection
    from tacit.model import Model

    real = Protection.would_reach
    monkeypatch.setattr(Protection, "would_reach", lambda self: 99.0 if self.ledger.party == "party-2" else real(self))
    summary = run(file(), tmp_path / "run")
    assert summary["setting"] == Setting.VERTICAL
    biases = Model.load(tmp_path / "run").form.base
    assert np.count_nonzero(biases == 0.0) == 20
