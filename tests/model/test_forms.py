"""Forms: every one folds in, rates or ranks, is saved, loaded and refused where its arrays are not its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from tacit.data.ratings import Scale
from tacit.data.synthetic import demo
from tacit.data.vocabulary import Vocabulary
from tacit.deploy import site_files as kept
from tacit.errors import DataError
from tacit.federation import Facts
from tacit.methods import chosen
from tacit.model import (
    Bayesian,
    CoOccurrence,
    Fitted,
    Hashed,
    Implicit,
    ItemItem,
    Linear,
    Model,
    NonNegative,
    RatedAndRanked,
    Tastes,
    forms,
)
from tacit.model.co_occurrence import PRIORS
from tacit.partition import partition
from tacit.prepare import PreparedRun, train
from tacit.rng import derive, id_keys

N, M, K = 6, 9, 3
SCALE = Scale(1, 5)


@dataclass(frozen=True, eq=False)
class Nearest:
    """A form of somebody's own: an item is liked the better, the nearer it lies to the mean of what was rated."""

    places: np.ndarray
    reach: float = 2.0

    name: ClassVar[str] = "nearest"
    dtype: ClassVar[str] = "float32"
    arrays: ClassVar[Mapping[str, tuple[str, ...]]] = {"places": ("items", "axes")}

    @property
    def width(self):
        return self.places.shape[1]

    def fold_in(self, indptr, items, values):
        sums = np.concatenate([np.zeros((1, self.width)), np.cumsum(self.places[items], axis=0)])
        counts = np.maximum(np.diff(indptr), 1)[:, None]
        return ((sums[indptr[1:]] - sums[indptr[:-1]]) / counts).astype(np.float32)

    def rate(self, states, users, items):
        return None

    def rank(self, states, users):
        apart = np.linalg.norm(states[users][:, None] - self.places[None], axis=2)
        return (self.reach - apart).astype(np.float32)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that brings `Nearest`, as an installer would leave it."""
    about = tmp_path / "site" / "nearest-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: nearest\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[tacit.forms]\nnearest = {__name__}:Nearest\nliar = {__name__}:Nearest\n")
    monkeypatch.syspath_prepend(str(about.parent))
    forms.known.cache_clear()
    yield
    forms.known.cache_clear()


def a_form(kind):
    stream = derive(5, "form", kind)
    items = stream.random((M, K), dtype=np.float32)
    biases = stream.normal(size=M).astype(np.float32)
    match kind:
        case "bias":
            return Linear.levels(biases, SCALE, 5.0)
        case "scores":
            return Linear.scores(3 + biases / 2, SCALE)
        case "popularity":
            return Linear.scores(100 * biases, SCALE, rates=False)
        case "factors":
            return Linear.factors(items - 0.3, SCALE)
        case "an order":
            return replace(Linear.factors(items - 0.3, SCALE), order=biases, personal=0.5)
        case "non-negative":
            return NonNegative(1.0, 5.0, items)
        case "tastes" | "tastes without an order" | "tastes, pairs and liked items":
            prior = 0.1 * stream.normal(size=(K + 2, K)).astype(np.float32)
            rated = Tastes(1.0, 5.0, 0.7, 3 + biases / 2, items - 0.3, prior)
            chosen = {"popularity": biases, "features": items[:, :2] - 0.5}
            if kind == "tastes, pairs and liked items":
                head = (np.arange(M) % 2 == 0).astype(np.float32)
                chosen |= {"head": head, "pairs": items * head[:, None], "liked": True}
            return rated if kind == "tastes without an order" else replace(rated, **chosen)
        case "implicit":
            return Implicit(items - 0.5, confidence=10.0)
        case "item-item":
            inside, B = np.arange(M) % 2 == 0, stream.normal(size=(5, 5)).astype(np.float32)
            head = np.where(inside, np.cumsum(inside), 0).astype(np.float32)
            return ItemItem(head, B, np.where(inside, 0.0, -stream.random(M)).astype(np.float32))
        case "bayesian":
            y = np.column_stack([np.ones(M), items[:, :2] - 0.5]).astype(np.float32)
            a, b = np.triu_indices(3)
            coefficients = 0.1 * stream.normal(size=(4, 2)).astype(np.float32)
            return Bayesian(1.0, 5.0, 0.5, 0.6, 10.0, y, y[:, a] * y[:, b], coefficients, np.eye(2, dtype=np.float32))
        case "rated and ranked":
            return RatedAndRanked.of(a_form("bayesian"), a_form("item-item"))
        case "co-occurrence":
            head, spread = (np.arange(M) % 2 == 0).astype(np.float32), np.var(items, axis=0).astype(np.float32)
            return CoOccurrence(head, items * head[:, None], 0.1 + np.abs(biases), items - 0.5, spread)
        case "hashed":
            return Hashed(id_keys(1, "item", range(M)))
    return Nearest(items)


TASTES = ["tastes", "tastes without an order", "tastes, pairs and liked items"]
KINDS = [
    "bias",
    "scores",
    "popularity",
    "factors",
    "an order",
    *TASTES,
    "non-negative",
    "implicit",
    "hashed",
    "nearest",
    "item-item",
    "co-occurrence",
    "bayesian",
    "rated and ranked",
]


def histories(seed=1, n=N):
    """Some users' ratings in compressed rows; the first has none."""
    stream = derive(seed, "histories")
    rows = [np.sort(stream.choice(M, k % 5, replace=False)) for k in range(n)]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    items = np.concatenate(rows).astype(np.int32)
    return indptr, items, stream.integers(1, 6, len(items)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_comes_from_ones_own_history_alone(kind):
    form, (indptr, items, values) = a_form(kind), histories()
    together = form.fold_in(indptr, items, values)
    assert together.shape == (N, form.width)
    assert together.dtype == form.dtype
    for i in range(N):
        mine = slice(indptr[i], indptr[i + 1])
        alone = form.fold_in(np.array([0, indptr[i + 1] - indptr[i]]), items[mine], values[mine])
        np.testing.assert_allclose(alone[0], together[i], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_ratings_are_cells_of_the_rows_unless_the_form_ranks_by_something_else(kind):
    form = a_form(kind)
    states = form.fold_in(*histories())
    users, items = (x.ravel() for x in np.indices((N, M)))
    rows, rated = form.rank(states, np.arange(N)), form.rate(states, users, items)
    assert rows.shape == (N, M)
    assert rows.dtype == np.float32
    assert (rated is not None) == forms.rates(form) == Fitted(form, states).rates
    if kind in ("an order", "tastes", "tastes, pairs and liked items", "rated and ranked"):
        assert not np.allclose(rated, rows.ravel(), atol=0.1)
    elif rated is not None:
        assert rated.dtype == np.float32
        np.testing.assert_allclose(rated, rows.ravel(), rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_site_and_a_folder_keep_every_form(tmp_path, installed, kind):
    seen, form = demo(users=N, items=M, ratings=25), a_form(kind)
    fitted = Fitted(form, form.fold_in(seen.indptr, seen.items, seen.values))
    assert kept.fits(fitted, N, M)
    home = tmp_path / "home"
    kept.write_predictor(home / "predictor.tct", fitted)
    kept.write_seen(home / "seen.tct", seen)
    kept.write_model(home / "model", fitted, seen, "x", "NON-PRIVATE")
    read = kept.read_predictor(home / "predictor.tct")
    np.testing.assert_array_equal(read.scores(np.arange(N)), fitted.scores(np.arange(N)))
    row = 2
    hers = slice(seen.indptr[row], seen.indptr[row + 1])
    rated = seen.item_ids.ids[seen.items[hers]].tolist()
    by_id = kept.recommend(home, seen.user_ids[row], n=M)
    assert not {item for item, _ in by_id} & set(rated)
    assert len(by_id) == M - len(rated)
    model = Model.load(tmp_path)
    assert forms.same(model.form, form)
    by_history = model.recommend(dict(zip(rated, seen.values[hers].tolist(), strict=True)), n=M)
    np.testing.assert_allclose([score for _, score in by_id], [score for _, score in by_history], rtol=1e-5)


def spoilt(kind):
    """Forms and states that must not be kept, by what is wrong with them."""
    form = a_form(kind)
    states = form.fold_in(*histories())
    name = next(iter(form.arrays))
    array = getattr(form, name)
    yield "too many items", replace(form, **{name: np.concatenate([array, array[:1]])}), states
    yield "another kind of number", replace(form, **{name: array.astype(np.float64)}), states
    yield "too few dimensions", replace(form, **{name: array.ravel()[0]}), states
    yield "too many dimensions", replace(form, **{name: array[..., None]}), states
    yield "no array", replace(form, **{name: None}), states
    if hasattr(form, "low"):
        yield "no number", replace(form, low=float("nan")), states
    if hasattr(form, "precision"):
        yield "two widths", replace(form, precision=np.ones((form.width + 1,) * 2, np.float32)), states
    yield "too few users", form, states[1:]
    yield "states that are too wide", form, np.concatenate([states, states, states[:, :1]], axis=1)[:, : form.width + 1]
    yield "states of one dimension", form, states.ravel()
    yield "states of another kind", form, states.astype(np.int32)
    if form.dtype == "float32":
        broken = array.copy()
        broken.flat[0] = np.nan
        yield "a number that is not finite", replace(form, **{name: broken}), states
        yield "states that are not finite", form, np.full((N, form.width), np.inf, dtype=np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_what_does_not_fit_is_refused_in_one_sentence(kind):
    form = a_form(kind)
    forms.check(form, M, form.fold_in(*histories()), N)
    for what, broken, states in spoilt(kind):
        if not states.size and not form.width and "states" in what:
            continue  # nobody's states have a number in them
        assert not kept.fits(Fitted(broken, states), N, M), what
        with pytest.raises(DataError) as refused:
            forms.check(broken, M, states, N)
        assert str(refused.value).endswith(".")
        assert "\n" not in str(refused.value)


def test_a_form_is_made_of_its_own_names_only():
    good = {"items": np.ones((M, K), dtype=np.float32)}
    assert forms.build("non-negative", {"low": 1, "high": 5}, good).regularization == 1.0
    for numbers, arrays, words in (
        ({"low": 1}, good, 'lacks "high"'),
        ({"low": 1, "high": 5}, {}, 'lacks "items"'),
        ({"low": 1, "high": 5, "more": 1}, good, 'no number "more"'),
        ({"low": 1, "high": 5, "items": 1}, {}, 'no number "items"'),
        ({"high": 5}, {**good, "low": good["items"]}, 'no array "low"'),
        ({"low": 1, "high": 5, "name": 7}, good, 'no number "name"'),
    ):
        with pytest.raises(DataError, match=words):
            forms.build("non-negative", numbers, arrays)


def test_only_installed_forms_are_found(tmp_path, request):
    saved = Model("x", SCALE, Vocabulary.of(np.arange(M), "item"), a_form("nearest"))
    folder = saved.save(tmp_path / "model")
    with pytest.raises(forms.NotInstalled, match='no model form "nearest" here; install'):
        Model.load(folder)
    request.getfixturevalue("installed")
    assert type(Model.load(folder).form).__name__ == "Nearest"
    for name in ("liar", "os:system", "", "Linear", "tacit.model.linear:Linear"):
        with pytest.raises(forms.NotInstalled):
            forms.find(name)


def test_a_linear_state_is_the_dense_ridge_solution():
    stream = derive(2, "linear")
    V, base, mean = stream.normal(size=(M, K)), 3 + stream.normal(size=M), stream.normal(size=K)
    root = stream.normal(size=(K, K))
    precision = root @ root.T + 0.5 * np.eye(K)
    form = Linear(1.0, 5.0, *(x.astype(np.float32) for x in (base, V, mean, precision)))
    indptr, items, values = histories()
    found = form.fold_in(indptr, items, values)
    for i in range(N):
        mine = slice(indptr[i], indptr[i + 1])
        v, r = V[items[mine]], values[mine] - base[items[mine]]
        expected = np.linalg.solve(precision + v.T @ v, precision @ mean + v.T @ r)
        np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0], mean, rtol=1e-6)


@pytest.mark.parametrize("by", ["user", "device"])
@pytest.mark.parametrize("shrinkage", [0.0, 5.0])
def test_a_bias_model_folds_in_the_levels_that_parties_fit_at_home(by, shrinkage):
    ratings = demo(users=40, items=20, ratings=300)
    method, parameters = chosen({"name": "bias", "shrinkage": shrinkage})
    parties = partition(ratings, by=by, into=2 if by == "user" else None)
    trained = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties)
    levels = trained.model.fold_in(ratings.indptr, ratings.items, ratings.values)
    np.testing.assert_allclose(levels, trained.predictor.states, atol=1e-5)
    users, items = ratings.users, ratings.items
    mine = trained.model.form.rate(levels, users, items)
    np.testing.assert_allclose(mine, trained.predictor.predict(users, items), atol=1e-5)


def test_whoever_rates_high_is_still_recommended_the_best_first():
    """Ratings are cut to the scale, and many would be 5; the shared model's ranking is not."""
    ratings = demo(users=60, items=20, ratings=600)
    method, parameters = chosen({"name": "bias"})
    parties = partition(ratings, into=2)
    model = train(PreparedRun.of(method, parameters, Facts.of(parties, 7)), parties).model
    history = {item.item(): 5.0 for item in model.item_ids.ids[:12]}
    found = model.recommend(history, n=8)
    biases = {item: model.form.base[model.item_ids.row(item)] for item, _ in found}
    assert list(biases.values()) == sorted(biases.values(), reverse=True)
    assert model.predict(history, [item for item, _ in found]).max() <= 5.0


def test_an_order_ranks_and_leaves_ratings_alone():
    plain = a_form("factors")
    order = derive(8, "order").permutation(M).astype(np.float32)
    ids = Vocabulary.of(np.arange(M), "item")
    one = Model("x", SCALE, ids, plain)
    other = Model("x", SCALE, ids, replace(plain, order=order))
    history = {0: 5, 3: 2}
    np.testing.assert_array_equal(one.predict(history, range(M)), other.predict(history, range(M)))
    assert [item for item, _ in other.recommend({}, n=M)] == np.argsort(-order).tolist()
    assert one.recommend(history, n=M) != other.recommend(history, n=M)
    states = plain.fold_in(*histories())
    own = replace(plain, order=order, personal=2.0).rank(states, np.arange(N))
    np.testing.assert_allclose(own, order + 2 * states @ plain.items.T, rtol=1e-5)


def test_an_implicit_state_is_the_dense_solution_over_all_items():
    """Hu, Koren and Volinsky 2008, eq. (4), with the confidence of every item written out."""
    form, (indptr, items, values) = a_form("implicit"), histories()
    V = form.items.astype(np.float64)
    found = form.fold_in(indptr, items, values)
    for i in range(N):
        r = np.zeros(M)
        r[items[indptr[i] : indptr[i + 1]]] = values[indptr[i] : indptr[i + 1]]
        C, p = np.diag(1 + form.confidence * r), (r > 0).astype(float)
        expected = np.linalg.solve(V.T @ C @ V + form.regularization * np.eye(K), V.T @ C @ p)
        np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-5)
    assert not found[0].any()


def test_weights_between_items_rank_the_head_and_all_others_follow():
    form = a_form("item-item")
    inside = form.head > 0
    states = form.fold_in(*histories())
    scores = form.rank(states, np.arange(N))
    np.testing.assert_allclose(scores[:, inside], states @ form.weights, rtol=1e-5)
    assert (scores[:, ~inside].max(axis=1) < scores[:, inside].min(axis=1)).all()
    assert (np.argsort(scores[:, ~inside], axis=1) == np.argsort(form.base[~inside])).all()


def test_co_occurrence_scores_are_the_formula_written_out():
    form, (indptr, items, values) = a_form("co-occurrence"), histories()
    found = form.rank(form.fold_in(indptr, items, values), np.arange(N))
    X, f, c = form.tastes.astype(float), form.factors.astype(float), form.spread.astype(float)
    for i in range(N):
        mine = items[indptr[i] : indptr[i + 1]]
        n, total, odds = max(len(mine), 1), X[mine].sum(axis=0), []
        for tau in PRIORS:  # the density of the mean of n items, N(0, C/n + τ·C²)
            v = c / n + tau * c**2
            odds.append(np.exp(-0.5 * np.sum(np.log(v) + (total / n) ** 2 / v)))
        each = [np.linalg.solve(n * np.diag(c) + np.eye(K) / tau, total) for tau in PRIORS]
        floor, weight = (form.head[mine].sum() + 1) * form.floor, np.where(form.head > 0, form.weight, 1)
        theta = np.average(each, axis=0, weights=odds)
        expected = np.log(np.maximum(f @ f[mine].sum(axis=0), floor)) + weight * (X @ theta)
        np.testing.assert_allclose(found[i], expected, rtol=1e-4, atol=1e-5)


def test_a_random_order_is_the_same_for_the_same_history():
    form = a_form("hashed")
    one = form.fold_in(np.array([0, 2, 4]), np.array([1, 4, 4, 1]), np.ones(4))
    assert one[0] == one[1]
    other = form.fold_in(np.array([0, 2]), np.array([1, 5]), np.ones(2))
    assert one[0] != other[0]
    scores = form.rank(one, np.array([0]))
    assert scores.min() >= 0
    assert scores.max() < 1
