"""`auto` without privacy rates as `als` and ranks as `ease`; `central` and `local` do so on pooled and on own data."""

import numpy as np
import pytest

import tacit
from tacit.data.ratings import Feedback
from tacit.data.synthetic import demo
from tacit.errors import UsageError
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.methods.als_and_ease import EASE_ALONE
from tacit.methods.ease import EaseParameters
from tacit.methods.ease_pooled import between_items_of
from tacit.model import Model, RatedAndRanked
from tacit.partition import partition
from tacit.prepare import PreparedRun, train

WORLD = demo(users=120, items=40, ratings=3000)
CLICKS = demo(users=120, items=40, ratings=3000, feedback="implicit")
EVERYONE = np.arange(WORLD.n_users)


def fit(name, ratings=WORLD, by="user", into=4, **options):
    return tacit.estimator(name)(**options).fit(partition(ratings, by=by, into=into))


def rated(fitted):
    return fitted.predictor_.predict(WORLD.users, WORLD.items)


def ranked(fitted):
    return np.asarray(fitted.predictor_.scores(EVERYONE))


@pytest.mark.parametrize(("by", "into"), [("user", 4), ("device", None)])
@pytest.mark.parametrize("aggregation", ["plain", "ideal", "secagg"])
def test_without_privacy_it_rates_as_als_and_ranks_as_ease(aggregation, by, into):
    both, als, ease = (fit(name, by=by, into=into, aggregation=aggregation) for name in ("auto", "als", "ease"))
    np.testing.assert_array_equal(rated(both), rated(als))
    np.testing.assert_array_equal(ranked(both), ranked(ease))
    assert both.model_.method == "auto"
    assert "NON-PRIVATE" in str(both.guarantee_)


def test_with_privacy_it_is_something_else():
    private = fit("auto", privacy=tacit.DP(epsilon=2))
    assert private.model_.form.name == "tastes"


@pytest.mark.parametrize("aggregation", ["plain", "secagg"])
def test_clicks_are_ranked_by_ease_and_not_rated(aggregation):
    both, ease = (fit(name, CLICKS, aggregation=aggregation) for name in ("auto", "ease"))
    np.testing.assert_array_equal(ranked(both), ranked(ease))
    assert (both.model_.method, both.model_.rates) == ("auto", False)


def test_a_user_who_is_folded_in_after_loading_gets_what_the_party_has(tmp_path):
    fitted = fit("auto")
    model = Model.load(fitted.model_.save(tmp_path / "model"))
    assert isinstance(model.form, RatedAndRanked)
    mine = slice(WORLD.indptr[5], WORLD.indptr[6])
    ids = [WORLD.item_ids[i].item() for i in range(WORLD.n_items)]
    history = {ids[i]: float(v) for i, v in zip(WORLD.items[mine], WORLD.values[mine], strict=True)}
    np.testing.assert_allclose(model.scores(history), ranked(fitted)[5], atol=1e-5)
    own = fitted.predictor_.predict(np.full(len(ids), 5), np.arange(len(ids)))
    np.testing.assert_allclose(model.predict(history, ids), own, atol=1e-4)
    assert [item for item, _ in model.recommend(history, 3)] == [
        item for item, _ in fitted.model_.recommend(history, 3)
    ]


@pytest.mark.parametrize(("by", "into"), [("user", 4), ("item", 4), ("device", None)])
def test_central_is_both_on_all_data_however_it_is_divided(by, into):
    central, together = fit("central", by=by, into=into), fit("auto")
    np.testing.assert_allclose(rated(central), rated(together), atol=2e-2)
    np.testing.assert_allclose(ranked(central), ranked(together), atol=1e-4)


@pytest.mark.parametrize("by", ["user", "item"])
def test_central_ranks_clicks_by_ease(by):
    np.testing.assert_allclose(ranked(fit("central", CLICKS, by=by)), ranked(fit("ease", CLICKS)), atol=1e-4)


def test_central_of_a_small_head_is_the_same_for_those_who_have_some_of_the_items():
    by_user, by_item = (fit("central", by=by, head=15) for by in ("user", "item"))
    scores = {
        by: np.where(by_user.model_.form.head > 0, ranked(one), 0) for by, one in (("u", by_user), ("i", by_item))
    }
    np.testing.assert_allclose(scores["u"], scores["i"], atol=1e-5)


@pytest.mark.parametrize(("by", "into"), [("user", 3), ("item", 3), ("device", None)])
@pytest.mark.parametrize("ratings", [WORLD, CLICKS], ids=["ratings", "clicks"])
def test_local_learns_from_its_own_data_alone(by, into, ratings):
    fitted = fit("local", ratings, by=by, into=into)
    assert np.isfinite(ranked(fitted)).all()
    assert fitted.predictor_.rates == (ratings.feedback is not Feedback.IMPLICIT)
    if by == "user":
        share = fitted.parties_[1]
        alone = between_items_of(share.ratings, EaseParameters())
        own = alone.rank(alone.fold_in(*rows(share.ratings)), np.arange(len(share.users)))
        np.testing.assert_array_equal(ranked(fitted)[share.users], own)


def rows(ratings):
    return ratings.indptr, ratings.items, ratings.values


@pytest.mark.parametrize("head", [None, 12, 0])
def test_fewer_users_than_items_give_the_same_weights_by_a_smaller_system(head):
    few = demo(users=25, items=40, ratings=500)
    X = np.zeros((25, 40))
    X[few.users, few.items] = 1
    form = between_items_of(few, EaseParameters(head=head))
    kept = form.head > 0
    assert kept.sum() == (40 if head is None else head)
    G = (X.T @ X)[np.ix_(kept, kept)]
    if head == 0:
        return
    A = G + np.diag(20 * np.sqrt(max(G.diagonal().mean(), 1)) + 0.5 * G.diagonal())
    P = np.linalg.inv(A)
    np.testing.assert_allclose(form.weights, np.eye(len(P)) - P / P.diagonal(), atol=1e-6)


def test_some_of_the_items_keep_what_is_known_of_all():
    form = fit("ease", head=12).model_.form
    columns = np.array([1, 4, 5, 17, 30, 39])
    part, x = form.of_items(columns), form.fold_in(*rows(WORLD))
    inside = part.head > 0
    np.testing.assert_allclose(part.rank(x, EVERYONE)[:, inside], form.rank(x, EVERYONE)[:, columns][:, inside])
    there = form.of_items(np.arange(WORLD.n_items))
    np.testing.assert_array_equal(there.fold_in(*rows(WORLD)), x)


def test_vertical_silos_are_refused_with_the_reason():
    with pytest.raises(UsageError, match="hold different users"):
        fit("auto", by="item")


def test_another_method_runs_only_where_there_is_no_privacy():
    method, parameters = chosen({"name": "auto"})
    assert method.run_with(parameters, Feedback.IMPLICIT, private=True) == (method, parameters)
    assert method.run_with(parameters, Feedback.IMPLICIT, private=False)[0] is EASE_ALONE


def test_curves_show_every_sweep_and_the_end():
    parties = partition(WORLD, into=3)
    run = PreparedRun.of(*chosen({"name": "auto"}), Facts.of(parties, 7))
    trained = train(run, parties, test=WORLD)
    assert [p.round for p in trained.history] == list(range(3, 28))
    assert trained.rounds == 27
    assert trained.history[-1].mse == pytest.approx(np.mean((rated_by(trained) - WORLD.values) ** 2), rel=1e-2)


def rated_by(trained):
    return trained.predictor.predict(WORLD.users, WORLD.items)
