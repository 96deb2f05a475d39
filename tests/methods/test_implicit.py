"""`implicit`: the paper's descent, by sums and by reports; what they cost; and that what is learned ranks."""

import math
from dataclasses import replace

import numpy as np
import pytest
from method_runs import plan_of, rows_of, run_file

import tacit
from tacit.boundary.account import epsilon as epsilon_of
from tacit.boundary.base_gate import BaseGate
from tacit.boundary.cell_reports import CellGradients, CellReports
from tacit.boundary.events import Gaussian, Pure, Shuffled
from tacit.boundary.randomness import Seeded
from tacit.config import RunFile
from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused, UsageError
from tacit.evaluate import evaluate
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation
from tacit.methods import chosen
from tacit.methods.implicit import IMPLICIT, coordinator, specs
from tacit.methods.implicit.coordinator import descended
from tacit.methods.implicit.parameters import ImplicitParameters
from tacit.partition import partition
from tacit.prepare import plan as plans
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive, stream_key
from tacit.testing.method_contract import Contract, MethodContract

QUICK = {"factors": 3, "rounds": 2}


def world(users=30, items=20, ratings=200):
    return demo(users=users, items=items, ratings=ratings, feedback="implicit")


class TestImplicitSums(MethodContract):
    name, parameters = "implicit", QUICK
    never = {"horizontal": ("users",), "device": ("users",)}

    def ratings(self):
        return world(users=60, items=40, ratings=900)


class Reported(MethodContract):
    """Reports, which devices send and silos do not."""

    __test__ = False
    name, parameters = "implicit", {**QUICK, "reports": 5}
    never = {"device": ("users",)}
    refused = {("device", "secagg"): "implicit has none here"}

    def ratings(self):
        return world(users=60, items=40, ratings=900)

    def sides(self):
        return {setting: sides for setting, sides in Contract.sides(self).items() if setting == "device"}

    def test_one_party_is_enough(self):
        assert self.fit(partition(self.ratings(), into=1, by="device")).rounds == 2


class TestImplicitReports(Reported):
    __test__ = True


def fitted(ratings, by="user", into=3, **parameters):
    parties = partition(ratings, by=by, into=into)
    made = PreparedRun.of(*chosen({"name": "implicit", **QUICK, **parameters}), Facts.of(parties, 7))
    return train(made, parties)


# -- the mathematics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("by", "into"), [("user", 3), ("user", 1), ("device", 2), ("device", None)])
def test_it_is_algorithm_2_with_every_pair_written_out_however_users_are_divided(by, into):
    ratings, alpha, ridge, rate = world(), 2.0, 0.5, 0.01
    p = np.zeros((30, 20))
    p[ratings.users, ratings.items] = 1
    c = 1 + alpha * p
    start = ImplicitParameters(confidence=alpha).start(Facts.of(partition(ratings, into=1), 7))
    V = start * derive(7, "item factors").standard_normal((20, 3))
    for _ in range(3):
        X = np.stack(
            [np.linalg.solve((V.T * w) @ V + ridge * np.eye(3), V.T @ (w * t)) for w, t in zip(c, p, strict=True)]
        )
        gradient = -2 * (c * (p - X @ V.T)).T @ X / 30  # eq. (6) over n, at the epoch's V
        for _step in range(20):
            V = V - rate * (gradient + 2 * ridge / 30 * V)  # eq. (7)
    given = {"rounds": 3, "confidence": alpha, "regularization": ridge, "rate": rate}
    np.testing.assert_allclose(fitted(ratings, by, into, **given).model.form.items, V, atol=2e-4)


def test_steps_of_an_epoch_are_asked_of_parties_once():
    """Twenty steps, one release: everything that crosses is there once an epoch."""
    trained = fitted(world(), rounds=4, steps=20)
    asked = [(entry.round, entry.party) for entry in trained.transcript.entries if entry.step == "gradients"]
    assert trained.rounds == 4
    assert {t for t, _party in asked} == {1, 2, 3, 4}
    V, mean = np.ones((2, 1)), np.array([[1.0], [0.0]])
    np.testing.assert_allclose(descended(V, mean, 0.0, 0.01, 20), V + 0.4 * mean)


def test_how_often_an_item_was_taken_counts():
    ratings = replace(world(), values=np.ones(200, dtype=np.float32))
    often = replace(ratings, values=1 + (ratings.items % 3).astype(np.float32))
    one, other = (fitted(r).model.form.items for r in (ratings, often))
    assert not np.allclose(one, other)


def test_many_reports_without_privacy_come_to_the_sums():
    """300,000 reports of 60 cells, rounded and not randomised: what is left is the clip of the longest numbers."""
    ratings, given = world(60, 20, 400), {"rounds": 1, "rate": 0.01}
    exact = fitted(ratings, "device", None, **given).model.form.items
    told = fitted(ratings, "device", 1, reports=5000, mechanism="piecewise", **given).model.form.items
    start = ImplicitParameters().start(Facts.of(partition(ratings, into=1), 7))
    moved = exact - start * derive(7, "item factors").standard_normal((20, 3))
    assert np.linalg.norm(told - exact) < 0.25 * np.linalg.norm(moved)


@pytest.mark.parametrize("parameters", [{}, {"reports": 60}])
def test_it_ranks_better_than_popularity(parameters):
    learned, held_out = split(world(2000, 300, 60_000), by="leave-one-out", seed=7)

    def found(name, **options):
        parties = partition(learned, by="device", into=2)
        trained = train(PreparedRun.of(*chosen({"name": name, **options}), Facts.of(parties, 7)), parties)
        return evaluate(trained.predictor, held_out, seen=learned, relevance=1, bootstrap=0).metrics["hr_full@10"]

    assert found("implicit", **parameters) > found("popularity") * 1.1 > found("random")


@pytest.mark.parametrize("aggregation", ["ideal", "secagg"])
def test_hidden_sums_reach_the_same_model(aggregation):
    silos = partition(world(), into=3)
    hidden = tacit.estimator("implicit")(aggregation=aggregation, seed=7, **QUICK).fit(silos)
    np.testing.assert_allclose(hidden.model_.form.items, fitted(world()).model.form.items, atol=2e-3)


# -- what it costs ---------------------------------------------------------------------------------------------------


def file(aggregation="plain", users=200, epsilon=2.0, unit="user", accounting="sound", budget=None, **more) -> RunFile:
    by, parameters = more.pop("by", "device"), {**QUICK, "reports": 5, **more}
    return run_file(
        data={"source": "demo", "users": users, "items": 30, "ratings": 10 * users, "feedback": "implicit"},
        partition={"by": by, "into": 2},
        method={"name": "implicit", **{name: value for name, value in parameters.items() if value is not None}},
        privacy={"epsilon": epsilon, "delta": 1e-6, "unit": unit, "accounting": accounting, "budget": budget},
        aggregation={"name": aggregation},
    )


@pytest.mark.parametrize("unit", ["user", "rating"])
def test_all_k_times_t_reports_are_charged(unit):
    made = plan_of(file(rounds=4, reports=10, unit=unit))
    local = 1 / made.multiplier
    assert made.terms.events == (Pure(local, "randomised reports", 40),)
    assert made.terms.guarantee.epsilon <= 2.0
    assert 2.0 / 40 * (1 - 1e-5) <= local < 2.0 / 20  # k·T·ε₀ = ε, or better by composition


def test_a_shuffle_is_one_of_each_index_among_distinct_devices():
    """3,000 devices: a crowd of 2,099, three in ten of whom may be missing and one collude; not 2,099 times k."""
    plain, mixed = (plan_of(file(name, users=3000, rounds=4, reports=10, epsilon=1.0)) for name in ("plain", "shuffle"))
    assert mixed.terms.events == (Shuffled(1 / mixed.multiplier, 2099, 40),)
    assert plain.multiplier > 10 * mixed.multiplier
    assert mixed.terms.guarantee.epsilon <= 1.0


def test_the_papers_epsilon_is_of_one_report_and_what_holds_is_printed_beside_it():
    """2.5 is claimed; k·T·2.5 = 5,000 holds without δ at k = 100 and T = 20, and 4,547 at δ = 1e-6."""
    wanted = {"epsilon": 2.5, "accounting": "paper", "rounds": 20, "reports": 100}
    made = plan_of(file(**wanted))
    assert made.terms.events == (Pure(2.5, "randomised reports", 2000),)
    assert made.terms.guarantee.claimed_epsilon == 2.5
    assert made.terms.guarantee.epsilon == pytest.approx(4546.65, abs=0.01)
    assert epsilon_of(made.terms.events, 0.0, Relation.ZERO_OUT) == 5000
    mixed = plan_of(file("shuffle", users=50_000, **wanted))
    assert mixed.terms.events == (Shuffled(2.5, 34_999, 2000),)
    assert 7.2 < mixed.terms.guarantee.epsilon < 7.4


def test_a_paper_run_needs_a_budget_for_what_it_truly_costs(tmp_path):
    with pytest.raises(PrivacyRefused, match="raise the budget"):
        run(file(epsilon=2.5, accounting="paper"), tmp_path / "one")
    summary = run(file(epsilon=2.5, accounting="paper", budget=25.0), tmp_path / "two")
    assert summary["guarantee"]["claimed_epsilon"] == 2.5
    assert summary["guarantee"]["epsilon"] == pytest.approx(25.0, rel=0.05)


def test_sums_have_no_paper_accounting():
    with pytest.raises(PrivacyRefused, match="no paper's accounting"):
        plan_of(file(reports=None, accounting="paper"))


@pytest.mark.parametrize(("unit", "sensitivity"), [("user", 1.0), ("rating", 2.0)])
def test_sums_are_noised_for_a_whole_record(unit, sensitivity):
    made = plan_of(file(reports=None, unit=unit, by="user"))
    terms = made.terms.steps["gradients"]
    assert (terms.sensitivity, terms.spec.releases) == (sensitivity, 2)
    assert terms.event == Gaussian(made.multiplier, 1)


@pytest.mark.parametrize(
    ("aggregation", "parameters", "kind", "model"),
    [
        ("plain", {}, Pure, "local"),
        ("shuffle", {}, Shuffled, "shuffled"),
        ("plain", {"reports": None}, Gaussian, "local"),
        ("ideal", {"reports": None}, None, "distributed"),
    ],
)
def test_a_run_keeps_its_guarantee_and_a_row_for_every_epoch(tmp_path, aggregation, parameters, kind, model):
    wanted = file(aggregation, **parameters)
    summary, again = (run(wanted, tmp_path / name) for name in ("one", "two"))
    assert summary["guarantee"]["model"] == model
    assert 0 < summary["guarantee"]["epsilon"] <= 2.0 * (1 + 1e-9)
    assert summary["digest"] == again["digest"]
    for rows in rows_of(tmp_path / "one").values():
        assert [row.kind for row in rows] == ["report" if "reports" not in parameters else "sum"] * 2 + ["public"]
        if kind is not None:
            assert {type(row.spent) for row in rows[:2]} == {kind}
        if "reports" not in parameters:
            assert {row.spent.count for row in rows[:2]} == {5}
        assert [row.contributors for row in rows[:2]] == [100] * 2


@pytest.mark.parametrize("aggregation", ["plain", "shuffle"])
def test_the_response_is_the_plans(tmp_path, monkeypatch, aggregation):
    """What leaves was randomised at the ε₀ that the ledger was charged with, neither more nor less."""
    seen, real = [], CellGradients.reports

    def reports(self, stream, coins, epsilon):
        made = real(self, stream, coins, epsilon)
        seen.append((epsilon, len(made["report"]) // len(self.rows)))
        return made

    monkeypatch.setattr(CellGradients, "reports", reports)
    run(file(aggregation), tmp_path / "run")
    made = plan_of(file(aggregation))
    assert set(seen) == {(1 / made.multiplier, 5)}
    for rows in rows_of(tmp_path / "run").values():
        charged = {getattr(row.spent, "epsilon", None) or getattr(row.spent, "local_epsilon", 0) for row in rows[:2]}
        assert charged == {1 / made.multiplier}


def test_no_two_epochs_reuse_cells_or_coins(tmp_path, monkeypatch):
    drawn, real = [], CellGradients.reports

    def reports(self, stream, coins, epsilon):
        drawn.append(real(self, stream, coins, epsilon)["report"])
        return {"report": drawn[-1]}

    monkeypatch.setattr(CellGradients, "reports", reports)
    run(file(rate=1e-12), tmp_path / "run")  # V stays where it is, and all else is the same
    assert len(drawn) == 4
    for one in range(4):
        assert all(np.mean(drawn[one] == drawn[other]) < 0.2 for other in range(one))


def test_planted_epochs_that_reuse_cells_and_coins_are_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(BaseGate, "stream", lambda self, *purpose: derive(7, self.party, *purpose))
    monkeypatch.setattr(BaseGate, "_source", lambda self, *purpose: Seeded(stream_key(7, self.party, *purpose)))
    with pytest.raises(AssertionError):
        test_no_two_epochs_reuse_cells_or_coins(tmp_path, monkeypatch)


def test_planted_k_reports_that_are_charged_once_are_refused(monkeypatch):
    def once(parameters, context):
        return [replace(spec, answers=1) for spec in specs(parameters, context)]

    sides = {setting: replace(each, specs=once) for setting, each in IMPLICIT.sides.items()}
    method, wanted = replace(IMPLICIT, sides=sides), file()
    parameters = chosen(wanted.method)[1]
    with pytest.raises(UsageError, match=r"is in 5 reports at once, and 1 are accounted for"):
        plans.plan_run(
            method,
            parameters,
            plan_of(wanted).context.setting,
            200,
            plan_of(wanted).context.facts,
            wanted.privacy,
            wanted.aggregation,
            seeded=True,
        )


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "words"),
    [({"by": "user"}, "divide by"), ({"reports": None, "mechanism": "piecewise"}, "how devices report")],
)
def test_what_has_no_meaning_is_refused(wanted, words):
    with pytest.raises(UsageError, match=words):
        plan_of(file(**wanted))


def test_sums_cannot_be_shuffled_and_reports_cannot_be_masked():
    with pytest.raises(PrivacyRefused, match="mixes single reports"):
        plan_of(file("shuffle", reports=None))
    with pytest.raises(PrivacyRefused, match="implicit has none here"):
        plan_of(file("secagg"))


def test_explicit_ratings_are_refused():
    with pytest.raises(UsageError, match="learns from count, implicit feedback"):
        run(RunFile.model_validate({"data": {"source": "demo"}, "method": {"name": "implicit"}}))


@pytest.mark.parametrize("by", ["leave-one-out", "latest"])
def test_hit_rates_at_several_k_among_99_sampled_items(tmp_path, by):
    table = {
        "data": {"source": "demo", "users": 100, "items": 150, "ratings": 3000, "feedback": "implicit"},
        "split": {"by": by},
        "partition": {"by": "device", "into": 1},
        "method": {"name": "implicit", **QUICK},
        "evaluate": {"k": [2, 5, 10]},
    }
    metrics = run(RunFile.model_validate(table), tmp_path / "run")["metrics"]
    assert 0 <= metrics["hr@2"] <= metrics["hr@5"] <= metrics["hr@10"] <= 1
    assert metrics["hr_full@10"] <= metrics["hr@10"]


# -- it learns less, if something is wrong -----------------------------------------------------------------------------


def test_noise_is_forecast_for_the_rate():
    """The rate falls with the noise of the reports, which is that of `spread`."""
    found = {eps: coordinator.spread(100, CellReports((50, 2), 1.0, 5).randomizer(eps), 1000) for eps in (0.1, 1, 10)}
    assert found[0.1] > 5 * found[1] > 10 * found[10]
    assert math.isfinite(found[0.1])
