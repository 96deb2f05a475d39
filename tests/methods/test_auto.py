"""`auto`: each stage's bound holds for adversarial neighbours, each is charged, and the model learns and ranks."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from method_runs import plan_of, rows_of, run_file

from tacit.boundary import Gate
from tacit.boundary.clipped_sums import Clipped, Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.normalised_rows import NormalisedRows
from tacit.boundary.release import Kind
from tacit.boundary.spec import unprotected
from tacit.data.catalogue import Catalogue
from tacit.data.load import load
from tacit.data.public_facts import PublicFacts
from tacit.data.vocabulary import Vocabulary
from tacit.errors import UsageError
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.methods.auto import AutoParameters, AutoParty
from tacit.methods.auto.shared import basis_features
from tacit.methods.auto.specs import specs
from tacit.methods.context import Context, Target
from tacit.methods.item_features import described
from tacit.model import Model
from tacit.partition import Setting, partition
from tacit.rng import derive

EVERY_STAGE = {"prior_share": 0.2, "tastes_share": 0.2, "factors_share": 0.2, "corrections": 4}
WHOLE = load("demo", users=30, items=25, ratings=300, features=["genres"])
FEATURES = {"features": ["genres"]}


def private(epsilon=4.0, unit="user", **more):
    return {"epsilon": epsilon, "delta": 1e-6, "unit": unit, **more}


def auto(**sections):
    return run_file(**{"method": {"name": "auto"}, "public": FEATURES, **sections})


# -- what one user can move -------------------------------------------------------------------------------------------


class Exact(Gate):
    """A gate that hands out exact answers, and only in this file."""

    def sum(self, *data, present=None, **at_home):
        query = self.terms.steps[self._serving().step].query
        return query, query.over(*data, present=present, **at_home).exact({}, None)


def party_of(ratings, unit=Unit.USER):
    parties = partition(ratings, into=1, by="user")
    facts = replace(Facts.of(parties, 7), unit=unit)
    public = PublicFacts(facts.users, facts.items, facts.scale, facts.ratings, facts.catalogue.width)
    context = Context(public, Setting.HORIZONTAL, 1, Target(4.0, 1e-6, unit))
    parameters = AutoParameters(**(EVERY_STAGE if unit is Unit.USER else {})).resolved(context)
    stated = {spec.step: (spec, Kind.SUM) for spec in specs(parameters, context)}
    return AutoParty(parties[0], parameters, facts, Exact("party-1", 7, {}, terms=unprotected(stated)))


def payload(party, step, size, stream):
    """Numbers of that size for everything that a step takes."""
    takes = party.steps[step].takes
    numbers = {name: size * stream.normal(size=shape) for name, shape in takes.shapes(party.dimensions).items()}
    whole = {
        name: np.clip(x, -(2**31), 2**31 - 1) for name, x in numbers.items() if takes.fields[name].dtype.kind == "i"
    }
    return {name: x.astype(takes.fields[name].dtype) for name, x in {**numbers, **whole}.items()}


def answer(ratings, step, size, seed, unit=Unit.USER):
    party = party_of(ratings, unit)
    with party.gate.serving(step, 1, 0, "request"):
        return getattr(party, step)(**payload(party, step, size, derive(seed, "payload", step)))


def without(ratings, user):
    return ratings.keep(ratings.users != user)


STAGES = ["summary", "means", "prior", "tastes", "residuals", "factors"]


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 30.0, 1e37])
@pytest.mark.parametrize("stage", STAGES)
def test_a_user_who_goes_moves_an_answer_by_no_more_than_its_bound(stage, size):
    for user in (0, 11):
        query, here = answer(WHOLE, stage, size, user)
        _query, there = answer(without(WHOLE, user), stage, size, user)
        moved = np.sqrt(sum(np.square(here[name] - there[name]).sum() for name in here))
        bound = query.sensitivity(Unit.USER, Relation.ZERO_OUT)
        assert np.isfinite(moved)
        assert moved <= bound
        if stage in ("means", "factors", "residuals") and size in (0.0, 1.0) and moved:
            assert moved > 0.99 * bound  # contributions are as long as they may be


def test_where_the_unit_is_a_rating_each_goes_into_its_own_cell_and_into_no_other():
    """A user's own mean would carry it into the cells of all their items, and one rating's bound would not hold."""
    low, high = WHOLE.scale.low, WHOLE.scale.high
    for mine in np.flatnonzero(WHOLE.users == 11):
        lowest, highest = (replace(WHOLE, values=WHOLE.values.copy()) for _ in range(2))
        lowest.values[mine], highest.values[mine] = low, high
        query, here = answer(highest, "means", 0.0, 1, Unit.RATING)
        _query, there = answer(lowest, "means", 0.0, 1, Unit.RATING)
        moved = here["errors"] - there["errors"]
        assert np.flatnonzero(moved).tolist() == [WHOLE.items[mine]]
        assert moved.max() == pytest.approx(high - low, rel=1e-5)
        assert moved.max() <= query.sensitivity(Unit.RATING, Relation.REPLACE)
        np.testing.assert_array_equal(here["weights"], there["weights"])


@pytest.mark.parametrize("stage", STAGES)
def test_nobody_without_ratings_adds_anything(stage):
    nobody = WHOLE.keep(np.zeros(WHOLE.n_ratings, dtype=bool))
    _query, found = answer(nobody, stage, 1.0, 1)
    assert not any(block.any() for block in found.values())


def test_planted_a_stage_whose_contributions_are_not_scaled(monkeypatch):
    """The search above can fail."""
    monkeypatch.setattr("tacit.boundary.normalised_rows.bounded_rows", lambda starts, x, limit, exactly: 30 * x)
    with pytest.raises(AssertionError):
        test_a_user_who_goes_moves_an_answer_by_no_more_than_its_bound("factors", 1.0)


# -- what is stated and charged ---------------------------------------------------------------------------------------


def test_every_release_is_stated_with_its_query_and_share():
    terms = plan_of(auto(method={"name": "auto", **EVERY_STAGE})).terms
    kinds = {name: type(one.query) for name, one in terms.steps.items()}
    assert kinds == {
        "summary": Clipped,
        "means": Normalised,
        "prior": Clipped,
        "tastes": Clipped,
        "residuals": Normalised,
        "factors": NormalisedRows,
    }
    assert sum(one.spec.share for one in terms.steps.values()) == pytest.approx(1.0)


def test_a_strict_budget_is_spent_on_few_stages_and_a_large_one_on_all():
    def stages(epsilon, users):
        facts = PublicFacts(users, 3883, WHOLE.scale, 165 * users, 19)
        context = Context(facts, Setting.HORIZONTAL, 10, Target(epsilon, 1e-6, Unit.USER))
        return set(AutoParameters(objective="rating").resolved(context).shares)

    assert "factors" not in stages(0.5, 6040)
    assert stages(8.0, 6040) == set(STAGES)
    assert stages(0.5, 600_000) == set(STAGES)  # what counts is μ·n


def test_where_every_party_adds_its_own_noise_the_budget_counts_as_a_smaller_one():
    def shares(aggregation):
        data = {"source": "demo", "users": 20_000, "items": 100, "ratings": 60_000}
        file = auto(data=data, partition={"into": 40}, aggregation={"name": aggregation}, privacy=private(1.0))
        return {step: one.spec.share for step, one in plan_of(file).terms.steps.items()}

    assert shares("ideal")["factors"] > shares("plain").get("factors", 0.0)


def test_the_spread_of_many_tastes_is_not_measured_where_noise_hides_it():
    def stages(features):
        facts = PublicFacts(6040, 3883, WHOLE.scale, 1_000_000, features)
        parameters = AutoParameters().resolved(Context(facts, Setting.HORIZONTAL, 10, Target(2.0, 1e-6, Unit.USER)))
        assert sum(parameters.shares.values()) == pytest.approx(1.0)
        return parameters.directions, "tastes" in parameters.shares

    assert stages(19) == (40, True)
    assert stages(1225) == (100, False)


def test_many_labels_become_few_features_and_say_how_much_is_said_of_an_item():
    stream = derive(5, "labels")
    labels = [[f"tag {j}" for j in np.flatnonzero(stream.random(200) < 0.1)] for _ in range(150)]
    table = pa.table({"genres": ["War|Drama", "Drama", "War"] * 50, "tags": ["|".join(row) for row in labels]})
    films = Catalogue(Vocabulary(np.arange(150), "item"), table, ("genres", "tags"))
    assert basis_features(films).shape == (150, 2 + 100)
    np.testing.assert_allclose(described(films)[:, -1], np.log1p([len(row) for row in labels]))


def test_a_single_rating_has_a_query_of_its_own(tmp_path):
    (terms,) = plan_of(auto(privacy=private(unit="rating"))).terms.steps.values()
    assert isinstance(terms.query, Deviations)
    errors = {
        unit: run(auto(privacy=private(1.0, unit)), tmp_path / unit)["metrics"]["mse"] for unit in ("rating", "user")
    }
    assert errors["rating"] < errors["user"]
    with pytest.raises(UsageError, match="move with each"):
        plan_of(auto(method={"name": "auto", **EVERY_STAGE}, privacy=private(unit="rating")))


def test_each_stage_is_in_every_partys_ledger(tmp_path):
    run(auto(method={"name": "auto", **EVERY_STAGE}), tmp_path / "run")
    for rows in rows_of(tmp_path / "run").values():
        charged = [row.step for row in rows if row.step in STAGES]
        assert {step: charged.count(step) for step in STAGES} == {
            **dict.fromkeys(("summary", "means", "prior"), 1),
            **dict.fromkeys(("tastes", "residuals", "factors"), 2),
        }


@pytest.mark.parametrize(
    ("divided", "aggregation"),
    [({"into": 4}, "plain"), ({"into": 4}, "secagg"), ({"by": "device"}, "secagg")],
)
def test_it_keeps_its_guarantee_under_every_aggregation(tmp_path, divided, aggregation):
    summary = run(auto(partition=divided, aggregation={"name": aggregation}), tmp_path / "run")
    assert 3.9 < summary["guarantee"]["epsilon"] <= 4.0
    assert (summary["guarantee"]["unit"], summary["guarantee"]["relation"]) == ("user", "zero-out")
    assert summary["metrics"]["mse"] < 1.5


def test_a_device_receives_a_matrix_of_features_weights_instead_of_item_factors(tmp_path):
    """Per item there are a mean, a popularity and a weight; factors come as bytes, and only where they are learned."""
    data = {"source": "demo", "users": 200, "items": 3000, "ratings": 20_000}
    method = {"name": "auto", **EVERY_STAGE}
    summary = run(auto(data=data, partition={"by": "device"}, method=method), tmp_path / "run")
    steps, items, tastes = 11, 3000, 3 + 8
    assert summary["bytes_down"] / 200 < steps * (3 * 4 * items + 4 * items) < steps * 4 * items * tastes


def test_items_cannot_be_divided():
    with pytest.raises(UsageError, match="auto needs parties that hold different users"):
        plan_of(auto(partition={"by": "item", "into": 3}))


# -- what is learned --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("divided", [{"into": 4}, {"by": "device"}])
def test_it_beats_biases_at_the_same_guarantee(tmp_path, divided):
    there = {
        "data": {"source": "demo", "users": 2000, "items": 100, "ratings": 60_000},
        "partition": divided,
        "aggregation": {"name": "ideal"},
        "privacy": private(4.0),
        "public": FEATURES,
    }
    errors = {
        name: run(run_file(method={"name": name}, **there), tmp_path / name)["metrics"]["mse"]
        for name in ("auto", "bias")
    }
    assert errors["auto"] < errors["bias"]


def test_it_needs_no_features_and_they_do_not_hurt(tmp_path):
    plain = run(auto(public={}), tmp_path / "plain")["metrics"]["mse"]
    described = run(auto(), tmp_path / "described")["metrics"]["mse"]
    assert described < plain * 1.02


def test_a_new_user_is_folded_into_the_saved_model_as_a_party_does(tmp_path):
    run(auto(), tmp_path / "run")
    model = Model.load(tmp_path / "run")
    history = {model.item_ids[j].item(): float(1 + j % 5) for j in range(0, 40, 2)}
    rated = model.predict(history, list(history))
    everybody = model.predict({}, list(history))
    values = np.array(list(history.values()))
    assert np.mean((rated - values) ** 2) < np.mean((everybody - values) ** 2)
    again = Model.load(model.save(tmp_path / "again"))
    assert again.recommend(history, n=5) == model.recommend(history, n=5)


def test_items_are_ranked_by_popularity_and_taste_rather_than_by_rating(tmp_path):
    run(auto(), tmp_path / "run")
    model = Model.load(tmp_path / "run")
    order = model.scores({})
    assert np.corrcoef(order, model.form.popularity)[0, 1] > 0.99
