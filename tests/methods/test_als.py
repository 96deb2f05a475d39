"""`als`: sums over users give the central model; what a user adds with [privacy] is bounded whatever is asked."""

from dataclasses import replace

import numpy as np
import pytest

import tacit
from tacit.boundary.scaled_records import ScaledSum
from tacit.config import RunFile
from tacit.data.ratings import Ratings, Scale
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary
from tacit.errors import PrivacyRefused
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.methods import chosen
from tacit.methods.als import scaled
from tacit.methods.als.learner import Learner
from tacit.methods.als.method import SHARED
from tacit.methods.als.statistics import ByItem, UserStatistics, empty_joint, from_middle
from tacit.model import Model
from tacit.model.bayesian import Bayesian
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive

WORLD = demo(users=120, items=40, ratings=3000)
FEW = {"factors": 3, "sweeps": 4}


def fit(name, by="user", into=4, ratings=WORLD, **parameters):
    method, checked = chosen({"name": name, **parameters})
    parties = partition(ratings, by=by, into=into)
    return train(PreparedRun.of(method, checked, Facts.of(parties, 7)), parties)


def scores(trained):
    return np.asarray(trained.predictor.scores(np.arange(WORLD.n_users)))


def rated(predictor):
    """The predicted rating of every pair; (n, m)."""
    users, items = np.indices((WORLD.n_users, WORLD.n_items)).reshape(2, -1)
    return predictor.predict(users, items).reshape(WORLD.n_users, WORLD.n_items)


@pytest.mark.parametrize(("by", "into"), [("user", 1), ("user", 5), ("device", 3), ("item", 1), ("item", 4)])
def test_silos_and_devices_reach_the_central_model(by, into):
    together, ceiling = (rated(trained.predictor) for trained in (fit("als", by, into, **FEW), fit("central", **FEW)))
    np.testing.assert_allclose(together, ceiling, atol=2e-3)


@pytest.mark.parametrize("aggregation", ["ideal", "secagg"])
def test_hidden_sums_without_noise_reach_it_too(aggregation):
    silos = partition(WORLD, into=4)
    hidden = tacit.estimator("als")(aggregation=aggregation, seed=7, **FEW).fit(silos)
    np.testing.assert_allclose(rated(hidden.predictor_), rated(fit("central", **FEW).predictor), atol=5e-3)
    assert "NON-PRIVATE" in str(hidden.guarantee_)


@pytest.mark.parametrize("name", ["als", "auto"])
def test_a_silo_that_misses_sweeps_folds_its_users_into_the_model_it_gets(name, tmp_path):
    """Its users' factors are found for the model that it has, in every round, also before its first sweep."""
    file = RunFile.model_validate(
        {
            "data": {"source": "demo", "users": 200, "items": 30, "ratings": 3000},
            "partition": {"by": "user", "into": 8},
            "method": {"name": name, **(FEW if name == "als" else {})},
            "aggregation": {"name": "secagg", "dropout": 0.35, "tolerate": 0.5, "retries": 9},
        }
    )
    for seed in (2, 3):
        summary = run(file.model_copy(update={"seed": seed}), tmp_path / str(seed))
        assert summary["metrics"]["mse"] < 2


def test_the_model_at_home_is_of_one_piece_between_sweeps():
    parties = partition(WORLD, into=2)
    method, parameters = chosen({"name": "als", **FEW})
    trained = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties)
    party = trained.parties[0]
    shown = {name: np.asarray(party.home[name]) for name in SHARED.fields}
    shown["items"] = shown["items"] * np.float32(0.5)  # a model that came since the last sweep
    fitted = party.at_home(**shown)
    r = party.ratings
    np.testing.assert_array_equal(fitted.states, fitted.form.fold_in(r.indptr, r.items, r.values))


@pytest.mark.parametrize("aggregation", ["ideal", "secagg"])
def test_where_items_are_divided_hidden_sums_reach_it_too(aggregation):
    hidden = tacit.ALS(aggregation=aggregation, seed=7, **FEW).fit(partition(WORLD, by="item", into=3))
    found = np.asarray(hidden.predictor_.scores(np.arange(WORLD.n_users)))
    np.testing.assert_allclose(found, scores(fit("als", **FEW)), atol=2e-2)


def test_where_items_are_divided_their_factors_leave_only_at_the_end(tmp_path):
    parties = partition(WORLD, by="item", into=3)
    method, parameters = chosen({"name": "als", **FEW})
    trained = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties, payloads=tmp_path)
    last = max(entry.call for entry in trained.transcript.entries)
    own = [member.home["items"].tobytes() for member in trained.parties]
    sent = {path: path.read_bytes() for path in tmp_path.glob("*-up-*")}
    with_items = {
        int(path.name.split("-")[0]) for path, message in sent.items() if any(part in message for part in own)
    }
    assert with_items == {last}


def test_where_items_are_divided_privacy_is_refused_with_the_reason():
    with pytest.raises(PrivacyRefused, match="sums of one user each"):
        tacit.ALS(privacy=tacit.DP(epsilon=1.0, delta=1e-4), **FEW).fit(partition(WORLD, by="item", into=3))


def test_public_features_are_used_alike_however_ratings_are_divided():
    world = tacit.load("demo", users=80, items=30, features=["genres", "year"])
    one, other = (fit("als", by, 3, ratings=world, **FEW).model.form for by in ("user", "item"))
    np.testing.assert_allclose(one.items, other.items, atol=1e-4)
    without = fit("als", ratings=demo(users=80, items=30), **FEW).model.form
    assert np.abs(one.items - without.items).max() > 1e-3


def test_it_beats_biases_and_sgd_where_there_are_tastes():
    training, test = tacit.split(demo(users=500, items=200, ratings=25_000), test=0.1, seed=7)

    def mse(name):
        found = fit(name, ratings=training).predictor
        return np.mean((found.predict(test.users, test.items) - test.values) ** 2)

    assert mse("central") < 0.97 * mse("central-sgd")
    assert mse("central") < 0.9 * mse("bias")
    assert mse("central") < mse("local")


def test_folding_in_a_trained_user_gives_what_the_party_has(tmp_path):
    trained = fit("als", **FEW)
    model = Model.load(trained.model.save(tmp_path / "model"))
    mine = slice(WORLD.indptr[5], WORLD.indptr[6])
    items, values = WORLD.items[mine], WORLD.values[mine]
    history = {WORLD.item_ids[i].item(): float(v) for i, v in zip(items, values, strict=True)}
    np.testing.assert_allclose(model.scores(history), scores(trained)[5], atol=1e-4)


def test_cold_users_and_cold_items_have_their_priors():
    cold = 7
    model = fit("als", ratings=WORLD.keep(WORLD.items != cold), **FEW).model
    assert np.isfinite(model.scores({})).all()
    assert model.scores({}).std() > 0.05  # items differ for someone of whom nothing is known
    nearest = model.form.items[:, 1].mean()
    assert abs(model.form.items[cold, 1] - nearest) < 3 * model.form.items[:, 1].std()


# -- what one user adds ------------------------------------------------------------------------------------------------


def statistics(ratings: Ratings, factors: int = 2, size: float = 1.0) -> UserStatistics:
    stream = derive(5, "items")
    sums = np.bincount(ratings.items, weights=from_middle(ratings.values, ratings.scale), minlength=ratings.n_items)
    none = np.zeros((ratings.n_items, 0))
    form = Learner.start(ratings.scale, ratings.n_users, ratings.item_counts, sums, factors, none, stream).form
    form.items[:, 2:] *= size
    return at(form, ratings)


def at(form: Bayesian, ratings: Ratings, noise: float = 0.5) -> UserStatistics:
    """What users find out from the same shared model."""
    return UserStatistics.at(form, ratings, ByItem.of(ratings), np.full(ratings.n_users, noise))


def asked(ratings: Ratings, found: UserStatistics) -> ScaledSum:
    return scaled.query(found.form.width - 2).over(ratings, *scaled.said(found))


def apart(one: ScaledSum, other: ScaledSum) -> float:
    """How far two neighbours' sums lie apart."""
    here, there = (each.exact({}, derive(0, "unused")) for each in (one, other))
    return float(np.sqrt(sum(np.square(here[name] - there[name]).sum() for name in here)))


def emptied(ratings: Ratings, user: int) -> Ratings:
    return ratings.keep(ratings.users != user)


@pytest.mark.parametrize("size", [0.01, 1.0, 1e3, 1e12])
def test_emptying_a_record_moves_the_sum_by_one_at_most_and_an_empty_one_adds_nothing(size):
    ratings = emptied(demo(users=15, items=10, ratings=90), 3)
    found = statistics(ratings, size=size)
    moved = [apart(asked(ratings, found), asked(near, at(found.form, near))) for near in each_emptied(ratings)]
    assert max(moved) <= 1
    assert max(moved) > 0.95
    assert moved[3] == 0


def each_emptied(ratings: Ratings) -> list[Ratings]:
    return [emptied(ratings, user) for user in range(ratings.n_users)]


def test_priors_outside_the_empty_record_would_be_found(monkeypatch):
    """Were E[h·hᵀ] sent as it is, a user without ratings would say what the prior says."""
    ratings = emptied(demo(users=15, items=10, ratings=90), 3)
    found = statistics(ratings)
    assert np.abs(scaled.about_priors(found)["joint"][3]).max() < 1e-5
    monkeypatch.setattr(scaled, "empty_joint", lambda form: np.zeros_like(empty_joint(form)))
    assert np.abs(scaled.about_priors(found)["joint"][3]).max() > 0.5


def test_one_rating_moves_more_than_a_claim_per_rating_would_allow():
    """Users are fitted: without one rating, all that its user says about their other items is another thing."""
    names = Vocabulary(np.arange(2), "item")
    stars = Ratings.from_columns([0, 0], [0, 1], [5.0, 5.0], scale=Scale(1, 5), item_ids=names)
    form = replace(statistics(stars).form, centre=0.0)
    form.items[:] = [[1, 0, 0.6, 0], [1, 0, 0, 0.1]]  # the second item says much about the second taste
    a, b = np.triu_indices(4)
    form.moments[:] = form.items[:, a] * form.items[:, b]
    form.precision[:] = np.diag([1e6, 1, 1])
    near = stars.keep(stars.items == 0)
    moved = apart(*(asked(each, at(form, each, noise=0.01)) for each in (stars, near)))
    claims = scaled.query(2).sensitivity(Unit.RATING, Relation.ZERO_OUT), scaled.query(2).clip
    assert claims[1] < moved <= claims[0]
