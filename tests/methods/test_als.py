"""`als`: sums over users give the central model; what a user adds with [privacy] is bounded whatever is asked."""

import numpy as np
import pytest

import tacit
from tacit.boundary.query import Blocks
from tacit.data.ratings import Ratings
from tacit.data.synthetic import demo
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.methods.als import scaled
from tacit.methods.als.learner import Learner
from tacit.methods.als.scaled import Scaled, ScaledSum
from tacit.methods.als.statistics import ByItem, UserStatistics, from_middle
from tacit.model import Model
from tacit.partition import partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train

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


@pytest.mark.parametrize(("by", "into"), [("user", 1), ("user", 5), ("device", 3)])
def test_silos_and_devices_reach_the_central_model(by, into):
    together, ceiling = (rated(trained.predictor) for trained in (fit("als", by, into, **FEW), fit("central", **FEW)))
    np.testing.assert_allclose(together, ceiling, atol=2e-3)


@pytest.mark.parametrize("aggregation", ["ideal", "secagg"])
def test_hidden_sums_without_noise_reach_it_too(aggregation):
    silos = partition(WORLD, into=4)
    hidden = tacit.estimator("als")(aggregation=aggregation, seed=7, **FEW).fit(silos)
    np.testing.assert_allclose(rated(hidden.predictor_), rated(fit("central", **FEW).predictor), atol=5e-3)
    assert "NON-PRIVATE" in str(hidden.guarantee_)


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
    stream = np.random.default_rng(5)
    sums = np.bincount(ratings.items, weights=from_middle(ratings.values, ratings.scale), minlength=ratings.n_items)
    none = np.zeros((ratings.n_items, 0))
    form = Learner.start(ratings.scale, ratings.n_users, ratings.item_counts, sums, factors, none, stream).form
    form.items[:, 2:] *= size
    return UserStatistics.at(form, ratings, ByItem.of(ratings), np.full(ratings.n_users, 0.5))


def added(answering: ScaledSum) -> np.ndarray:
    """One row per user: all cells that the user adds to."""
    parts = answering.contributions({}, np.random.default_rng(0))
    rows = np.zeros((len(parts.starts) - 1, parts.size))
    owners = np.repeat(np.arange(len(rows)), np.diff(parts.starts))
    rows[owners, parts.cells] = parts.values
    return rows


def emptied(ratings: Ratings, user: int) -> Ratings:
    return ratings.keep(ratings.users != user)


@pytest.mark.parametrize("size", [0.01, 1.0, 1e3])
def test_every_user_adds_a_vector_of_length_one_at_most_and_an_empty_record_adds_nothing(size):
    ratings = emptied(demo(users=20, items=12, ratings=120), 3)
    norms = np.linalg.norm(added(Scaled(2).over(statistics(ratings, size=size))), axis=1)
    assert norms.max() <= 1
    assert norms.max() > 0.95
    assert norms[3] == 0


def test_the_sum_is_what_users_add():
    ratings = demo(users=20, items=12, ratings=120)
    answering = Scaled(2).over(statistics(ratings))
    exact: Blocks = answering.exact({}, np.random.default_rng(0))
    whole = np.concatenate([exact[name].ravel() for name in sorted(exact)])
    np.testing.assert_allclose(added(answering).sum(axis=0), whole, atol=1e-12)
    pieces = list(answering.chunks({}, np.random.default_rng(0)))
    assert sum(len(part.starts) - 1 for part in pieces) == 20


def furthest(ratings: Ratings) -> float:
    """How far emptying any one user moves the sum, the shared model being the same for both."""
    here = statistics(ratings)
    moved = []
    for user in range(ratings.n_users):
        near = emptied(ratings, user)
        there = UserStatistics.at(here.form, near, ByItem.of(near), np.full(ratings.n_users, 0.5))
        answers = [Scaled(2).over(each).exact({}, np.random.default_rng(0)) for each in (here, there)]
        moved.append(np.sqrt(sum(float(np.square(answers[0][n] - answers[1][n]).sum()) for n in answers[0])))
    return max(moved)


def test_emptying_a_record_moves_the_sum_by_one_at_most():
    assert furthest(demo(users=15, items=10, ratings=90)) <= 1


def test_a_right_hand_side_outside_the_scaling_would_be_found(monkeypatch):
    rows = ScaledSum.rows.func

    def unscaled(self):
        moments, _means = rows(self)
        return moments, self.statistics.found.states / self.statistics.found.noise[:, None]

    planted = scaled.cached_property(unscaled)
    planted.__set_name__(ScaledSum, "rows")
    monkeypatch.setattr(ScaledSum, "rows", planted)
    assert furthest(demo(users=15, items=10, ratings=90)) > 1


def test_a_constant_computed_from_everybody_would_be_found(monkeypatch):
    rows = ScaledSum.rows.func

    def standardised(self):
        moments, means = rows(self)
        return moments / moments.std(), means

    planted = scaled.cached_property(standardised)
    planted.__set_name__(ScaledSum, "rows")
    monkeypatch.setattr(ScaledSum, "rows", planted)
    assert furthest(demo(users=15, items=10, ratings=90)) > 1
