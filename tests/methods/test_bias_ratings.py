"""`bias` where the unit is one rating: every rating goes into the sum by itself, and the noise is made for one."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary.account import epsilon
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.events import Gaussian
from tacit.config import RunFile
from tacit.data.ratings import Scale
from tacit.data.synthetic import demo
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.methods import chosen
from tacit.methods.bias import BiasParameters, estimated
from tacit.partition import partition
from tacit.prepare.run_file import plan
from tacit.rng import derive

DATA = {"source": "demo", "users": 400, "items": 60, "ratings": 8000}
WHERE = [
    ({"into": 4}, {"name": "plain"}, "silo"),
    ({"into": 4}, {"name": "ideal"}, "distributed"),
    ({"by": "device"}, {"name": "ideal"}, "distributed"),
    ({"by": "item", "into": 3}, {"name": "plain"}, "silo"),
]


def file(unit="rating", **sections) -> RunFile:
    base = {
        "data": DATA,
        "partition": {"into": 4},
        "method": {"name": "bias"},
        "privacy": {"epsilon": 1.0, "delta": 1e-6, "unit": unit},
    }
    return RunFile.model_validate({"evaluate": {"floor": False}, **base, **sections})


# -- the guarantee --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("divided", "aggregation", "trust"), WHERE)
def test_it_keeps_its_guarantee_everywhere_and_beats_the_unit_user(tmp_path, divided, aggregation, trust):
    """Per rating is the weaker promise at the same ε, and must buy accuracy."""
    there = {"partition": divided, "aggregation": aggregation}
    mine, users = (run(file(unit, **there), tmp_path / unit) for unit in ("rating", "user"))
    promised = mine["guarantee"]
    assert (promised["unit"], promised["relation"], promised["model"]) == ("rating", "zero-out", trust)
    assert 0.99 < promised["epsilon"] <= 1.0
    assert mine["metrics"]["mse"] < users["metrics"]["mse"]


def test_one_answer_with_noise_for_one_rating_is_the_whole_cost():
    made = plan(file(), *chosen({"name": "bias"}))
    z, (terms,) = made.multiplier, made.terms.steps.values()
    assert terms.query == Deviations(Scale(1, 5), 0.7)
    assert terms.sensitivity == np.hypot(2.0, 0.7)
    assert terms.event == Gaussian(z, 1)
    assert made.terms.events == (Gaussian(z, 1),)
    assert made.sigma() == {"contribute": z * terms.sensitivity}
    assert float(epsilon([Gaussian(z)], 1e-6, Relation.ZERO_OUT)) == pytest.approx(1.0, rel=1e-4)


def test_users_are_still_protected_by_sums_of_length_one():
    (terms,) = plan(file("user"), *chosen({"name": "bias"})).terms.steps.values()
    assert terms.query == Normalised(("errors", "weights"))
    assert terms.sensitivity == 1.0


# -- what is estimated ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("low", "high"), [(1.0, 5.0), (-10.0, 10.0), (0.0, 1.0)])
def test_biases_are_found_under_noise_on_any_scale(low, high):
    """m = 2,000 items with a popularity tail and a global mean off the middle; s in proportion to the scale."""
    span, stream = high - low, derive(7, "planted")
    counts = stream.gamma(0.6, 200, 2000).round()
    b = span / 8 * stream.normal(1.0, 0.8, 2000).clip(-4, 4)
    s, sigma = 0.7 * span / 4, 8.0 * span / 4
    noised = {
        "errors": counts * b + np.sqrt(counts) * span / 4 * stream.normal(size=2000) + stream.normal(0, sigma, 2000),
        "weights": s * counts + stream.normal(0, sigma, 2000),
    }
    known = Facts.of(partition(demo(users=20, items=10, ratings=60), into=2), 7)
    facts = replace(known, scale=Scale(low, high), unit=Unit.RATING)
    found = estimated(noised, sigma, BiasParameters(count_weight=s), facts) / span
    truth = b / span
    assert np.mean((found - truth) ** 2) < 0.5 * np.var(truth)
    seldom, often = counts < 3, counts > 300
    assert np.mean((found - truth)[often] ** 2) < 0.02 * np.var(truth)
    assert abs(found[seldom].mean() - np.average(truth, weights=counts)) < 0.02  # they get the global mean
    assert np.abs(found).max() <= 0.5


def test_it_comes_to_a_limit_as_noise_goes_away(tmp_path):
    """ε = 200 and 1e6 are within 1 % of each other, and no worse than the unit user without noise by 2 %."""
    errors = [
        run(
            file(privacy={"epsilon": e, "delta": 1e-6, "unit": "rating"}, aggregation={"name": "ideal"}),
            tmp_path / str(e),
        )["metrics"]["mse"]
        for e in (200.0, 1e6)
    ]
    exact = run(file(privacy=None), tmp_path / "none")["metrics"]["mse"]
    assert abs(errors[0] / errors[1] - 1) < 0.01
    assert errors[1] < 1.02 * exact
