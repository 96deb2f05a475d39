"""`dpals` solves least squares from bounded sums; each trap of published code is caught when it is put back."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
from method_runs import plan_of, run_file

import tacit
from tacit.boundary.least_squares import Weighted, WeightedSum, packed
from tacit.boundary.release import Kind
from tacit.data.synthetic import demo
from tacit.errors import PrivacyRefused
from tacit.estimator import DP
from tacit.federation import Total
from tacit.guarantee import Unit
from tacit.methods.baselines.dpals import DPALSCoordinator, DPALSParameters, DPALSParty
from tacit.methods.baselines.item_solutions import solved
from tacit.methods.method import Method
from tacit.partition import Setting
from tacit.rng import derive
from tacit.testing.privacy_contract import PrivacyContract


class Kept(PrivacyContract):
    """The contract, to be broken on purpose; test_privacy_contracts.py keeps it."""

    name = "dpals"
    parameters = {"factors": 2, "rounds": 2, "head": 6}


def caught(unit=Unit.USER):
    with pytest.raises(AssertionError) as found:
        Kept().test_no_neighbour_moves_an_answer_further_than_stated(Setting.HORIZONTAL, unit)
    return str(found.value)


# -- traps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", ["target_clip", "factor_clip", "budget"])
def test_planted_centred_ratings_factors_or_weights_that_nobody_bounds(limit, monkeypatch):
    """A published trap, of centred ratings: their sum is noised for y_max, and nothing keeps them within it."""
    real = WeightedSum._factored

    def unbounded(self):
        free = copy.copy(self)
        free.query = replace(self.query, **{limit: 1e9})
        return real(free)

    monkeypatch.setattr(WeightedSum, "_factored", unbounded)
    assert "times as far apart" in caught()


def test_planted_head_items_by_exact_counts(monkeypatch):
    """A published trap: without one user an item has too few ratings, and nobody sends it."""
    real = DPALSParty.solve

    def of_exact_head(self, weights, **shared):
        head = self.ratings.item_counts >= self.member.users
        return real(self, 9 * head.astype(np.float32), **shared)

    of_exact_head.tacit_step = real.tacit_step
    monkeypatch.setattr(DPALSParty, "solve", of_exact_head)
    assert "times as far" in caught()


def test_planted_counts_and_centring_that_are_not_charged(monkeypatch):
    """A published trap: a release that is not in the plan is refused by the gate, so it cannot be made for free."""
    monkeypatch.setattr(Method, "stated", lambda self, *given, real=Method.stated: real(self, *given)[1:])
    made = Kept().plan(Setting.HORIZONTAL, Unit.USER)
    with pytest.raises(PrivacyRefused, match="states no such release"):
        made.terms.step("means", Kind.SUM)


def test_per_rating_it_is_refused_since_users_are_fitted_to_whole_records():
    file = run_file(method={"name": "dpals"}, privacy={"epsilon": 2.0, "delta": 1e-6, "unit": "rating"})
    with pytest.raises(PrivacyRefused, match="fitted to a whole record"):
        plan_of(file)


def test_planted_a_claim_per_rating_with_fitted_users(monkeypatch):
    """A published trap: one rating is in one row, but its user's factors, and so all their rows, move with it."""
    monkeypatch.setattr(DPALSParameters, "resolved", lambda self, context: self)
    one_row = lambda self, unit, relation: self.clip / math.sqrt(self.budget)  # noqa: E731
    monkeypatch.setattr(Weighted, "sensitivity", one_row)
    assert "times as far apart" in caught(Unit.RATING)


def test_the_published_accounting_is_stated_beside_what_it_truly_costs():
    privacy = {"epsilon": 2.0, "delta": 1e-6, "accounting": "paper", "budget": 10.0}
    file = run_file(method={"name": "dpals", "means_share": 0.5}, privacy=privacy)
    promise = plan_of(file).terms.guarantee
    assert promise.claimed_epsilon == 2.0
    assert promise.epsilon > 2.9  # twice the budget in μ²
    sound = plan_of(run_file(method={"name": "dpals"}, privacy={"epsilon": 2.0, "delta": 1e-6})).terms.guarantee
    assert sound.epsilon <= 2.0 + 1e-6


# -- what it computes -------------------------------------------------------------------------------------------------


def test_without_noise_items_are_solved_by_ridge_regression():
    stream = derive(1, "dpals")
    x, y = stream.standard_normal((50, 3)), stream.standard_normal(50)
    prior = np.array([0.5, 0.2, 0.1])
    found = solved(packed(x).sum(axis=0)[None], (y @ x)[None], prior, 0.7, 0.0)[0]
    np.testing.assert_allclose(found, np.linalg.solve(x.T @ x + 0.7 * np.diag(1 / prior), x.T @ y), rtol=1e-6)


def test_a_sum_that_noise_made_indefinite_is_solved_all_the_same():
    gram = packed(np.ones((1, 2))) - packed(np.array([[3.0, -3.0]]))
    found = solved(gram, np.array([[1.0, 1.0]]), np.ones(2), 0.5, 0.1)
    assert np.isfinite(found).all()
    assert found[0, 0] == pytest.approx(found[0, 1])


def test_items_outside_the_released_head_keep_their_means():
    facts = tacit.federation.Facts.of(tacit.partition(demo(users=60, items=10, ratings=300), into=2), 7)
    coordinator = DPALSCoordinator(DPALSParameters(factors=2, head=4), facts)
    counts = np.arange(10, dtype=np.float32)
    start = coordinator.started(Total({"errors": 0 * counts, "counts": counts}, 0.5))
    assert (start["weights"] > 0).tolist() == [False] * 6 + [True] * 4
    weights = start.pop("weights")
    noised = {"gram": np.ones((10, 6), np.float32), "moment": np.ones((10, 3), np.float32)}
    after = coordinator.updated(start, Total(noised, 0.5), weights > 0)
    for name, before in start.items():
        np.testing.assert_array_equal(after[name][:6], before[:6])
        assert (after[name][6:] != before[6:]).any()


def test_it_finds_tastes_and_keeps_its_budget_with_noise():
    training, test = tacit.split(demo(users=1500, items=60, ratings=45_000), test=0.1, seed=7)
    parties = tacit.partition(training, into=3)

    def mse(name, **others):
        model = tacit.estimator(name)(seed=7, **others).fit(parties)
        return float(np.mean((model.predictor_.predict(test.users, test.items) - test.values) ** 2))

    assert mse("dpals", factors=5) < 0.9 * mse("bias")
    private = {"privacy": DP(epsilon=8.0, delta=1e-6), "aggregation": "ideal"}
    assert mse("dpals", **private) < mse("bias", **private)
