"""Calibration: enough noise, no more than needed, and a cache that can be lost, damaged or forged without harm."""

import json
import math
from decimal import Decimal

import pytest

from tacit.boundary import account, calibrate, gdp
from tacit.boundary.events import Gaussian, Laplace, NonPrivate, Pure, SampledGaussian, Skellam
from tacit.errors import PrivacyRefused, UsageError
from tacit.guarantee import Relation

ZERO_OUT, REPLACE = Relation.ZERO_OUT, Relation.REPLACE


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "tacit" / "calibrations"


def steps(z):
    return [SampledGaussian(z, 0.01, 1000)]


def skellam(z):
    return [Skellam((100 * z) ** 2, 300.0, 100.0, 20)]


def before(z):
    """The number of the grid before z."""
    return float(calibrate._GRID.next_minus(Decimal(repr(z))))


SCHEDULES = {
    "plain": (lambda z: [Gaussian(z, 100), Gaussian(2 * z, 7)], 1.0, 1e-6, ZERO_OUT),
    "plain, replaced": (lambda z: [Gaussian(z, 3)], 0.01, 1e-9, REPLACE),
    "plain, with a fixed part": (lambda z: [Gaussian(z, 3), Gaussian(20.0)], 1.0, 1e-6, ZERO_OUT),
    "sampled": (lambda z: [SampledGaussian(z, 0.1, 20)], 1.0, 1e-5, REPLACE),
    "skellam": (skellam, 1.0, 1e-6, ZERO_OUT),
    "laplace": (lambda z: [Laplace(z, 3)], 0.5, 0.0, REPLACE),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_multiplier_is_the_smallest_of_the_grid_that_holds(name):
    schedule, epsilon, delta, relation = SCHEDULES[name]
    z = calibrate.multiplier(schedule, epsilon, delta, relation)
    assert account.epsilon(schedule(z), delta, relation) <= epsilon
    assert account.epsilon(schedule(before(z)), delta, relation) > epsilon
    assert len(Decimal(repr(z)).normalize().as_tuple().digits) <= 6


def test_a_thousand_sampled_steps_at_one_need_what_the_literature_says(own_cache, monkeypatch):
    """q = 0.01, 1000 steps, (1, 1e-5): σ ≈ 1.415; found again from the file alone."""
    z = calibrate.multiplier(steps, 1.0, 1e-5, ZERO_OUT)
    assert z == pytest.approx(1.415, abs=1e-3)
    assert account.epsilon(steps(z), 1e-5, ZERO_OUT) <= 1.0
    monkeypatch.setattr(calibrate, "merged_epsilon", lambda *_: pytest.fail("it was computed again"))
    assert calibrate.multiplier(steps, 1.0, 1e-5, ZERO_OUT) == z


def test_plain_schedules_are_solved_in_closed_form(own_cache):
    z = calibrate.multiplier(lambda z: [Gaussian(z, 400)], 1.0, 1e-6, ZERO_OUT)
    assert z == pytest.approx(20 / gdp.mu(1.0, 1e-6), rel=1e-5)
    assert not own_cache.exists()


@pytest.mark.parametrize(
    "schedule",
    [lambda z: [Laplace(z), Pure(2.0, "exponential")], lambda z: [Laplace(z), NonPrivate()], lambda z: [Laplace(0.1)]],
)
def test_what_no_noise_can_reach_is_refused(schedule):
    with pytest.raises(PrivacyRefused, match="No noise keeps this schedule"):
        calibrate.multiplier(schedule, 1.0, 1e-6, ZERO_OUT)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_impossible_targets_are_refused(epsilon):
    with pytest.raises(UsageError, match="not possible"):
        calibrate.multiplier(skellam, epsilon, 1e-6, ZERO_OUT)
    with pytest.raises(UsageError, match="not possible"):
        calibrate.multiplier(skellam, 1.0, epsilon - 1, ZERO_OUT)


def test_a_schedule_that_costs_nothing_needs_the_least_noise():
    assert calibrate.multiplier(lambda z: [SampledGaussian(z, 0.0)], 1.0, 1e-6, ZERO_OUT) == calibrate.LEAST


def test_a_value_is_kept_as_json_whole_and_for_the_owner_alone(own_cache):
    z = calibrate.multiplier(skellam, 1.0, 1e-6, ZERO_OUT)
    [file] = list(own_cache.iterdir())
    assert json.loads(file.read_text())["multiplier"] == repr(z)
    assert file.stat().st_mode & 0o077 == 0
    assert own_cache.stat().st_mode & 0o077 == 0


DAMAGE = {
    "empty": lambda text: "",
    "cut short": lambda text: text[: len(text) // 2],
    "not json": lambda text: "\x00\xff" + text,
    "another value": lambda text: json.dumps({**json.loads(text), "multiplier": "0.001"}),
    "a list": lambda text: "[1, 2]",
    "no number": lambda text: json.dumps({**json.loads(text), "multiplier": "NaN"}),
    "not sealed": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "seal"}),
    "forged": lambda text: forged(text),
}


def forged(text):
    """Too little noise, sealed anew by somebody who knows how; the events do not agree."""
    record = {k: v for k, v in json.loads(text).items() if k != "seal"} | {"multiplier": "0.5"}
    return json.dumps({**record, "seal": calibrate._hash(record)})


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_ignored_and_written_anew(damage, own_cache):
    z = calibrate.multiplier(skellam, 1.0, 1e-6, ZERO_OUT)
    [file] = list(own_cache.iterdir())
    whole = file.read_text()
    file.write_text(DAMAGE[damage](whole))
    assert calibrate.multiplier(skellam, 1.0, 1e-6, ZERO_OUT) == z
    assert file.read_text() == whole
    assert list(own_cache.iterdir()) == [file]


def test_a_record_for_a_schedule_that_makes_other_events_is_not_used():
    """Two schedules that agree where the question is asked, at 1 and 2, and differ where it is answered."""

    def other(z):
        return skellam(z) if z in (1.0, 2.0) else [Skellam((100 * z) ** 2, 300.0, 100.0, 200)]

    few, many = (calibrate.multiplier(s, 1.0, 1e-6, ZERO_OUT) for s in (skellam, other))
    assert account.epsilon(other(many), 1e-6, ZERO_OUT) <= 1.0
    assert many > few


def test_another_question_or_version_has_another_record(own_cache, monkeypatch):
    for delta, relation in ((1e-6, ZERO_OUT), (1e-7, ZERO_OUT), (1e-6, REPLACE)):
        calibrate.multiplier(skellam, 1.0, delta, relation)
    assert len(list(own_cache.iterdir())) == 3
    monkeypatch.setattr(calibrate, "_version", lambda name: "0.0.0")
    calibrate.multiplier(skellam, 1.0, 1e-6, ZERO_OUT)
    assert len(list(own_cache.iterdir())) == 4


def test_without_a_place_to_keep_it_the_value_is_the_same(tmp_path, monkeypatch):
    z = calibrate.multiplier(skellam, 1.0, 1e-6, ZERO_OUT, cache=False)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert calibrate.multiplier(skellam, 1.0, 1e-6, ZERO_OUT) == z
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert calibrate.folder() == tmp_path / ".cache" / "tacit" / "calibrations"
