"""Methods that release sums of bounded contributions keep the privacy contract; planted bugs show that it can fail."""

from dataclasses import replace

import numpy as np
import pytest
from privacy_cases import RATING, USER, caught

from tacit.boundary import clipped_sums as bounded
from tacit.boundary.co_occurrence import PairCounts, PairShares
from tacit.boundary.release import Kind
from tacit.data.ratings import Feedback
from tacit.errors import PrivacyRefused
from tacit.guarantee import Unit
from tacit.methods import bias
from tacit.methods.auto import AutoParty
from tacit.methods.auto.shared import Shared
from tacit.methods.bias import BiasParty
from tacit.partition import Setting
from tacit.prepare import plan
from tacit.testing.privacy_contract import PrivacyContract


class TestBias(PrivacyContract):
    name = "bias"


class TestBiasOfSmallWeights(PrivacyContract):
    name = "bias"
    parameters = {"count_weight": 0.01, "shrinkage": 0.0}


class TestEase(PrivacyContract):
    """One rating moves a record by half of what is stated; in integers, where both are rounded, by all of it."""

    name = "ease"
    parameters = {"head": 5}
    last = ("finish", "finish_low_rank")
    within = {("horizontal", "rating"): 0.49, ("device", "rating"): 0.49}


class TestEaseOfCountsAlone(PrivacyContract):
    name = "ease"
    parameters = {"head": 0}
    last = ("finish", "finish_low_rank")
    within = TestEase.within


class TestAuto(PrivacyContract):
    """Every stage at once; the rule would leave most of them out for so few users."""

    name = "auto"
    parameters = {"prior_share": 0.2, "tastes_share": 0.2, "factors_share": 0.2, "corrections": 2}
    units = USER


class TestAutoOfRatings(PrivacyContract):
    name = "auto"
    units = RATING


class TestAutoThatRanks(PrivacyContract):
    name = "auto"
    parameters = {"objective": "ranking", "head": 5}
    units = USER


class TestAutoOfImplicitFeedback(PrivacyContract):
    name = "auto"
    parameters = {"head": 5}
    units = USER
    feedback = Feedback.IMPLICIT


class TestAutoOfSingleEvents(PrivacyContract):
    name = "auto"
    units = RATING
    feedback = Feedback.IMPLICIT


class TestDPALS(PrivacyContract):
    name = "dpals"
    parameters = {"factors": 2, "rounds": 2, "head": 6}
    units = USER


class TestAlternating(PrivacyContract):
    name = "am-dpsgd"
    parameters = {"factors": 2, "rounds": 2, "clip": 0.5}
    units = USER


class TestALS(PrivacyContract):
    name = "als"
    parameters = {"factors": 2, "sweeps": 2}
    settings = (Setting.HORIZONTAL, Setting.DEVICE)
    within = dict.fromkeys((("horizontal", "rating"), ("device", "rating")), 0.45)


class TestImplicit(PrivacyContract):
    name = "implicit"
    parameters = {"factors": 2, "rounds": 2}
    feedback = Feedback.COUNT
    within = dict.fromkeys((("horizontal", "rating"), ("device", "rating")), 0.45)


# -- planted -----------------------------------------------------------------------------------------------------------


def test_planted_users_that_share_a_mean(monkeypatch):
    """One record moves what all others contribute."""
    mean = lambda r, *_: np.full(r.n_users, r.values.sum() / 9, np.float32)  # noqa: E731
    monkeypatch.setattr(bias, "levels", mean)
    assert "times as far apart" in caught(TestBias, Setting.HORIZONTAL, Unit.USER)


def test_planted_ratings_that_are_centred_by_their_users(monkeypatch):
    """The unit is a rating, and users' own means come in all the same."""

    def centred(self):
        means = self._levels(np.zeros(self.member.items, dtype=np.float32))
        middle = np.float32(self.facts.scale.low + self.facts.scale.span / 2)
        return (replace(self.ratings, values=self.ratings.values - means[self.ratings.users] + middle),)

    monkeypatch.setattr(BiasParty, "_query_data", centred)
    assert "times as far" in caught(TestBias, Setting.HORIZONTAL, Unit.RATING)


def test_planted_pieces_that_are_no_users(monkeypatch):
    """A piece for every rating of a user, each as long as all of hers may be."""
    real = bounded.item_contributions

    def parted(starts, items, channels, n_items):
        ones = np.arange(len(items) + 1)
        return real(ones, items, {name: 0 * x + 0.7 for name, x in channels.items()}, n_items)

    monkeypatch.setattr(bounded, "item_contributions", parted)
    assert "sum of integers" in caught(TestBias, Setting.HORIZONTAL, Unit.USER)


def test_planted_pairs_of_a_user_that_are_not_divided_by_their_number(monkeypatch):
    monkeypatch.setattr(PairShares, "weights", PairCounts.weights)
    assert "times as far apart" in caught(TestEase, Setting.HORIZONTAL, Unit.USER)


def test_planted_centred_ratings_that_nobody_clips(monkeypatch):
    """A published trap: the sum of centred ratings has no bound unless each user's are scaled before it."""
    monkeypatch.setattr(bounded, "bounded_rows", lambda indptr, x, limit, exactly=False: bounded.finite(x))
    assert "times as far apart" in caught(TestAuto, Setting.HORIZONTAL, Unit.USER)


def test_planted_items_weighed_by_exact_counts(monkeypatch):
    """A published trap: whoever is gone changes what all others send, since their items weigh less."""

    def counted(self, weights, **shared):
        left, *_ = self._unexplained(Shared(**shared))
        a = 1 / np.sqrt(1 + np.bincount(self.ratings.items, minlength=self.ratings.n_items))[self.ratings.items]
        return self.gate.sum(self.ratings, {"errors": a * left, "weights": 0.3 * a})

    counted.tacit_step = AutoParty.residuals.tacit_step
    monkeypatch.setattr(AutoParty, "residuals", counted)
    assert "times as far" in caught(TestAuto, Setting.HORIZONTAL, Unit.USER)


def test_planted_counts_that_are_not_charged(monkeypatch):
    """A published trap: the first sum is not in the plan, so the gate releases nothing."""
    monkeypatch.setattr(plan.Method, "stated", lambda self, *given, real=plan.Method.stated: real(self, *given)[2:])
    party = TestAuto().plan(Setting.HORIZONTAL, Unit.USER)
    assert "means" not in party.terms.steps
    with pytest.raises(PrivacyRefused, match="states no such release"):
        party.terms.step("means", Kind.SUM)
