"""`bias`, the first private method, in simulation: for users and for single ratings, wherever these are held."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from method_runs import plan_of, run_file

from tacit.boundary import Gate
from tacit.boundary.account import epsilon
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.events import Gaussian
from tacit.boundary.protection import Protection
from tacit.boundary.release import Kind
from tacit.boundary.spec import unprotected
from tacit.boundary.wire import decode
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings, Scale
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.methods import chosen
from tacit.methods.bias import BiasParameters, VerticalBiasParty, estimated, item_biases, specs
from tacit.methods.context import Context
from tacit.model import Model
from tacit.partition import Setting, partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive
from tacit.testing.method_contract import MethodContract

BY_ITEM = {"by": "item", "into": 3}
WHOLE = demo(users=40, items=30, ratings=500)
PARTIES = partition(WHOLE, into=3, by="item")


class TestBias(MethodContract):
    name = "bias"
    seeded = False  # without privacy nothing random crosses
    refused = {("vertical", "secagg"): "bias has none here"}


def private(epsilon=4.0, unit="user", **more):
    return {"epsilon": epsilon, "delta": 1e-6, "unit": unit, **more}


def mse(folder, name, **sections) -> float:
    return run(run_file(**sections), folder / name)["metrics"]["mse"]


# -- the guarantee ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("divided", "aggregation", "trust"),
    [
        ({"into": 4}, "plain", "silo"),
        ({"into": 4}, "ideal", "distributed"),
        ({"by": "device"}, "ideal", "distributed"),
        (BY_ITEM, "plain", "silo"),
    ],
)
def test_it_keeps_its_guarantee_everywhere_and_ratings_cost_less_than_users(tmp_path, divided, aggregation, trust):
    """Per rating is the weaker promise at the same ε, and must buy accuracy."""
    errors = {}
    for unit in ("rating", "user"):
        there = {"partition": divided, "aggregation": {"name": aggregation}, "privacy": private(1.0, unit)}
        summary = run(run_file(**there), tmp_path / unit)
        promised, errors[unit] = summary["guarantee"], summary["metrics"]["mse"]
        assert (promised["unit"], promised["relation"], promised["model"]) == (unit, "zero-out", trust)
        assert 0.99 < promised["epsilon"] <= 1.0
        assert promised["simulated"] is True
    assert errors["rating"] < errors["user"]


def test_one_answer_with_noise_for_one_rating_is_the_whole_cost():
    made = plan_of(run_file(privacy=private(1.0, "rating")))
    z, (terms,) = made.multiplier, made.terms.steps.values()
    assert terms.query == Deviations(Scale(1, 5), 0.7)
    assert terms.sensitivity == np.hypot(2.0, 0.7)
    assert terms.event == Gaussian(z, 1)
    assert made.terms.events == (Gaussian(z, 1),)
    assert made.sigma() == {"contribute": z * terms.sensitivity}
    assert float(epsilon([Gaussian(z)], 1e-6, Relation.ZERO_OUT)) == pytest.approx(1.0, rel=1e-4)


def test_users_are_protected_by_sums_of_length_one():
    (terms,) = plan_of(run_file()).terms.steps.values()
    assert terms.query == Normalised(("errors", "weights"))
    assert terms.sensitivity == 1.0


def test_one_party_without_budget_stops_the_run_or_has_no_part_in_it(tmp_path, monkeypatch):
    real = Protection.would_reach
    monkeypatch.setattr(Protection, "would_reach", lambda self: 99.0 if self.ledger.party == "party-2" else real(self))
    with pytest.raises(PrivacyRefused, match="party-2 refuses"):
        run(run_file(privacy=private(on_refusal="stop")), tmp_path / "stop")
    run(run_file(), tmp_path / "continue")
    messages = pq.read_table(tmp_path / "continue" / "transcript" / "messages.parquet").to_pylist()
    refused = [(m["party"], m["step"]) for m in messages if m["status"] == "refused"]
    assert refused == [("party-2", "contribute"), ("party-2", "finish")]
    run(run_file(partition=BY_ITEM), tmp_path / "vertical")
    biases = Model.load(tmp_path / "vertical").form.base
    assert np.count_nonzero(biases == 0.0) == 20  # its items are left to their users' levels


def test_a_kept_ledger_is_bound_to_its_unit(tmp_path):
    kept = {"ledger": str(tmp_path / "ledgers"), "budget": 50.0}
    run(run_file(privacy=private(**kept)), tmp_path / "first")
    with pytest.raises(PrivacyRefused, match="another unit"):
        run(run_file(privacy=private(unit="rating", **kept)), tmp_path / "second")


# -- what leaves ------------------------------------------------------------------------------------------------------


def silo(ratings: Ratings) -> VerticalBiasParty:
    """The first silo with these ratings, unprotected."""
    facts, parameters = Facts.of(PARTIES, 7), BiasParameters()
    public = PublicFacts(facts.users, facts.items, facts.scale, facts.ratings)
    (spec,) = specs(parameters, Context(public, Setting.VERTICAL, 3, None))
    gate = Gate("party-1", 7, {}, terms=unprotected({"contribute": (spec, Kind.CHAIN)}))
    return VerticalBiasParty(replace(PARTIES[0], ratings=ratings), parameters, facts, gate)


def test_what_leaves_is_a_function_of_the_noised_sums_alone(monkeypatch):
    """Two silos with other ratings and the same answer let out the same bytes."""
    mine = PARTIES[0].ratings
    fixed = silo(mine).gate.terms.steps["contribute"].query.over(*silo(mine)._query_data())
    monkeypatch.setattr(Normalised, "over", lambda self, *data, **options: fixed)
    bodies = []
    for ratings in (mine, replace(mine, values=(6 - mine.values).astype(np.float32))):
        party = silo(ratings)
        with party.gate.serving("contribute", 1, 0, "request"):
            bodies.append(party.contribute().body)
    assert bodies[0] == bodies[1]
    assert list(decode(bodies[0])) == ["biases"]


def test_one_message_leaves_each_silo_and_nothing_of_the_others_comes_back(tmp_path):
    run(run_file(partition=BY_ITEM, engine={"transcript": "full"}), tmp_path / "run")
    messages = pq.read_table(tmp_path / "run" / "transcript" / "messages.parquet").to_pylist()
    assert [m["party"] for m in messages if m["direction"] == "up"] == ["party-1", "party-2", "party-3"]
    payloads = tmp_path / "run" / "transcript" / "payloads"
    assert all(decode(path.read_bytes()) == {} for path in payloads.glob("*-down*"))
    sizes = [decode(path.read_bytes())["biases"].shape for path in sorted(payloads.glob("*-up-*"))]
    assert sum(n for (n,) in sizes) == 60


# -- what is estimated ------------------------------------------------------------------------------------------------


def test_biases_are_found_under_noise():
    """m = 3,000 items with planted biases of standard deviation 0.5 and a popularity tail."""
    stream = derive(7, "planted")
    S = stream.gamma(0.6, 30, 3000)
    b = stream.normal(0.1, 0.5, 3000)
    sigma = 2.0
    A = S * b + stream.normal(0, sigma, 3000)
    noised = S + stream.normal(0, sigma / 0.7, 3000)
    found = item_biases(A, noised, sigma, sigma / 0.7)
    assert np.corrcoef(found, b)[0, 1] > 0.75
    assert np.mean((found - b) ** 2) < np.mean((b - b.mean()) ** 2) * 0.6
    popular = S > 40
    assert np.mean((found - b)[popular] ** 2) < 0.05


@pytest.mark.parametrize(("low", "high"), [(1.0, 5.0), (-10.0, 10.0), (0.0, 1.0)])
def test_biases_are_found_under_noise_on_any_scale(low, high):
    """m = 2,000 items with a popularity tail and a global mean off the middle; s in proportion to the scale."""
    span, stream = high - low, derive(7, "planted")
    counts = stream.gamma(0.6, 200, 2000).round()
    b = span / 8 * stream.normal(1.0, 0.8, 2000).clip(-4, 4)
    s, sigma = 0.7 * span / 4, 8.0 * span / 4
    noised = {
        "errors": counts * b + np.sqrt(counts) * span / 4 * stream.normal(size=2000) + stream.normal(0, sigma, 2000),
        "weights": s * counts + stream.normal(0, sigma, 2000),
    }
    known = Facts.of(partition(demo(users=20, items=10, ratings=60), into=2), 7)
    facts = replace(known, scale=Scale(low, high), unit=Unit.RATING)
    found = estimated(noised, sigma, BiasParameters(count_weight=s), facts) / span
    truth = b / span
    assert np.mean((found - truth) ** 2) < 0.5 * np.var(truth)
    seldom, often = counts < 3, counts > 300
    assert np.mean((found - truth)[often] ** 2) < 0.02 * np.var(truth)
    assert abs(found[seldom].mean() - np.average(truth, weights=counts)) < 0.02  # they get the global mean
    assert np.abs(found).max() <= 0.5


@pytest.mark.parametrize(
    ("divided", "aggregation", "unit"),
    [({"into": 4}, "ideal", "user"), ({"into": 4}, "ideal", "rating"), (BY_ITEM, "plain", "user")],
)
def test_it_beats_item_means_privacy_costs_and_noise_that_goes_away_is_none(tmp_path, divided, aggregation, unit):
    """A sweep towards no noise ends at no noise: ε = 200 and 1e6 within 2 % of none; 0.2 is worse than 50."""
    there = {"partition": divided, "aggregation": {"name": aggregation}}
    means = mse(tmp_path, "means", partition=divided, privacy=None, method={"name": "item-mean"})
    exact = mse(tmp_path, "none", partition=divided, privacy=None)
    noised = {e: mse(tmp_path, str(e), **there, privacy=private(e, unit)) for e in (0.2, 50.0, 200.0, 1e6)}
    limit = [exact, noised[200.0], noised[1e6]]
    assert exact < 0.97 * means
    assert noised[0.2] > noised[50.0]
    assert max(limit) < 1.02 * min(limit)


def test_one_noise_for_all_is_better_than_each_its_own(tmp_path):
    """On average over four seeds: one draw of little noise may be unlucky."""
    own, one = (
        sum(mse(tmp_path, f"{name}{seed}", seed=seed, aggregation={"name": name}) for seed in range(4))
        for name in ("plain", "ideal")
    )
    assert one < own


def test_one_silo_with_all_items_is_one_silo_with_all_users():
    """Without noise both estimate the same biases from the same sums."""
    scores = [
        train(PreparedRun.of(*chosen({"name": "bias"}), Facts.of(whole, 7)), whole).model.form.base
        for whole in (partition(WHOLE, into=1, by=by) for by in ("user", "item"))
    ]
    assert np.allclose(*scores, atol=1e-5)
