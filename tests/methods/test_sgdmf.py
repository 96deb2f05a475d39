"""SGDMF learns what is known to be there, and follows the paper's equations."""

import numpy as np
import pytest

import tacit
from tacit.config import AggregationSection
from tacit.data.synthetic import synthesize
from tacit.engine import InProcess
from tacit.errors import UsageError
from tacit.federation import Facts
from tacit.kernels.embed import embed
from tacit.kernels.squared_error import factor_gradients_numpy
from tacit.methods import chosen
from tacit.methods.factors import start_factors
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.testing.worlds import checkerboard

BY = {"horizontal": ("user", 4), "vertical": ("item", 4), "device": ("device", None)}


def mse(trained, test) -> float:
    return float(np.mean((trained.predictor.predict(test.users, test.items) - test.values) ** 2))


def fit(ratings, setting="horizontal", seed=7, **parameters):
    by, into = BY[setting]
    method, checked = chosen({"name": "sgdmf", **parameters})
    parties = partition(ratings, by=by, into=into)
    return train(PreparedRun.of(method, checked, Facts.of(parties, seed)), parties)


@pytest.mark.parametrize("setting", BY)
def test_a_checkerboard_is_predicted(setting):
    seen, hidden = checkerboard()
    sampled = {} if setting == "device" else {"local_steps": 5, "sampling": 0.5}
    trained = fit(seen, setting, factors=4, rounds=150, **sampled)
    assert mse(trained, hidden) < 0.1  # its means alone leave 4


@pytest.mark.parametrize("setting", ["horizontal", "vertical"])
def test_a_planted_rank_is_recovered(setting):
    """As many factors as were planted are enough to come close to the irreducible error; one is not."""
    world = synthesize(400, 150, 24_000, rank=3, noise=0.3, seed=7)
    learned, hidden = tacit.split(world.ratings, test=0.1, seed=7)
    errors = {p: mse(fit(learned, setting, factors=p), hidden) for p in (1, 6)}
    assert errors[6] < 0.8 * errors[1]
    assert errors[6] < 2.0 * world.irreducible_mse


def test_one_round_is_the_papers_equation_five():
    """Two silos, a chain of one full step each, in which users move along:

    U_k ← Π(U_k − γ (n_k/n) g_U), V^(k) ← Π(V − γ g_V), V ← Σ (n_k/n) V^(k).
    """
    ratings = synthesize(20, 10, 120, seed=3).ratings
    parties = partition(ratings, into=2, size_skew=0.5)
    method, parameters = chosen(
        {"name": "sgdmf", "factors": 3, "local_steps": 1, "sampling": 1.0, "rate": 2.0, "users": "noised"}
    )
    run = PreparedRun.of(method, parameters, Facts.of(parties, 7))
    silos = [run.party(share) for share in parties]
    V = start_factors(run.facts, run.facts.items, 3, "items")
    before = [silo.home["users"].copy() for silo in silos]
    averaged = run.federation(InProcess(silos)).mean("improve", items=V, t=0)

    expected, R = np.zeros_like(V), ratings.scale.span
    for share, silo, U in zip(parties, silos, before, strict=True):
        part, weight = share.ratings, len(share.users) / 20
        g_U, g_V = factor_gradients_numpy(part.indptr, part.items, part.values, 1.0, np.arange(part.n_users), U, V)
        normalised = ratings.n_ratings * weight  # |Ω_k| = |Ω| n_k/n, η = 1
        np.testing.assert_allclose(silo.home["users"], embed(U - 2.0 * weight * g_U / normalised, R), atol=1e-5)
        expected += weight * embed(V - 2.0 * g_V / normalised, R)
    np.testing.assert_allclose(averaged, expected, atol=1e-5)


def test_what_crosses_is_always_projected():
    seen, _hidden = checkerboard(20, 12)
    for setting in BY:
        trained = fit(seen, setting, factors=3, rounds=3)
        for member in trained.parties:
            for block in ("users", "items"):
                factors = member.home[block]
                assert (factors >= 0).all()
                assert (np.square(factors).sum(axis=1) <= seen.scale.span * (1 + 1e-5)).all()


def test_devices_that_drop_out_slow_learning_down_a_little_and_break_nothing():
    seen, hidden = checkerboard()
    method, parameters = chosen({"name": "sgdmf", "factors": 4, "rounds": 150})
    parties = partition(seen, by="device")
    leaving = AggregationSection(dropout=0.3)
    facts = Facts.of(parties, 7)
    dropped = train(PreparedRun.of(method, parameters, facts, aggregation=leaving), parties)
    full = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties)
    assert mse(dropped, hidden) < 0.3
    assert dropped.transcript.meter.bytes_up < 0.85 * full.transcript.meter.bytes_up


def test_implicit_feedback_is_refused_with_a_remedy():
    ratings = tacit.load("demo", feedback="implicit")
    with pytest.raises(UsageError, match="popularity"):
        tacit.SGDMF(rounds=1).fit(tacit.partition(ratings, into=2))
