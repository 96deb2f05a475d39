"""Every method that carries a guarantee keeps the privacy contract; planted bugs show that the contract can fail."""

import math
from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary import clipped_gradients as gradients
from tacit.boundary import clipped_sums as bounded
from tacit.boundary import projected
from tacit.boundary.clipped_gradients import EmbeddingGradient, GradientSum
from tacit.boundary.co_occurrence import PairCounts, PairShares
from tacit.boundary.code import Floats, Grid
from tacit.boundary.gate import Gate
from tacit.boundary.query import Rows
from tacit.boundary.randomized_response import RandomizedResponse
from tacit.boundary.release import Kind
from tacit.boundary.spec import StepTerms, Terms
from tacit.errors import PrivacyRefused
from tacit.guarantee import Relation, Unit
from tacit.methods import known
from tacit.methods.auto import AutoParty
from tacit.methods.auto.shared import Shared
from tacit.methods.bias import BiasParty
from tacit.methods.sgdmf.device import DeviceCohort
from tacit.methods.sgdmf.horizontal import HorizontalSilo
from tacit.methods.sgdmf.update_rule import UpdateRule
from tacit.partition import Setting
from tacit.prepare import plan
from tacit.testing.privacy_contract import PrivacyContract

CHAIN = {"factors": 3, "rounds": 2, "local_steps": 2, "sampling": 1.0}
AT_HOME = {"fine_tuning": 0, "pretraining": 200}
USER, RATING = (Unit.USER,), (Unit.RATING,)
HORIZONTAL, VERTICAL, DEVICE = (Setting.HORIZONTAL,), (Setting.VERTICAL,), (Setting.DEVICE,)


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


class TestALS(PrivacyContract):
    name = "als"
    parameters = {"factors": 2, "sweeps": 2}
    settings = (Setting.HORIZONTAL, Setting.DEVICE)
    within = dict.fromkeys((("horizontal", "rating"), ("device", "rating")), 0.45)


class TestDPALS(PrivacyContract):
    name = "dpals"
    parameters = {"factors": 2, "rounds": 2, "head": 6}
    units = USER


class TestPretrained(PrivacyContract):
    name = "sgdmf"
    parameters = {**CHAIN, **AT_HOME, "users": "pretrained", "trim": 3}
    settings = HORIZONTAL


class TestTogether(PrivacyContract):
    """Users' factors go along a step at a time, so that a climb leads them less far."""

    name = "sgdmf"
    parameters = {**CHAIN, **AT_HOME, "users": "together", "trim": 3}
    settings = HORIZONTAL
    within = {("horizontal", "user"): 0.25, ("horizontal", "rating"): 0.1}


class TestNoised(PrivacyContract):
    name = "sgdmf"
    parameters = {**CHAIN, **AT_HOME, "users": "noised"}
    settings, units = HORIZONTAL, RATING
    last = ("finish", "pretrain")  # is for factors that are not noised


class TestSummed(PrivacyContract):
    name = "sgdmf"
    parameters = {**CHAIN, **AT_HOME, "local_steps": 1, "trim": 3}
    settings, units = HORIZONTAL, USER


class TestVerticalUsers(PrivacyContract):
    name = "sgdmf"
    parameters = {**CHAIN, "final_steps": 2, "trim": 3}
    settings, units = VERTICAL, USER


class TestVerticalRatings(PrivacyContract):
    name = "sgdmf"
    parameters = {**CHAIN, "final_steps": 2}
    settings, units = VERTICAL, RATING


class TestDevicesThatSendARating(PrivacyContract):
    name = "sgdmf"
    parameters = {"factors": 3, "rounds": 2, "pretraining": 100}
    settings = DEVICE
    within = {("device", "rating"): 0.3}


class TestDevicesThatSendTheirRecord(PrivacyContract):
    name = "sgdmf"
    parameters = {"factors": 3, "rounds": 2, "pretraining": 100, "send": "record"}
    settings = DEVICE


class TestGradientClipping(PrivacyContract):
    name = "gradient-clipping"
    parameters = {**CHAIN, **AT_HOME, "trim": 3, "threshold": 2.0}
    settings, units = HORIZONTAL, USER


class TestVerticalGradientClipping(PrivacyContract):
    name = "gradient-clipping"
    parameters = {**CHAIN, "final_steps": 2, "threshold": 2.0}
    settings, units = VERTICAL, RATING


class TestSGLD(PrivacyContract):
    name = "dp-sgld"
    parameters = {**CHAIN, **AT_HOME, "trim": 3}
    settings, units = HORIZONTAL, USER


class TestVerticalSGLD(PrivacyContract):
    name = "dp-sgld"
    parameters = {**CHAIN, "final_steps": 2}
    settings, units = VERTICAL, RATING


class TestAlternating(PrivacyContract):
    name = "am-dpsgd"
    parameters = {"factors": 2, "rounds": 2, "clip": 0.5}
    units = USER


class TestSynchronous(PrivacyContract):
    name = "synsgd"
    parameters = {"factors": 3, "rounds": 2, "sampling": 1.0, "trim": 3, "fine_tuning": 0}
    units = USER
    within = {("horizontal", "user"): 0.25}


class TestLocalPrivate(PrivacyContract):
    name = "local-private"
    parameters = {**CHAIN}
    units = RATING


class TestReduced(PrivacyContract):
    """ε₀ of one report, by the frequencies of reports."""

    name = "gd-dr"
    parameters = {"factors": 2, "rounds": 4, "projection": 2}
    units, declared = USER, 1


class TestObjectivePerturbation(PrivacyContract):
    """No answer has noise added to it. What the proof in tacit.boundary.objective_perturbation rests on is tested: a
    user is in θ objectives at most, and in each the gradient moves by 4R^1.5 at most wherever in the ball it is taken.
    It moves along one direction, so the ends of the ball in that direction are the worst."""

    name = "objective-perturbation"
    parameters = {"factors": 3, "trim": 3, "pretraining": 100}
    within = {("horizontal", "rating"): 0.45}

    def apart(self, here, there, stream, times):
        (H, g), (near_H, near_g) = here.squares(stream()), there.squares(stream())
        H, g = H - near_H, g - near_g
        changed = H.any(axis=(1, 2)) | g.any(axis=1)
        assert np.count_nonzero(changed) <= times * here.query.theta
        radius = math.sqrt(here.query.scale.span)
        ends = radius * np.concatenate([np.linalg.eigh(H)[1], -np.linalg.eigh(H)[1]], axis=2)
        return float(np.linalg.norm(H @ ends - g[:, :, None], axis=1).max())


def test_every_method_with_a_guarantee_is_here():
    here = {case.name for case in PrivacyContract.__subclasses__() if case.__module__ == __name__}
    assert here == {name for name, method in known().items() if method.guaranteed}


class Sealed(TestBias):
    """The sums of integers of `bias` alone."""

    def plan(self, setting, unit, sealed=False):
        return super().plan(setting, unit, sealed=True)


# -- planted ----------------------------------------------------------------------------------------------------------


def caught(case, setting, unit):
    """The contract's word for a bug that was planted."""
    with pytest.raises(AssertionError) as found:
        case().test_no_neighbour_moves_an_answer_further_than_stated(setting, unit)
    return str(found.value)


def factor_two_is_missing(patch):
    real = EmbeddingGradient._of_ratings
    patch.setattr(EmbeddingGradient, "_of_ratings", staticmethod(lambda *given: real(*given) / 2))


def the_root_of_theta_is_missing(patch):
    patch.setattr(EmbeddingGradient, "_of_ratings", staticmethod(lambda size, kept, blocks: 2 * size**1.5))


def trimming_is_ignored(patch):
    patch.setattr(gradients, "trim", lambda part, *given: part)


def two_ratings_are_sent_for_one(patch):
    real = gradients.trim
    patch.setattr(gradients, "trim", lambda part, items, limit, stream: real(part, items, 2, stream))


def nobody_projects(patch):
    patch.setattr(UpdateRule, "project", lambda self, parameters, received, span: received.copy())
    patch.setattr(EmbeddingGradient, "clipped", lambda self, x, rows: np.clip(bounded.finite(x[rows]), -1e18, 1e18))


def negative_entries_stay(patch):
    """Rows are scaled to √R, but keep their signs: |u·v − r| reaches 2R."""

    def scaled(self, x, rows):
        x = np.clip(bounded.finite(x[rows]), -1e18, 1e18)
        return x / np.maximum(1, np.linalg.norm(x, axis=1, keepdims=True) / math.sqrt(self.scale.span))

    nobody_projects(patch)
    patch.setattr(EmbeddingGradient, "clipped", scaled)


def factors_are_shared(patch):
    """Others' ratings are in what is fitted to one user."""
    for party in (HorizontalSilo, DeviceCohort):

        def shared(self, *given, real=party._fitted):
            users = real(self, *given)
            return (users + users.mean(axis=0)) / 2

        patch.setattr(party, "_fitted", shared)


def answers_are_divided_by_what_was_sampled(patch):
    """An expected count over the realised one, so that sizes stay as they are on average."""
    real = GradientSum.exact

    def mean(self, state, stream):
        answer = real(self, state, stream)
        rows = max(1, len(answer["items"].rows))
        return {name: Rows(b.n, b.rows, b.values * self.ratings.n_items / rows) for name, b in answer.items()}

    patch.setattr(GradientSum, "exact", mean)


SILOS, COLUMNS, ENTRIES = (TestPretrained, "user"), (TestVerticalUsers, "user"), (TestVerticalRatings, "rating")
SENT, RECORDS = (TestDevicesThatSendARating, "user"), (TestDevicesThatSendTheirRecord, "user")


@pytest.mark.parametrize(
    ("plant", "cases"),
    [
        (factor_two_is_missing, [SILOS, COLUMNS, ENTRIES]),
        (the_root_of_theta_is_missing, [SILOS, COLUMNS]),
        (trimming_is_ignored, [SILOS, COLUMNS]),
        (two_ratings_are_sent_for_one, [SENT]),
        (nobody_projects, [SILOS, COLUMNS]),
        (negative_entries_stay, [ENTRIES]),
        (factors_are_shared, [SILOS, SENT, RECORDS]),
        (answers_are_divided_by_what_was_sampled, [SILOS]),
    ],
)
def test_a_planted_bug_of_gradients_is_caught(plant, cases, monkeypatch):
    plant(monkeypatch)
    for case, unit in cases:
        assert "times as far" in caught(case, case.settings[0], Unit(unit))


def test_planted_a_clip_that_is_not_applied(monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(gradients, "MARGIN", math.inf)
        assert "times as far apart" in caught(TestGradientClipping, Setting.HORIZONTAL, Unit.USER)
    monkeypatch.setattr(bounded, "bounded_rows", lambda indptr, x, limit, exactly=False: bounded.finite(x))
    assert "times as far apart" in caught(TestBias, Setting.HORIZONTAL, Unit.USER)


def test_planted_zero_out_where_it_is_replace(monkeypatch):
    """The climb finds a rating that moves its user's answer further than her whole record's bound."""
    monkeypatch.setattr(EmbeddingGradient, "counted", lambda self, unit: (Unit.USER, Relation.ZERO_OUT))
    assert "times as far apart" in caught(TestPretrained, Setting.HORIZONTAL, Unit.RATING)
    for case, setting in ((TestPretrained, Setting.HORIZONTAL), (TestDevicesThatSendARating, Setting.DEVICE)):
        with pytest.raises(AssertionError):
            case().test_what_is_counted_covers_what_is_promised(setting, Unit.RATING)


def test_planted_half_the_noise(monkeypatch):
    """The plan charges a multiplier, and the gate adds half of that."""
    with monkeypatch.context() as broken:
        broken.setattr(StepTerms, "sigma", property(lambda self: self.multiplier * self.sensitivity / 2))
        assert "less noise" in caught(TestPretrained, Setting.HORIZONTAL, Unit.USER)
    real = Floats.__init__
    monkeypatch.setattr(Floats, "__init__", lambda self, sigma=0.0: real(self, sigma / 2))
    assert "less noise" in caught(TestBias, Setting.DEVICE, Unit.USER)


def test_planted_noise_that_is_not_added(monkeypatch):
    """What is exact leaves: nothing is noised, so that the climb finds nothing that it could measure."""
    exact = lambda self, answering, terms, state, step: {  # noqa: E731
        name: bounded.as_float32(block) for name, block in answering.exact(state, self.stream("sample", step)).items()
    }
    monkeypatch.setattr(Gate, "_noised_answer", exact)
    assert "no noise" in caught(TestPretrained, Setting.HORIZONTAL, Unit.USER)


def test_planted_a_charge_for_more_noise_than_there_is(monkeypatch):
    """A plan whose events claim twice the multiplier that the noise has; and fewer answers than are given."""
    real = plan.event_of

    def doubled(query, z, count, code, crowd):
        return real(query, 2 * z, count, replace(code, multiplier=2 * z) if isinstance(code, Grid) else code, crowd)

    with monkeypatch.context() as broken:
        broken.setattr(plan, "event_of", doubled)
        assert "less noise" in caught(TestPretrained, Setting.HORIZONTAL, Unit.USER)
        assert "less noise in integers" in caught(Sealed, Setting.HORIZONTAL, Unit.USER)
    monkeypatch.setattr(plan, "event_of", lambda *stated: replace(real(*stated), count=1))
    assert "are charged" in caught(TestPretrained, Setting.HORIZONTAL, Unit.USER)
    assert "are charged" in caught(TestVerticalUsers, Setting.VERTICAL, Unit.USER)


def test_planted_users_that_share_a_mean(monkeypatch):
    """One record moves what all others contribute."""
    mean = lambda self, b: np.full(self.member.users, self.ratings.values.sum() / 9, np.float32)  # noqa: E731
    monkeypatch.setattr(BiasParty, "_levels", mean)
    assert "times as far apart" in caught(TestBias, Setting.HORIZONTAL, Unit.USER)


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


def test_planted_ratings_that_are_centred_by_their_users(monkeypatch):
    """The unit is a rating, and users' own means come in all the same."""

    def centred(self):
        means = self._levels(np.zeros(self.member.items, dtype=np.float32))
        middle = np.float32(self.facts.scale.low + self.facts.scale.span / 2)
        return (replace(self.ratings, values=self.ratings.values - means[self.ratings.users] + middle),)

    monkeypatch.setattr(BiasParty, "_query_data", centred)
    assert "times as far" in caught(TestBias, Setting.HORIZONTAL, Unit.RATING)


def test_planted_noise_for_one_round(monkeypatch):
    """Noise that is calibrated for fewer releases than the run makes."""
    monkeypatch.setattr(Terms, "events", property(lambda self: tuple(one.event for one in self.steps.values())))
    with pytest.raises(AssertionError):
        TestPretrained().test_what_is_charged_is_what_was_asked_for(Setting.HORIZONTAL, Unit.USER)


def test_planted_a_grid_with_too_little_variance(monkeypatch):
    real = Grid.variance.fget
    monkeypatch.setattr(Grid, "variance", property(lambda self: real(self) / 4))
    assert "less noise in integers" in caught(Sealed, Setting.HORIZONTAL, Unit.USER)


def test_planted_pieces_that_are_no_users(monkeypatch):
    """A piece for every rating of a user, each as long as all of hers may be."""
    real = bounded.item_contributions

    def parted(starts, items, channels, n_items):
        ones = np.arange(len(items) + 1)
        return real(ones, items, {name: 0 * x + 0.7 for name, x in channels.items()}, n_items)

    monkeypatch.setattr(bounded, "item_contributions", parted)
    assert "sum of integers" in caught(TestBias, Setting.HORIZONTAL, Unit.USER)


def test_planted_reports_that_tell_more(monkeypatch):
    monkeypatch.setattr(projected, "RandomizedResponse", lambda epsilon: RandomizedResponse(2 * epsilon))
    assert "times as far apart" in caught(TestReduced, Setting.DEVICE, Unit.USER)
