"""The baselines that SGDMF is compared with do what their names say, at the noise that they state."""

import math
from dataclasses import replace

import numpy as np
import pytest
from method_runs import plan_of, rows_of, run_file

from tacit.boundary import account
from tacit.boundary.events import PerturbedObjective
from tacit.config import RunFile
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.errors import UsageError
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation
from tacit.kernels.clipped import bounded_gradients_numpy
from tacit.kernels.embed import embed
from tacit.methods import chosen
from tacit.methods.baselines.dp_sgld import SGLDParameters
from tacit.methods.baselines.gradient_clipping import GradientClippingParameters
from tacit.methods.context import Context
from tacit.methods.factors import start_factors
from tacit.methods.sgdmf.update_rule import Steps
from tacit.partition import Setting, partition
from tacit.prepare.loaded import prepare
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.testing.worlds import checkerboard

QUICK = {"factors": 3, "rounds": 2, "local_steps": 2}


def file(name, by="user", unit="user", aggregation="plain", **parameters) -> RunFile:
    return run_file(
        data={"source": "demo", "users": 60, "items": 30, "ratings": 900},
        partition={"by": by, "into": 3},
        method={"name": name, **parameters},
        privacy={"epsilon": 2.0, "delta": 1e-6, "unit": unit},
        aggregation={"name": aggregation},
    )


def planned(*args, **parameters):
    return plan_of(file(*args, **parameters))


@pytest.mark.parametrize(
    ("by", "unit", "expected"),
    [
        ("item", "rating", {"improve": 4.0, "finish": 4.0}),
        ("item", "user", {"improve": 4.0 * 5, "finish": 4.0 * math.sqrt(5)}),  # three parties: θ = 5
        ("user", "user", {"improve": 4.0 * math.sqrt(10)}),
    ],
)
def test_gradient_clipping_is_noised_for_its_threshold(by, unit, expected):
    made = planned("gradient-clipping", by=by, unit=unit, threshold=4.0, **QUICK)
    assert {name: terms.sensitivity for name, terms in made.terms.steps.items()} == pytest.approx(expected)


def test_gradient_clipping_moves_by_clipped_gradients_and_projects_nothing():
    parameters = GradientClippingParameters(threshold=0.5, sampling=1.0)
    ratings = prepare(file("bias")).train
    rng = np.random.default_rng(0)
    U, V = (rng.normal(0, 3, (rows, 3)).astype(np.float32) for rows in (ratings.n_users, ratings.n_items))
    rule, facts = parameters.rule, Facts.of(prepare(file("bias")).parties, 7)
    assert (rule.project(parameters, V, 4.0) == V).all()
    context = Context(PublicFacts(ratings.n_users, ratings.n_items, ratings.scale, 900), Setting.VERTICAL, 3)
    query = rule.query(parameters, context, ("users", "items"), users_are_public=True)
    answer = query.over(ratings)({"users": U, "items": V}, np.random.default_rng(1))
    shifted, wide = ratings.values.astype(np.float64) - 1, (U.astype(np.float64), V.astype(np.float64))
    _, by_item = bounded_gradients_numpy(ratings.indptr, ratings.items, shifted, *wide, 0.5)
    np.testing.assert_allclose(answer["items"], by_item, rtol=1e-4, atol=1e-5)
    moved = rule.step(Steps(parameters, facts, 1), V.copy(), answer["items"], 0.1, 0.0)
    np.testing.assert_allclose(moved, V - 0.1 * by_item, rtol=1e-4, atol=1e-4)
    assert (moved < 0).any()


@pytest.mark.parametrize("part", [0.0, 0.5, 2.0])
def test_langevin_adds_what_privacy_leaves_missing(part):
    """The step's variance beside that of privacy, (c·σ)² = part·h, is max(0, 1 − part)·h, with h = 4·s²·η·c."""
    parameters, c, span = SGLDParameters(sampling=0.5, spread=1e-5), 0.01, 1e6  # rows far shorter than √R, far above 0
    h = 4 * (1e-5 * span) ** 2 * 0.5 * c
    x = np.full((40_000, 1), 500.0, np.float32)
    wide = replace(Facts.of(prepare(file("bias")).parties, 7), scale=Scale(0, span))
    steps = Steps(parameters, wide, 1, math.sqrt(part * h) / c, stream=np.random.default_rng(3))
    moved = parameters.rule.step(steps, x, np.zeros_like(x), c, 0.0)
    missing = max(0.0, 1 - part) * h
    assert float(np.var(moved.astype(np.float64))) == pytest.approx(missing, rel=0.05)  # seven standard errors


def test_synchronous_descends_by_the_sum_of_all_silos():
    """V ← Π(V − γ/(η|Ω|) Σ_k g_k) after one round, without noise and with everybody sampled."""
    parties = prepare(file("bias")).parties
    settings = {"factors": 3, "rounds": 1, "sampling": 1.0, "rate": 2.0, "users": "pretrained"}
    trained = train(PreparedRun.of(*chosen({"name": "synsgd", **settings}), Facts.of(parties, 7)), parties)
    V, total, R = start_factors(trained.facts, trained.facts.items, 3, "items"), 0.0, 4.0
    for silo in trained.parties:
        r, U = silo.ratings, silo.home["users"].astype(np.float64)
        _, by_item = bounded_gradients_numpy(
            r.indptr, r.items, r.values.astype(np.float64) - 1, U, V.astype(np.float64), math.inf
        )
        total = total + by_item
    expected = embed(V - np.float32(2.0 / trained.facts.ratings) * total.astype(np.float32), R)
    np.testing.assert_allclose(trained.model.item_factors, expected, atol=1e-5)


def test_synchronous_under_one_noise_carries_less(tmp_path):
    plain, ideal = (planned("synsgd", aggregation=name, factors=3, rounds=4) for name in ("plain", "ideal"))
    own, one = (made.sigma()["contribute"] for made in (plain, ideal))
    assert own < one < 1.3 * own  # whole numbers under Rényi accounting cost a little more noise
    assert ideal.signal_to_noise()["contribute"] > plain.signal_to_noise()["contribute"]
    summary = run(file("synsgd", aggregation="ideal", factors=3, rounds=4), tmp_path / "run")
    assert summary["guarantee"]["model"] == "distributed"
    assert summary["rounds"] == 4


@pytest.mark.parametrize(("unit", "parties"), [("user", 3), ("rating", 1)])
def test_alone_composes_over_the_parties_that_a_unit_is_in(unit, parties):
    made = planned("local-private", by="item", unit=unit, **QUICK)
    (terms,) = made.terms.steps.values()
    assert (terms.spec.releases, terms.spec.answers, terms.parties, terms.event.count) == (1, 4, parties, 4 * parties)


def test_alone_learns_nothing_from_others():
    """One party's factors are what they are whoever else takes part."""
    wanted = file("local-private", by="item", **QUICK)
    parties, (method, parameters) = prepare(wanted).parties, chosen(wanted.method)
    before = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties).parties[0].home["users"]
    first, second, third = parties.shares
    emptied = replace(third, ratings=replace(third.ratings, values=np.ones_like(third.ratings.values)))
    changed = replace(parties, shares=(first, second, emptied))
    after = train(PreparedRun.of(method, parameters, Facts.of(changed, 7)), changed).parties
    np.testing.assert_array_equal(after[0].home["users"], before)
    assert (after[2].home["users"] != before).any()


# -- objective-perturbation -------------------------------------------------------------------------------------------


def objective(epsilon=None, **method) -> RunFile:
    return run_file(
        data={"source": "demo", "users": 150, "items": 30, "ratings": 2500},
        partition={"into": 3},
        method={"name": "objective-perturbation", "factors": 4, **method},
        privacy=None if epsilon is None else {"epsilon": epsilon, "delta": 1e-6},
    )


def test_without_privacy_an_objective_learns_what_means_cannot():
    """A checkerboard of 1 and 5: every mean predicts 3, off by 4."""
    seen, hidden = checkerboard()
    parties, asked = partition(seen, into=2), chosen({"name": "objective-perturbation", "factors": 8})
    predictor = train(PreparedRun.of(*asked, Facts.of(parties, 7)), parties).predictor
    assert np.mean((predictor.predict(hidden.users, hidden.items) - hidden.values) ** 2) < 1.0


def test_a_perturbed_objective_comes_close_to_the_exact_one_as_noise_goes_away(tmp_path):
    """Mean squared errors at ε = 10⁶, 10³ and 1 against none; 150 users, one seed."""
    exact = run(objective(trim=1000), tmp_path / "exact")["metrics"]["mse"]
    noised = [run(objective(e, trim=1000), tmp_path / f"{e}")["metrics"]["mse"] for e in (1e6, 1e3, 1.0)]
    assert abs(noised[0] - exact) < 0.05
    assert noised[0] < noised[1] < noised[2]


def test_an_objectives_run_spends_what_was_planned_and_no_more(tmp_path):
    summary = run(objective(1.0), tmp_path / "run")
    assert summary["guarantee"]["epsilon"] <= 1.0
    assert summary["rounds"] == 1
    ledgers = rows_of(tmp_path / "run")
    assert len(ledgers) == 3
    for rows in ledgers.values():
        assert [row.step for row in rows] == ["pretrain", "solve", "finish"]
        spent = rows[1].spent
        assert (type(spent), spent.count) == (PerturbedObjective, 10)
        assert account.epsilon([spent], 1e-6, Relation.ZERO_OUT) == pytest.approx(summary["guarantee"]["epsilon"])


@pytest.mark.parametrize("wrong", [{"trim": 0}, {"factors": 0}, {"regularization": 0.0}, {"pretraining": 0}])
def test_bad_parameters_of_an_objective_are_refused_before_data_is_touched(wrong):
    with pytest.raises(UsageError):
        chosen({"name": "objective-perturbation", **wrong})
