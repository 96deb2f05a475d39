"""`gd-dr`: one bit of every device a round, at the ε₀ that the plan allows, and a model that learns from it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from method_runs import plan_of, rows_of, run_file

from tacit.boundary.events import Pure, Shuffled
from tacit.boundary.projected import ProjectedBit, ProjectedGradient
from tacit.boundary.wire import decode, encode
from tacit.config import RunFile
from tacit.data.synthetic import synthesize
from tacit.errors import PeerFailed
from tacit.experiment import run
from tacit.federation import Facts
from tacit.federation.messages import Request
from tacit.methods import chosen
from tacit.methods.baselines import gd_dr
from tacit.methods.baselines.gd_dr import ReducedParameters, even_start, projection_signs
from tacit.partition import partition
from tacit.prepare import plan as plans
from tacit.prepare.loaded import prepare
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.testing.method_contract import MethodContract

QUICK = {"factors": 4, "rounds": 3}


class TestContract(MethodContract):
    name = "gd-dr"
    parameters = QUICK
    never = {"device": ("users",)}
    refused = {("device", "secagg"): "gd-dr has none here"}

    def test_one_party_is_enough(self):
        assert self.fit(partition(self.ratings(), into=1, by="device")).rounds == 3


def file(aggregation="plain", users=200, into=2, unit="user", dropout=0.0, epsilon=2.0, **parameters) -> RunFile:
    return run_file(
        data={"source": "demo", "users": users, "items": 30, "ratings": 10 * users},
        partition={"by": "device", "into": into},
        method={"name": "gd-dr", **QUICK, **parameters},
        privacy={"epsilon": epsilon, "delta": 1e-6, "unit": unit},
        aggregation={"name": aggregation, "dropout": dropout},
    )


def planned(*args, **options):
    return plan_of(file(*args, **options))


def local_epsilon(made) -> float:
    return 1 / made.multiplier


# -- what it costs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["user", "rating"])
def test_every_device_reports_within_its_share_of_epsilon(unit):
    made = planned(rounds=10, unit=unit)
    assert made.terms.events == (Pure(local_epsilon(made), "randomised reports", 10),)
    assert local_epsilon(made) >= 0.2 * (1 - 1e-5)  # T·ε₀ = ε, or better by composition
    assert made.terms.guarantee.epsilon <= 2.0


@pytest.mark.parametrize("unit", ["user", "rating"])
def test_a_shuffle_lets_a_report_tell_more(unit):
    """3,000 devices, ε = 1 and ten rounds: a crowd of 2,099, since three in ten may be missing, and one collude."""
    plain, mixed = (planned(name, users=3000, rounds=10, epsilon=1.0, unit=unit) for name in ("plain", "shuffle"))
    assert mixed.terms.events == (Shuffled(local_epsilon(mixed), 2099, 10),)
    assert local_epsilon(mixed) > 10 * local_epsilon(plain)
    assert mixed.terms.guarantee.epsilon <= 1.0


@pytest.mark.parametrize(("aggregation", "model"), [("plain", "local"), ("shuffle", "shuffled")])
def test_a_run_keeps_its_guarantee_and_a_row_for_every_round(tmp_path, aggregation, model):
    wanted = file(aggregation)
    summary, again = (run(wanted, tmp_path / name) for name in ("one", "two"))
    assert summary["guarantee"]["model"] == model
    assert 0 < summary["guarantee"]["epsilon"] <= 2.0
    assert math.isfinite(summary["metrics"]["mse"])
    assert summary["digest"] == again["digest"]
    made = planned(aggregation)
    kind = Shuffled if aggregation == "shuffle" else Pure
    for rows in rows_of(tmp_path / "one").values():
        assert [row.kind for row in rows] == ["report"] * 3 + ["public"]
        assert {type(row.spent) for row in rows[:3]} == {kind}
        assert sum(row.spent.count for row in rows[:3]) == made.terms.events[0].count == 3
        assert [row.contributors for row in rows[:3]] == [100] * 3


@pytest.mark.parametrize("aggregation", ["plain", "shuffle"])
def test_the_response_is_the_plans(tmp_path, monkeypatch, aggregation):
    """What leaves was randomised at the ε₀ that the ledger was charged with, neither more nor less."""
    seen, real = [], ProjectedGradient.reports

    def noting(self, stream, coins, epsilon):
        seen.append(epsilon)
        return real(self, stream, coins, epsilon)

    monkeypatch.setattr(ProjectedGradient, "reports", noting)
    run(file(aggregation), tmp_path / "run")
    charged = {row.spent for row in rows_of(tmp_path / "run")["party-1"] if row.kind == "report"}
    assert {getattr(event, "local_epsilon", None) or event.epsilon for event in charged} == set(seen)
    assert set(seen) == {local_epsilon(planned(aggregation))}


@pytest.mark.parametrize("part", [2, 1.001])
@pytest.mark.parametrize("aggregation", ["plain", "shuffle"])
def test_planted_a_plan_that_charges_less_than_a_response_tells_is_noticed(tmp_path, monkeypatch, aggregation, part):
    real = plans.event_of
    monkeypatch.setattr(plans, "event_of", lambda query, z, *how: real(query, part * z, *how))
    with pytest.raises(AssertionError):
        test_the_response_is_the_plans(tmp_path, monkeypatch, aggregation)


def test_an_emptied_device_reports_like_the_others():
    """As many reports, and the same coordinates, whether or not somebody has ratings: only her own bit may differ."""
    parties = prepare(file(into=1)).parties
    (share,), facts = parties, Facts.of(parties, 7)
    emptied = replace(share, ratings=share.ratings.keep(share.ratings.users != 5))
    method, parameters = chosen({"name": "gd-dr", **QUICK})
    request = Request("gd-dr", "", "report", 1, 0, encode({"items": even_start(facts, 30, 4, "items"), "t": 0}))
    ready = PreparedRun.of(method, parameters, facts)
    sent = [decode(ready.party(s).answer(request).body) for s in (share, emptied)]
    assert len(sent[0]["bit"]) == len(sent[1]["bit"]) == facts.users
    np.testing.assert_array_equal(sent[0]["coordinate"], sent[1]["coordinate"])
    np.testing.assert_array_equal(np.delete(sent[0]["bit"], 5), np.delete(sent[1]["bit"], 5))


def test_drop_outs_are_noted_where_devices_protect_themselves(tmp_path):
    run(file(dropout=0.3), tmp_path / "run")
    for row in [row for row in rows_of(tmp_path / "run")["party-1"] if row.kind == "report"]:
        assert 40 < row.contributors < 100  # seven standard deviations below 70, and not all
        assert np.unpackbits(np.frombuffer(row.present, np.uint8)).sum() == row.contributors


def test_drop_outs_make_no_smaller_crowd(tmp_path):
    with pytest.raises(PeerFailed, match="passes nothing on below"):
        run(file("shuffle", dropout=0.6), tmp_path / "run")


def test_without_privacy_nothing_is_randomised(monkeypatch):
    seen, real = [], ProjectedGradient.reports
    monkeypatch.setattr(ProjectedGradient, "reports", lambda self, s, c, e: seen.append(e) or real(self, s, c, e))
    parties = prepare(file()).parties
    train(PreparedRun.of(*chosen({"name": "gd-dr", **QUICK}), Facts.of(parties, 7)), parties)
    assert set(seen) == {math.inf}


# -- what it learns --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crowd():
    """4,000 devices, 20 items, 12 ratings each: one split, trained on without privacy."""
    ratings = synthesize(4000, 20, 48_000, seed=3).ratings
    shown = np.random.default_rng(3).random(ratings.n_ratings) < 0.9
    return partition(ratings.keep(shown), by="device"), ratings.keep(~shown)


def error(crowd, **parameters) -> float:
    parties, test = crowd
    trained = train(
        PreparedRun.of(*chosen({"name": "gd-dr", "factors": 4, **parameters}), Facts.of(parties, 7)), parties
    )
    predicted = trained.predictor.predict(test.users, test.items)
    return float(np.mean((predicted - test.values) ** 2, dtype=np.float64))


def test_reports_improve_on_what_devices_fit_alone(crowd):
    assert error(crowd) < error(crowd, rate=1e-12) - 0.02


@pytest.mark.parametrize("wrong", ["sign", "order"])
def test_a_wrong_estimate_is_noticed(crowd, monkeypatch, wrong):
    original = gd_dr.estimated
    changes = {"sign": lambda mean: -mean, "order": lambda mean: mean[::-1]}
    monkeypatch.setattr(gd_dr, "estimated", lambda *args: changes[wrong](original(*args)))
    assert error(crowd) > error(crowd, rate=1e-12) - 0.02


def test_one_round_is_a_step_along_the_projected_estimate(tmp_path):
    """V ← Π(V − c·n·Φᵀ·mean), from the reports that were sent."""
    parties = prepare(file(into=1)).parties
    method, parameters = chosen({"name": "gd-dr", "factors": 4, "rounds": 1, "rate": 1e-4, "projection": 7})
    trained = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties, payloads=tmp_path)
    sent, facts = decode((tmp_path / "000000-up-party-1.tct").read_bytes()), trained.facts
    phi = projection_signs(facts, 7) / math.sqrt(7)
    mean = np.zeros(28)
    np.add.at(mean, sent["coordinate"], (2.0 * sent["bit"] - 1) * 28 * parameters.bound(facts) / facts.users)
    moved = even_start(facts, 30, 4, "items") - 1e-4 * facts.users * phi.T @ mean.reshape(7, 4)
    clipped = np.maximum(moved, 0)
    expected = clipped / np.maximum(1, np.linalg.norm(clipped, axis=1, keepdims=True) / 2)
    np.testing.assert_allclose(trained.model.item_factors, expected, atol=1e-5)


def test_the_projection_is_public_and_the_same_in_every_round():
    facts = Facts.of(prepare(file()).parties, 7)
    phi = projection_signs(facts, 15)
    assert phi.shape == (15, 30)
    assert set(np.unique(phi)) == {-1, 1}
    np.testing.assert_array_equal(phi, projection_signs(facts, 15))
    assert (phi != projection_signs(replace(facts, seed=8), 15)).any()


# -- step sizes and bounds, from public numbers ----------------------------------------------------------------------


def test_the_bound_clips_few_numbers(crowd):
    """B comes from public numbers, and about one number in six of a synthetic world is longer; here 2 to 35 %."""
    (share,), facts = crowd[0], Facts.of(crowd[0], 7)
    parameters = ReducedParameters(factors=4)
    U, V = (even_start(facts, rows, 4, name) for rows, name in ((facts.users, "users"), (facts.items, "items")))
    query = ProjectedBit(parameters.shape(facts.items), parameters.bound(facts))
    signs = projection_signs(facts, parameters.shape(facts.items)[0])
    numbers = query.over(share.ratings, U, V, signs).numbers(
        np.random.default_rng(1).integers(len(signs) * 4, size=facts.users)
    )
    assert 0.02 < np.mean(np.abs(numbers) > query.bound) < 0.35
