"""Methods that release noised gradients keep the privacy contract; planted bugs show that it can fail."""

import math

import numpy as np
import pytest
from privacy_cases import DEVICE, HORIZONTAL, RATING, USER, VERTICAL, caught

from tacit.boundary import clipped_gradients as gradients
from tacit.boundary import clipped_sums as bounded
from tacit.boundary.clipped_gradients import EmbeddingGradient, GradientSum
from tacit.boundary.query import Rows
from tacit.guarantee import Relation, Unit
from tacit.methods.sgdmf.device import DeviceCohort
from tacit.methods.sgdmf.horizontal import HorizontalSilo
from tacit.methods.sgdmf.update_rule import UpdateRule
from tacit.partition import Setting
from tacit.testing.privacy_contract import PrivacyContract

CHAIN = {"factors": 3, "rounds": 2, "local_steps": 2, "sampling": 1.0}
AT_HOME = {"fine_tuning": 0, "pretraining": 200}


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


class TestSynchronous(PrivacyContract):
    name = "synsgd"
    parameters = {"factors": 3, "rounds": 2, "sampling": 1.0, "trim": 3, "fine_tuning": 0}
    units = USER
    within = {("horizontal", "user"): 0.25}


class TestLocalPrivate(PrivacyContract):
    name = "local-private"
    parameters = {**CHAIN}
    units = RATING


# -- planted -----------------------------------------------------------------------------------------------------------


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


def test_planted_zero_out_where_it_is_replace(monkeypatch):
    """The climb finds a rating that moves its user's answer further than her whole record's bound."""
    monkeypatch.setattr(EmbeddingGradient, "counted", lambda self, unit: (Unit.USER, Relation.ZERO_OUT))
    assert "times as far apart" in caught(TestPretrained, Setting.HORIZONTAL, Unit.RATING)
    for case, setting in ((TestPretrained, Setting.HORIZONTAL), (TestDevicesThatSendARating, Setting.DEVICE)):
        with pytest.raises(AssertionError):
            case().test_what_is_counted_covers_what_is_promised(setting, Unit.RATING)
