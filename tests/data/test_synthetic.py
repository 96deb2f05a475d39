"""Known answers: what was planted can be found again, and the sizes asked for are the sizes made."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.data import synthetic
from tacit.data.ratings import Scale
from tacit.data.split import split
from tacit.data.synthetic import GENRES, demo, synthesize
from tacit.errors import UsageError
from tacit.evaluate import evaluate
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare import PreparedRun, train

FEEDBACKS = ("explicit", "implicit", "count")


@cache
def world(feedback="explicit", **others):
    return synthesize(600, 300, 30_000, feedback=feedback, **others)


def everyone(w):
    return np.arange(w.ratings.n_users)[:, None], np.arange(w.ratings.n_items)


def check_form(r, users, items, ratings):
    assert (r.n_users, r.n_items, r.n_ratings) == (users, items, ratings)
    assert (r.indptr.dtype, r.items.dtype, r.values.dtype, r.times.dtype) == ("int64", "int32", "float32", "int64")
    assert r.indptr[0] == 0
    assert r.indptr[-1] == ratings
    assert r.counts.min() >= 1
    assert np.all(np.diff(r.users.astype(np.int64) * items + r.items) > 0), "an item twice, or out of order"
    assert r.items.min() >= 0
    assert r.items.max() < items
    assert r.scale.declared
    assert r.scale.low <= r.values.min()
    assert r.values.max() <= r.scale.high
    assert r.user_attributes.num_rows == users
    assert r.item_attributes.num_rows == items


def test_the_demo_is_what_the_readme_says():
    r = demo()
    check_form(r, 1000, 500, 50_000)
    assert r.name == "demo"
    assert r.scale == Scale(1, 5)
    assert set(np.unique(r.values)) == {1, 2, 3, 4, 5}
    assert r.user_ids[r.user_ids.row("u42")] == "u42"
    assert r.item_ids.row(500) == 499
    assert list(r.user_ids.ids) == sorted(r.user_ids.ids)
    assert r.counts.min() >= 15
    assert r.counts.max() <= 250


@settings(max_examples=60, deadline=None, derandomize=True)
@given(users=st.integers(1, 40), items=st.integers(1, 40), feedback=st.sampled_from(FEEDBACKS), data=st.data())
def test_any_possible_size_is_met_exactly(users, items, feedback, data):
    ratings = data.draw(st.integers(users, users * items))
    check_form(demo(users, items, ratings, feedback=feedback, seed=1), users, items, ratings)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        ((3, 2, 7), "at most 6 ratings"),
        ((10, 5, 9), "too few for 10 users"),
        ((0, 5, 5), "users = 0"),
        ((5, 5, -1), "ratings = -1"),
        ((5, True, 10), "items = True"),
    ],
)
def test_impossible_sizes_are_refused(size, message):
    with pytest.raises(UsageError, match=message):
        demo(*size)
    with pytest.raises(UsageError, match=message):
        synthesize(*size)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"feedback": "implict"}, 'Did you mean "implicit"'),
        ({"rank": 0}, "rank = 0"),
        ({"noise": -1.0}, "noise = -1.0"),
        ({"noise": float("nan")}, "noise = nan"),
        ({"noise": 0.5, "feedback": "count"}, "explicit feedback only"),
        ({"step": 0.3}, "does not divide"),
        ({"step": 0.0}, "does not divide"),
        ({"scale": (5, 1)}, "lower end first"),
        ({"scale": (1, 5), "feedback": "implicit"}, "leave the scale out"),
        ({"scale": (0, 3), "feedback": "count"}, "holds 1…8"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        synthesize(20, 20, 100, **options)


@pytest.mark.parametrize("feedback", FEEDBACKS)
def test_one_seed_one_world(feedback):
    a, b, c = (demo(80, 40, 900, feedback=feedback, seed=s) for s in (1, 1, 2))
    for name in ("indptr", "items", "values", "times"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.user_attributes == b.user_attributes
    assert a.item_attributes == b.item_attributes
    assert not np.array_equal(a.items, c.items)


def test_the_number_of_threads_does_not_matter(monkeypatch):
    monkeypatch.setattr(synthetic, "BLOCK", 1 << 10)  # many blocks

    def items(threads):
        monkeypatch.setattr(synthetic.os, "cpu_count", lambda: threads)
        return demo(90, 50, 1000).items

    np.testing.assert_array_equal(items(1), items(4))


def test_a_race_with_ties_still_has_the_right_number_of_winners(monkeypatch):
    class Coarse:
        def random(self, shape, dtype):
            return (np.random.default_rng(0).integers(4, size=shape) / 4).astype(dtype)

    monkeypatch.setattr(synthetic, "derive", lambda *purpose: Coarse())
    counts = np.array([1, 7, 7, 19, 20])
    indptr = np.concatenate(([0], np.cumsum(counts)))
    columns = synthetic._race(np.zeros((5, 2)), np.zeros((20, 2)), np.full(20, 0.05), counts, indptr, seed=1)
    for u in range(5):
        assert np.all(np.diff(columns[indptr[u] : indptr[u + 1]]) > 0)
    assert columns[indptr[4] :].tolist() == list(range(20))


def test_few_items_have_most_ratings_and_few_users_give_them():
    """On MovieLens 1M the top tenth of items has 44 % of the ratings, the most active tenth of users 41 %."""
    r = demo(1500, 1000, 120_000)
    items, users = np.sort(r.item_counts)[::-1], np.sort(r.counts)[::-1]
    assert 0.3 < items[:100].sum() / items.sum() < 0.6
    assert 0.25 < users[:150].sum() / users.sum() < 0.6
    assert items[0] > 5 * np.median(items)
    assert users[0] > 4 * np.median(users)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_the_planted_rank_shows_in_the_singular_values(rank):
    w = synthesize(200, 120, 2400, rank=rank)
    s = np.linalg.svd(w.score(*everyone(w)), compute_uv=False)
    assert s[rank + 1] > 1e-3 * s[0]  # two more for the biases
    assert s[rank + 2] < 1e-10 * s[0]
    rounded = np.linalg.svd(w.truth(*everyone(w)), compute_uv=False)
    assert np.sum(rounded[rank + 2 :] ** 2) < 0.05 * np.sum(rounded[1:] ** 2)


@pytest.mark.parametrize("feedback", ["explicit", "count"])
def test_the_error_of_truth_is_the_irreducible_one(feedback):
    """n = 30,000; 4.4 standard errors of the mean square: false alarm 10⁻⁵."""
    w = world(feedback)
    error = (w.ratings.values - w.truth(w.ratings.users, w.ratings.items)) ** 2
    assert abs(error.mean() - w.irreducible_mse) < 4.4 * error.std() / np.sqrt(len(error))
    assert w.irreducible_mse < 0.6 * w.ratings.values.var()


def test_implicit_feedback_has_scores_and_no_truth():
    """Items are met the more often the higher their score; a table of zeros would pass for an expected rating."""
    w = world("implicit")
    score, met = w.score(*everyone(w)), np.zeros((600, 300), dtype=bool)
    met[w.ratings.users, w.ratings.items] = True
    shares = [met.ravel()[part].mean() for part in np.array_split(np.argsort(score.ravel()), 10)]
    assert shares == sorted(shares)
    assert shares[-1] > 5 * shares[0]
    for asked in (lambda: w.truth(0, 0), lambda: w.irreducible_mse):
        with pytest.raises(UsageError, match="no expected rating"):
            asked()


def test_without_noise_ratings_are_their_truth():
    w = world(noise=0.0)
    np.testing.assert_array_equal(w.truth(w.ratings.users, w.ratings.items), w.ratings.values)
    assert w.irreducible_mse == 0


def residuals(r):
    """What item and user means leave over, (nnz,)."""
    e = r.values - np.bincount(r.items, r.values, r.n_items)[r.items] / r.item_counts[r.items]
    return e - np.bincount(r.users, e, r.n_users)[r.users] / r.counts[r.users]


@pytest.mark.parametrize("column", ["gender", "age", "occupation", "zip1"])
def test_user_attributes_carry_taste(column):
    """How users like each genre differs between groups: F-test, 1,000 users, 18 genres; false alarm 2·10⁻⁵."""
    from scipy.stats import f_oneway

    r = demo()
    e, groups = residuals(r), r.user_attributes[column].to_numpy()
    genres = r.item_attributes["genres"].to_pylist()
    p_values = []
    for genre in GENRES:
        mine = np.array([genre in g.split("|") for g in genres])[r.items]
        seen = np.bincount(r.users[mine], minlength=r.n_users)
        liking = np.bincount(r.users[mine], e[mine], r.n_users) / np.maximum(seen, 1)
        samples = [liking[(groups == g) & (seen > 0)] for g in np.unique(groups)]
        p_values.append(f_oneway(*(s for s in samples if len(s) > 1)).pvalue)
    assert min(p_values) < 1e-6


def test_factors_beat_biases_and_together_beats_alone():
    w = synthesize(1000, 500, 50_000, seed=7)
    training, test = split(w.ratings, test=0.1, seed=7)

    def mse(name, into=4):
        parties = partition(training, into=into, seed=7)
        method, parameters = chosen({"name": name})
        predictor = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties).predictor
        return evaluate(predictor, test, ranking=False, bootstrap=0).metrics["mse"]

    central = mse("central")
    assert w.irreducible_mse < central < 0.9 * mse("bias") < 0.9 * mse("item-mean")
    assert central < 0.95 * mse("local") < 0.95 * mse("local", into=10)
