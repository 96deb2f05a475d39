"""SGDMF that starts from released biases: what the start says, what it costs, and where it is refused."""

import json

import numpy as np
import pytest

import tacit
from tacit.boundary.query import Mechanism
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Scale
from tacit.data.synthetic import synthesize
from tacit.errors import PrivacyRefused, UsageError
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods import find
from tacit.methods.context import Context, Target
from tacit.methods.sgdmf.biased import SHARE, biased_items, level_user
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.partition import Setting, partition
from tacit.testing.method_contract import MethodContract
from tacit.testing.privacy_contract import PrivacyContract

FACTS = PublicFacts(600, 40, Scale(1, 5), 9_000)
QUICK = {"factors": 4, "rounds": 2, "local_steps": 2, "sampling": 1.0, "start": "bias"}


class TestStart(MethodContract):
    name = "sgdmf"
    parameters = {**QUICK, "sampling": 0.5}
    never = {"horizontal": ("users",)}

    def pytest_generate_tests(self, metafunc):
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", [Setting.HORIZONTAL, Setting.VERTICAL])


class TestStartOfDevices(MethodContract):
    name = "sgdmf"
    parameters = {"factors": 4, "rounds": 2, "start": "bias"}
    never = {"device": ("users",)}

    def pytest_generate_tests(self, metafunc):
        if "setting" in metafunc.fixturenames:
            metafunc.parametrize("setting", [Setting.DEVICE])


class TestNeighbours(PrivacyContract):
    name = "sgdmf"
    parameters = {**QUICK, "trim": 3, "fine_tuning": 0, "pretraining": 50}
    settings, units = (Setting.HORIZONTAL,), (Unit.USER,)


class TestVerticalNeighbours(PrivacyContract):
    name = "sgdmf"
    parameters = {**QUICK, "trim": 3, "final_steps": 2}
    settings, units = (Setting.VERTICAL,), (Unit.USER,)


class TestDeviceNeighbours(PrivacyContract):
    name = "sgdmf"
    parameters = {"factors": 3, "rounds": 2, "pretraining": 50, "start": "bias"}
    settings, units = (Setting.DEVICE,), (Unit.USER,)


def specs(setting, unit=Unit.USER, **parameters):
    context = Context(FACTS, setting, 3, Target(2.0, 1e-5, unit))
    chosen = SGDMFParameters(**parameters).resolved(context)
    return {spec.step: spec for spec in find("sgdmf").stated(chosen, context)}


@pytest.mark.parametrize("setting", list(Setting))
def test_the_start_is_charged_its_part_of_the_budget(setting):
    stated = specs(setting, start="bias")
    assert stated["start"].share == SHARE
    assert stated["start"].query.mechanism is Mechanism.NORMAL
    assert sum(spec.share for spec in stated.values()) == pytest.approx(1)
    assert "start" not in specs(setting)


def test_all_steps_after_the_start_have_the_same_noise():
    stated = specs(Setting.VERTICAL, start="bias")
    per_answer = {spec.share / (spec.releases * spec.answers) for name, spec in stated.items() if name != "start"}
    assert max(per_answer) == pytest.approx(min(per_answer))


def test_factors_of_the_start_say_level_plus_bias():
    ratings = synthesize(50, 30, 400, seed=3).ratings
    facts, b = Facts.of(partition(ratings, into=2), 7), np.linspace(-1.5, 0.7, 30)
    V = biased_items(facts, b, 6)
    said = facts.scale.low + V @ level_user(facts.scale, 6)
    np.testing.assert_allclose(said - said.mean(), b - b.mean(), atol=1e-4)
    assert V.min() >= 0
    assert np.square(V).sum(axis=1).max() <= facts.scale.span + 1e-4


@pytest.mark.parametrize("into", [{"into": 3}, {"by": "device"}, {"by": "item", "into": 3}])
def test_a_start_from_biases_is_better_where_noise_leaves_no_room_for_steps(into):
    world = synthesize(2000, 500, 60_000, rank=4, noise=0.8, seed=5).ratings
    seen, hidden = tacit.split(world, test=0.1, seed=7)
    quick = {"aggregation": "ideal"} if into.get("by") == "device" else {"rounds": 2, "local_steps": 2}
    errors = {}
    for start in ("paper", "bias"):
        model = tacit.SGDMF(factors=4, start=start, privacy=tacit.DP(epsilon=1, delta=1e-5), seed=7, **quick)
        errors[start] = tacit.evaluate(model.fit(tacit.partition(seen, **into)), hidden, ranking=False).metrics["mse"]
    assert errors["bias"] < errors["paper"]


def test_the_papers_start_keeps_its_hash():
    assert "start" not in json.loads(SGDMFParameters().model_dump_json())
    assert SGDMFParameters(start="bias").hash != SGDMFParameters().hash
    again = SGDMFParameters.model_validate_json(SGDMFParameters(start="bias").model_dump_json())
    assert again == SGDMFParameters(start="bias")


def test_one_factor_cannot_hold_level_and_bias():
    with pytest.raises(UsageError, match="factors to 2 or more"):
        specs(Setting.HORIZONTAL, start="bias", factors=1)


def test_devices_per_rating_are_refused_with_the_reason():
    """Their steps move with the whole record, so the start's bound on a single rating would not fit."""
    context = Context(FACTS, Setting.DEVICE, 600, Target(2.0, 1e-6, Unit.RATING))
    method = find("sgdmf")
    parameters = method.parameters(factors=4, rounds=2, start="bias").resolved(context)
    with pytest.raises(PrivacyRefused, match="whole record"):
        method.stated(parameters, context)
