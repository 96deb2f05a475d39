"""`ease`: the closed form over one sum, however users are divided; with privacy, what stands above the noise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from method_runs import plan_of, run_file

import tacit
from tacit.boundary.co_occurrence import PairShares
from tacit.boundary.least_squares import packed
from tacit.cli.export import export
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings, Scale
from tacit.data.split import split
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary
from tacit.errors import UsageError
from tacit.evaluate import evaluate
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods import chosen
from tacit.methods.co_occurrence import head_of, head_size, shrunken_factors
from tacit.methods.context import Context, Target
from tacit.model import CoOccurrence, ItemItem, Model
from tacit.partition import Setting, partition
from tacit.prepare.prepared import PreparedRun
from tacit.prepare.simulate import train
from tacit.rng import derive
from tacit.testing.method_contract import MethodContract


class TestEase(MethodContract):
    name = "ease"
    seeded = False  # without privacy nothing random crosses


class TestEaseOfASmallHead(MethodContract):
    name = "ease"
    parameters = {"head": 7}
    seeded = False


def fitted(ratings, by="user", into=3, **parameters):
    parties = partition(ratings, by=by, into=into)
    return train(PreparedRun.of(*chosen({"name": "ease", **parameters}), Facts.of(parties, 7)), parties)


def taken(users=800, items=60, seed=7):
    """Ratings of users who take items of their own half five times as often as others; popularity says nothing."""
    stream = derive(seed, "taken")
    likes = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    i, j = np.nonzero(stream.random((users, items)) < np.where(likes, 0.25, 0.05))
    values, ids = stream.integers(1, 6, len(i)).astype(np.float32), Vocabulary(np.arange(items), "item", listed=True)
    return Ratings.from_columns(i, j, values, scale=(1, 5), item_ids=ids, name="taken")


def test_it_is_the_closed_form_over_all_users():
    """Steck 2019, eq. (8), with the ridge of Steck 2020."""
    ratings = demo(users=60, items=40, ratings=900)
    X = np.zeros((60, 40))
    X[ratings.users, ratings.items] = 1
    G = X.T @ X
    P = np.linalg.inv(G + 100 * np.eye(40) + 0.5 * np.diag(G.diagonal()))
    B = np.eye(40) - P / P.diagonal()
    for by, into in (("user", 3), ("user", 1), ("device", None)):
        scores = fitted(ratings, by, into, regularization=100.0).predictor.scores(np.arange(60))
        np.testing.assert_allclose(scores, X @ B, atol=2e-5)


@pytest.mark.parametrize("aggregation", ["ideal", "secagg"])
def test_hidden_sums_give_the_model_of_open_ones_exactly(tmp_path, aggregation):
    weights = {}
    for name in ("plain", aggregation):
        run(run_file(method={"name": "ease"}, privacy=None, aggregation={"name": name}), tmp_path / name)
        weights[name] = Model.load(tmp_path / name).form.weights
    np.testing.assert_array_equal(*weights.values())


def test_how_high_something_was_rated_does_not_matter():
    ratings = demo(users=60, items=40, ratings=900)
    turned = replace(ratings, values=(6 - ratings.values).astype(np.float32))
    one, other = (fitted(r).predictor.scores(np.arange(60)) for r in (ratings, turned))
    np.testing.assert_array_equal(one, other)


def test_items_outside_the_head_follow_by_how_often_they_were_rated():
    ratings = demo(users=60, items=40, ratings=900)
    counts = np.bincount(ratings.items, minlength=40)
    trained = fitted(ratings, head=10)
    assert isinstance(trained.model.form, ItemItem)
    tail = np.setdiff1d(np.arange(40), head_of(counts, 10))
    scores = trained.predictor.scores(np.arange(60))
    assert (scores[:, tail].max(axis=1) < np.delete(scores, tail, axis=1).min(axis=1)).all()
    assert (np.diff(scores[:, tail[np.argsort(counts[tail], kind="stable")]], axis=1) >= 0).all()
    nobody = [item for item, _ in trained.model.recommend({}, n=40)]
    assert [counts[ratings.item_ids.row(item)] for item in nobody] == sorted(counts, reverse=True)


def test_it_finds_what_popularity_cannot():
    learned, held_out = split(taken(), by="leave-one-out", seed=7)
    trained = fitted(learned)
    found = evaluate(trained.predictor, held_out, seen=learned, relevance=1, bootstrap=0).metrics["hr_full@10"]
    assert found > 0.33  # of those 25 of their own half that they have not seen, 10; chance has 10 of 50
    parties = partition(learned, into=3)
    popular = train(PreparedRun.of(*chosen({"name": "popularity"}), Facts.of(parties, 7)), parties).predictor
    assert evaluate(popular, held_out, seen=learned, relevance=1, bootstrap=0).metrics["hr_full@10"] < 0.25


def test_the_export_of_thousands_of_items_says_where_the_model_is(tmp_path, monkeypatch):
    run(run_file(method={"name": "ease"}, privacy=None), tmp_path / "run")
    export(tmp_path / "run", tmp_path / "small", False)
    assert Model.load(tmp_path / "small").recommend({}, n=5) == Model.load(tmp_path / "run").recommend({}, n=5)
    monkeypatch.setattr("tacit.model.storage.MOST_IN_JSON", 1_000)
    with pytest.raises(UsageError, match="too large to export; use the folder"):
        export(tmp_path / "run", tmp_path / "large", False)


# -- with privacy -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("divided", "aggregation"), [({"into": 4}, "ideal"), ({"into": 4}, "secagg"), ({"by": "device"}, "ideal")]
)
@pytest.mark.parametrize("unit", ["user", "rating"])
def test_a_private_run_keeps_its_guarantee_and_charges_both_sums(tmp_path, divided, aggregation, unit):
    privacy = {"epsilon": 4.0, "delta": 1e-6, "unit": unit}
    file = run_file(
        method={"name": "ease", "head": 12}, partition=divided, aggregation={"name": aggregation}, privacy=privacy
    )
    assert list(plan_of(file).terms.steps) == ["counts", "pairs"]
    summary = run(file, tmp_path / "run")
    assert 3.9 < summary["guarantee"]["epsilon"] <= 4.0
    assert summary["guarantee"]["unit"] == unit
    assert isinstance(Model.load(tmp_path / "run").form, CoOccurrence)


def test_where_pairs_would_drown_all_of_the_budget_goes_to_counts():
    made = plan_of(run_file(method={"name": "ease"}))
    assert made.parameters.head == 0
    assert list(made.terms.steps) == ["counts"]
    assert made.terms.steps["counts"].spec.share == 1.0


def test_with_enough_budget_private_pairs_find_what_popularity_cannot(tmp_path):
    ratings, seen = taken(), {}
    learned, held_out = split(ratings, by="leave-one-out", seed=7)
    for epsilon in (1.0, 100.0):
        model = tacit.estimator("ease")(
            head=60, privacy=tacit.DP(epsilon=epsilon, delta=1e-6), aggregation="ideal", seed=7
        )
        model.fit(partition(learned, into=3))
        seen[epsilon] = evaluate(model, held_out, relevance=1, bootstrap=0).metrics["hr_full@10"]
    assert seen[100.0] > 0.3 > seen[1.0]


def test_how_many_items_are_worth_pairs_follows_public_numbers_alone():
    def size(users=6040, items=3883, ratings=1_000_000, epsilon=1.0, unit=Unit.USER):
        facts = PublicFacts(users, items, Scale(1, 5), ratings)
        return head_size(Context(facts, Setting.HORIZONTAL, 10, Target(epsilon, 1e-6, unit)), 0.2)

    assert size(epsilon=8) == 500
    assert 50 < size() < size(epsilon=2) <= 500
    assert size(unit=Unit.RATING) == pytest.approx(size() / 2, abs=1)
    assert size(users=600) == 0
    assert size(ratings=20_000_000) == 0  # almost everything is rated: that says nothing
    assert size(items=60, ratings=6040 * 6, epsilon=8) == 60


def test_eigenvalues_of_noise_alone_are_all_dropped():
    k, sigma = 120, 3.0
    noise = sigma * derive(7, "noise").standard_normal(k * (k + 1) // 2)
    assert shrunken_factors(noise, sigma * 1.05).shape == (k, 0)


def test_directions_above_the_noise_are_kept_and_shrunk():
    k, sigma, stream = 100, 1.0, derive(7, "signal")
    x = (stream.random((4000, k)) < np.where((np.arange(4000)[:, None] + np.arange(k)) % 2 == 0, 0.2, 0.02)) * 1.0
    clean = packed(x / np.sqrt(np.maximum(x.sum(axis=1, keepdims=True), 1))).sum(axis=0)
    factors = shrunken_factors(clean + sigma * stream.standard_normal(len(clean)), sigma)
    assert factors.shape[1] >= 2
    gains = np.sort((factors**2).sum(axis=0))
    assert (gains < 1).all()
    similar = factors @ factors.T
    same = (np.arange(k)[:, None] + np.arange(k)) % 2 == 0
    assert similar[same].mean() > 3 * abs(similar[~same].mean())


def test_the_release_of_pairs_is_bounded_by_one_and_says_so():
    (counts, pairs) = plan_of(run_file(method={"name": "ease", "head": 12})).terms.steps.values()
    assert pairs.query == PairShares()
    assert counts.sensitivity == pairs.sensitivity == 1.0
    assert counts.spec.share + pairs.spec.share == 1.0
    assert math.isfinite(pairs.sigma)
