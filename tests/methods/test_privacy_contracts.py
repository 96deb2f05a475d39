"""Every method that carries a guarantee keeps the privacy contract: here those that solve problems or send reports, and
bugs of the gate and of the plan, which no family's methods would survive."""

import math
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import test_privacy_contracts_of_gradients as descents
import test_privacy_contracts_of_sums as sums
from privacy_cases import RATING, USER, caught

from tacit.boundary import clipped_gradients as gradients
from tacit.boundary import clipped_sums as bounded
from tacit.boundary import projected
from tacit.boundary.code import Floats, Grid
from tacit.boundary.gate import Gate
from tacit.boundary.randomized_response import RandomizedResponse
from tacit.boundary.spec import StepTerms, Terms
from tacit.data.ratings import Feedback
from tacit.guarantee import Unit
from tacit.methods import known
from tacit.partition import Setting
from tacit.prepare import plan
from tacit.testing.privacy_contract import PrivacyContract


class TestReduced(PrivacyContract):
    """ε₀ of one report, by the frequencies of reports."""

    name = "gd-dr"
    parameters = {"factors": 2, "rounds": 4, "projection": 2}
    units, declared = USER, 1


class TestReportsOfCells(PrivacyContract):
    """The same of one cell of a gradient."""

    name = "implicit"
    parameters = {"factors": 1, "rounds": 4, "reports": 1, "mechanism": "one-bit", "confidence": 50.0}
    settings, feedback, within = (Setting.DEVICE,), Feedback.COUNT, {("device", "user"): 0.4}
    units, declared = USER, 1


class TestFlippedInteractions(PrivacyContract):
    """ε₀ of the one bit that an interaction is in, twice that where it moves to another item."""

    name = "dplcf"
    settings, feedback = (Setting.DEVICE,), Feedback.COUNT
    units, declared = RATING, 1
    within = {("device", "rating"): 0.3}


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
    families = {path.stem for path in Path(__file__).parent.glob("test_privacy_contracts*.py")}
    for family in families:
        import_module(family)
    here = {case.name for case in PrivacyContract.__subclasses__() if case.__module__ in families}
    assert here == {name for name, method in known().items() if method.guaranteed}


class Sealed(sums.TestBias):
    """The sums of integers of `bias` alone."""

    def plan(self, setting, unit, sealed=False):
        return super().plan(setting, unit, sealed=True)


# -- planted -----------------------------------------------------------------------------------------------------------


def test_planted_a_clip_that_is_not_applied(monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(gradients, "MARGIN", math.inf)
        assert "times as far apart" in caught(descents.TestGradientClipping, Setting.HORIZONTAL, Unit.USER)
    monkeypatch.setattr(bounded, "bounded_rows", lambda indptr, x, limit, exactly=False: bounded.finite(x))
    assert "times as far apart" in caught(sums.TestBias, Setting.HORIZONTAL, Unit.USER)


def test_planted_half_the_noise(monkeypatch):
    """The plan charges a multiplier, and the gate adds half of that."""
    with monkeypatch.context() as broken:
        broken.setattr(StepTerms, "sigma", property(lambda self: self.multiplier * self.sensitivity / 2))
        assert "less noise" in caught(descents.TestPretrained, Setting.HORIZONTAL, Unit.USER)
    real = Floats.__init__
    monkeypatch.setattr(Floats, "__init__", lambda self, sigma=0.0: real(self, sigma / 2))
    assert "less noise" in caught(sums.TestBias, Setting.DEVICE, Unit.USER)


def test_planted_noise_that_is_not_added(monkeypatch):
    """What is exact leaves: nothing is noised, so that the climb finds nothing that it could measure."""
    exact = lambda self, answering, terms, state, step: {  # noqa: E731
        name: bounded.as_float32(block) for name, block in answering.exact(state, self.stream("sample", step)).items()
    }
    monkeypatch.setattr(Gate, "_noised_answer", exact)
    assert "no noise" in caught(descents.TestPretrained, Setting.HORIZONTAL, Unit.USER)


def test_planted_a_charge_for_more_noise_than_there_is(monkeypatch):
    """A plan whose events claim twice the multiplier that the noise has; and fewer answers than are given."""
    real = plan.event_of

    def doubled(query, z, count, code, crowd):
        return real(query, 2 * z, count, replace(code, multiplier=2 * z) if isinstance(code, Grid) else code, crowd)

    with monkeypatch.context() as broken:
        broken.setattr(plan, "event_of", doubled)
        assert "less noise" in caught(descents.TestPretrained, Setting.HORIZONTAL, Unit.USER)
        assert "less noise in integers" in caught(Sealed, Setting.HORIZONTAL, Unit.USER)
    monkeypatch.setattr(plan, "event_of", lambda *stated: replace(real(*stated), count=1))
    assert "are charged" in caught(descents.TestPretrained, Setting.HORIZONTAL, Unit.USER)
    assert "are charged" in caught(descents.TestVerticalUsers, Setting.VERTICAL, Unit.USER)


def test_planted_noise_for_one_round(monkeypatch):
    """Noise that is calibrated for fewer releases than the run makes."""
    monkeypatch.setattr(Terms, "events", property(lambda self: tuple(one.event for one in self.steps.values())))
    with pytest.raises(AssertionError):
        descents.TestPretrained().test_what_is_charged_is_what_was_asked_for(Setting.HORIZONTAL, Unit.USER)


def test_planted_a_grid_with_too_little_variance(monkeypatch):
    real = Grid.variance.fget
    monkeypatch.setattr(Grid, "variance", property(lambda self: real(self) / 4))
    assert "less noise in integers" in caught(Sealed, Setting.HORIZONTAL, Unit.USER)


def test_planted_reports_that_tell_more(monkeypatch):
    monkeypatch.setattr(projected, "RandomizedResponse", lambda epsilon: RandomizedResponse(2 * epsilon))
    assert "times as far apart" in caught(TestReduced, Setting.DEVICE, Unit.USER)
