"""Every method that carries a guarantee keeps the privacy contract; planted bugs show that the contract can fail."""

import math
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from tacit.boundary import bounded, gradients, projected
from tacit.boundary.gradients import EmbeddingGradient
from tacit.boundary.randomize import RandomizedResponse
from tacit.guarantee import Relation, Unit
from tacit.methods import known
from tacit.partition import Setting
from tacit.testing.privacy import PrivacyContract

CHAIN = {"factors": 3, "rounds": 2, "local_steps": 2, "sampling": 1.0}
AT_HOME = {"fine_tuning": 0, "pretraining": 200}
USER, RATING = (Unit.USER,), (Unit.RATING,)
HORIZONTAL, VERTICAL, DEVICE = (Setting.HORIZONTAL,), (Setting.VERTICAL,), (Setting.DEVICE,)


class TestBias(PrivacyContract):
    name = "bias"


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


class TestReduced(PrivacyContract):
    """ε₀ of one report, by the frequencies of reports."""

    name = "gd-dr"
    parameters = {"factors": 2, "rounds": 4, "projection": 2}
    units = USER


class TestObjectivePerturbation(PrivacyContract):
    """No answer has noise added to it, so there is no distance of answers to hold to. What the proof in
    tacit.boundary.objective rests on is looked at instead: a user is in θ objectives at most, and in each of them the
    gradient moves by 4R^1.5 at most wherever in the ball it is taken. It moves along one direction, so that the ends of
    the ball in that direction are the worst."""

    name = "objective-perturbation"
    parameters = {"factors": 3, "trim": 3, "pretraining": 100}
    within = {("horizontal", "rating"): 0.45}

    def apart(self, here, there, stream, times):
        (H, g), (near_H, near_g) = here.squares(stream()), there.squares(stream())
        H, g = H - near_H, g - near_g
        changed = H.any(axis=(1, 2)) | g.any(axis=1)
        assert np.count_nonzero(changed) <= times * here.conditions.theta
        radius = math.sqrt(here.conditions.span)
        ends = radius * np.concatenate([np.linalg.eigh(H)[1], -np.linalg.eigh(H)[1]], axis=2)
        return float(np.linalg.norm(H @ ends - g[:, :, None], axis=1).max())


def test_every_method_with_a_guarantee_is_here():
    here = {case.name for case in PrivacyContract.__subclasses__() if case.__module__ == __name__}
    assert here == {name for name, method in known().items() if method.schedule is not None}


# -- planted ----------------------------------------------------------------------------------------------------------


def caught(case, setting, unit):
    """The contract's word for a bug that was planted."""
    with pytest.raises(AssertionError) as found:
        case().test_no_neighbour_moves_an_answer_further_than_stated(setting, unit)
    return str(found.value)


def test_planted_a_sensitivity_without_the_root_of_theta(monkeypatch):
    monkeypatch.setattr(EmbeddingGradient, "_of_ratings", staticmethod(lambda size, kept, blocks: 2 * size**1.5))
    assert "times as far apart" in caught(TestPretrained, Setting.HORIZONTAL, Unit.USER)
    assert "times as far apart" in caught(TestVerticalUsers, Setting.VERTICAL, Unit.USER)


def test_planted_a_clip_that_is_not_applied(monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(gradients, "ROOM", math.inf)
        assert "times as far apart" in caught(TestGradientClipping, Setting.HORIZONTAL, Unit.USER)
    monkeypatch.setattr(bounded, "bounded_rows", lambda indptr, x, limit, exactly=False: bounded.finite(x))
    assert "times as far apart" in caught(TestBias, Setting.HORIZONTAL, Unit.USER)


def test_planted_zero_out_where_it_is_replace(monkeypatch):
    """The climb finds a rating that moves its user's answer further than her whole record's bound."""
    both = SimpleNamespace(REPLACE=Relation.ZERO_OUT, ZERO_OUT=Relation.ZERO_OUT)
    monkeypatch.setattr(import_module("tacit.methods.sgdmf.schedule"), "Relation", both)
    assert "times as far apart" in caught(TestPretrained, Setting.HORIZONTAL, Unit.RATING)
    for case, setting in ((TestPretrained, Setting.HORIZONTAL), (TestDevicesThatSendARating, Setting.DEVICE)):
        with pytest.raises(AssertionError):
            case().test_what_is_counted_covers_what_is_promised(setting, Unit.RATING)


def test_planted_half_the_noise(monkeypatch):
    from tacit.boundary.protection import Protection

    scale = Protection.scale
    monkeypatch.setattr(Protection, "scale", lambda self, query: scale(self, query) / 2)
    assert "less noise" in caught(TestPretrained, Setting.HORIZONTAL, Unit.USER)


def test_planted_pieces_that_are_no_users(monkeypatch):
    """A piece for every rating of a user, each as long as all of hers may be."""
    real = bounded.in_channels

    def parted(starts, items, channels, n_items):
        ones = np.arange(len(items) + 1)
        return real(ones, items, {name: 0 * x + 0.7 for name, x in channels.items()}, n_items)

    monkeypatch.setattr(bounded, "in_channels", parted)
    assert "whole numbers" in caught(TestBias, Setting.HORIZONTAL, Unit.USER)


def test_planted_reports_that_tell_more(monkeypatch):
    monkeypatch.setattr(projected, "RandomizedResponse", lambda epsilon: RandomizedResponse(2 * epsilon))
    assert "times as far apart" in caught(TestReduced, Setting.DEVICE, Unit.USER)
