"""`auto` ranks: what one user can move in each release for it, what is charged, and which objective pays for what."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from method_runs import plan_of, rows_of, run_file

import tacit
from tacit.boundary import Gate
from tacit.boundary.clipped_sums import Clipped, Normalised
from tacit.boundary.co_occurrence import PairShares
from tacit.boundary.item_counts import RatingCounts
from tacit.boundary.release import Kind
from tacit.boundary.spec import unprotected
from tacit.data.load import load
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.data.split import split
from tacit.data.vocabulary import Vocabulary
from tacit.errors import PrivacyRefused, UsageError
from tacit.evaluate import evaluate
from tacit.experiment import run
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.methods.auto import AUTO, AutoParameters
from tacit.methods.auto.choices import Choices
from tacit.methods.auto.vote import votes
from tacit.methods.co_occurrence import head_of
from tacit.methods.context import Context, Target
from tacit.methods.method import Method
from tacit.model import CoOccurrence, Model
from tacit.partition import Setting, partition
from tacit.rng import derive

WHOLE = load("demo", users=30, items=25, ratings=300, features=["genres"])
RANKING = {"name": "auto", "objective": "ranking", "head": 12}
IMPLICIT = {"source": "demo", "users": 400, "items": 60, "ratings": 8000, "feedback": "implicit"}
NOTHING = (np.zeros(0, dtype=np.int64), np.zeros((0, 0)))


def halves(users=800, items=60, seed=7):
    """Users who take items of their own half five times as often as others; popularity says nothing."""
    stream = derive(seed, "taken")
    likes = (np.arange(users)[:, None] + np.arange(items)) % 2 == 0
    i, j = np.nonzero(stream.random((users, items)) < np.where(likes, 0.25, 0.05))
    values, ids = stream.integers(1, 6, len(i)).astype(np.float32), Vocabulary(np.arange(items), "item", listed=True)
    return Ratings.from_columns(i, j, values, scale=(1, 5), item_ids=ids, name="halves")


def ranking(**sections):
    return run_file(**{"method": RANKING, "public": {"features": ["genres"]}, **sections})


def implicit(method=None, **sections):
    return run_file(**{"method": {"name": "auto", **(method or {})}, "data": IMPLICIT, **sections})


# -- what one user can move -------------------------------------------------------------------------------------------


class Exact(Gate):
    """A gate that hands out exact answers, and only in this file."""

    def sum(self, *data, present=None, **at_home):
        query = self.terms.steps[self._serving().step].query
        return query, query.over(*data, present=present, **at_home).exact({}, None)


def answer(ratings, step, size, feedback=Feedback.EXPLICIT, unit=Unit.USER):
    """The exact answer of one step to a request full of numbers of that size."""
    parties = partition(ratings, into=1, by="user")
    facts = replace(Facts.of(parties, 7), feedback=feedback, unit=unit)
    public = PublicFacts(facts.users, facts.items, facts.scale, facts.ratings, facts.catalogue.width, feedback)
    context = Context(public, Setting.HORIZONTAL, 1, Target(4.0, 1e-6, unit))
    asked = {} if unit is Unit.RATING else {"objective": "ranking", "head": 6}
    parameters, sides = AutoParameters(**asked).resolved(context), AUTO.sides_in(Setting.HORIZONTAL, feedback)
    stated = {spec.step: (spec, Kind.SUM) for spec in sides.specs(parameters, context)}
    party = sides.party(parties[0], parameters, facts, Exact("party-1", 7, {}, terms=unprotected(stated)))
    shapes, stream = party.steps[step].takes.shapes({**party.dimensions, "any": 3}), derive(5, "payload", step)
    payload = {name: (size * stream.normal(size=shape)).astype(np.float32) for name, shape in shapes.items()}
    with party.gate.serving(step, 1, 0, "request"):
        return getattr(party, step)(**payload)


def without(ratings, user):
    return ratings.keep(ratings.users != user)


STAGES = [("together", Feedback.EXPLICIT), ("vote", Feedback.EXPLICIT), ("counts", Feedback.IMPLICIT)]


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e37])
@pytest.mark.parametrize(("stage", "feedback"), STAGES)
def test_a_user_who_goes_moves_an_answer_by_no_more_than_its_bound(stage, feedback, size):
    furthest = 0.0
    for world, user in product(
        (WHOLE, halves(30, 25)), (0, 7, 11, 26)
    ):  # in the second, items are almost equally popular
        query, here = answer(world, stage, size, feedback)
        _query, there = answer(without(world, user), stage, size, feedback)
        furthest = max(furthest, np.sqrt(sum(np.square(here[name] - there[name]).sum() for name in here)))
    bound = query.sensitivity(Unit.USER, Relation.ZERO_OUT)
    assert furthest <= bound == 1.0
    if stage != "vote":
        assert furthest > 0.99 * bound  # contributions are as long as they may be


@pytest.mark.parametrize(("stage", "feedback"), STAGES)
def test_nobody_without_items_adds_anything(stage, feedback):
    nobody = WHOLE.keep(np.zeros(WHOLE.n_ratings, dtype=bool))
    assert not any(block.any() for block in answer(nobody, stage, 1.0, feedback)[1].values())


def test_a_rating_that_goes_moves_counts_by_one():
    query, here = answer(WHOLE, "counts", 1.0, Feedback.IMPLICIT, Unit.RATING)
    assert isinstance(query, RatingCounts)
    kept = np.ones(WHOLE.n_ratings, dtype=bool)
    kept[17] = False
    there = answer(WHOLE.keep(kept), "counts", 1.0, Feedback.IMPLICIT, Unit.RATING)[1]
    moved = np.sqrt(np.square(here["counts"] - there["counts"]).sum())
    assert 0.99 < moved <= query.sensitivity(Unit.RATING, Relation.ZERO_OUT)
    assert np.isinf(query.sensitivity(Unit.USER, Relation.ZERO_OUT))


def test_planted_head_items_from_exact_counts(monkeypatch):
    """A published trap: who goes changes which items are in the head, and so what everybody else adds."""

    def careless(self, popularity):
        return self.gate.sum(self.ratings, head_of(self.ratings.item_counts, self.parameters.head))

    careless.tacit_step = Choices.together.tacit_step
    monkeypatch.setattr(Choices, "together", careless)
    with pytest.raises(AssertionError):
        test_a_user_who_goes_moves_an_answer_by_no_more_than_its_bound("together", Feedback.EXPLICIT, 1.0)


def test_planted_votes_for_every_item_instead_of_one(monkeypatch):
    monkeypatch.setattr("tacit.methods.auto.choices.votes", lambda ratings, *given: 3.0 * ratings.counts)
    monkeypatch.setattr("tacit.boundary.clipped_sums.clipped_rows", lambda x, limit: x)
    with pytest.raises(AssertionError):
        test_a_user_who_goes_moves_an_answer_by_no_more_than_its_bound("vote", Feedback.EXPLICIT, 1.0)


@pytest.mark.parametrize("dropped", ["means", "together"])
def test_planted_counts_that_are_used_and_not_stated(tmp_path, monkeypatch, dropped):
    """A published trap: the code asks for counts that no budget was charged for. The run ends, and nothing left."""
    real = Method.stated
    monkeypatch.setattr(Method, "stated", lambda self, *given: [s for s in real(self, *given) if s.step != dropped])
    with pytest.raises(PrivacyRefused, match="states no such release"):
        run(ranking(), tmp_path / "run")
    assert not any(row.step == dropped for rows in rows_of(tmp_path / "run").values() for row in rows)


def test_planted_counts_in_a_public_word(tmp_path, monkeypatch):
    """The other way around a charge: counts as a fact without data. The gate knows of no such fact."""

    def open_counts(self, popularity):
        return self.gate.public("counts", self.ratings.item_counts)

    open_counts.tacit_step = Choices.together.tacit_step
    monkeypatch.setattr(Choices, "together", open_counts)
    with pytest.raises(PrivacyRefused, match="as a public fact"):
        run(ranking(), tmp_path / "run")


# -- what is stated and charged ---------------------------------------------------------------------------------------


def test_each_objective_pays_for_what_it_says():
    def shares(objective, **more):
        terms = plan_of(ranking(method={"name": "auto", "objective": objective, **more})).terms
        return {name: (type(one.query), one.spec.share) for name, one in terms.steps.items()}

    rating, ranked = shares("rating"), shares("ranking", head=12)
    assert shares("liked") == rating
    assert "together" not in rating
    assert (ranked["together"], ranked["vote"]) == ((PairShares, pytest.approx(0.2)), (Clipped, pytest.approx(0.02)))
    assert sum(share for _query, share in ranked.values()) == pytest.approx(1.0)
    assert shares("ranking") == rating  # so few users that pairs could not outweigh their noise


def test_pairs_and_votes_are_in_every_partys_ledger(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.methods.auto.choices.shrunken_factors", lambda pairs, noise: np.ones((12, 2)))
    summary = run(ranking(), tmp_path / "run")
    for rows in rows_of(tmp_path / "run").values():
        charged = [row.step for row in rows]
        assert (charged.count("together"), charged.count("vote")) == (1, 1)
    assert 3.9 < summary["guarantee"]["epsilon"] <= 4.0


@pytest.mark.parametrize(
    ("method", "privacy", "why"),
    [
        ({"objective": "ranking"}, {"unit": "rating"}, "move[s]? with each"),
        ({"head": 20, "objective": "rating"}, {}, 'for objective = "ranking"'),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(method, privacy, why):
    with pytest.raises(UsageError, match=why):
        plan_of(ranking(method={"name": "auto", **method}, privacy={"epsilon": 4.0, "delta": 1e-6, **privacy}))


# -- the vote ---------------------------------------------------------------------------------------------------------


def rankings(ratings):
    """One that knows the two halves, and one that knows popularity alone."""
    pairs = 0.3 * np.stack([np.arange(60) % 2 == 0, np.arange(60) % 2 == 1], axis=1)
    log = np.log(1 + ratings.item_counts)
    return CoOccurrence.of(log, np.zeros((60, 0)), np.arange(60), pairs), CoOccurrence.of(
        log, np.zeros((60, 0)), *NOTHING
    )


def test_a_vote_is_for_the_ranking_that_finds_what_was_hidden():
    ratings = halves()
    by_halves, by_popularity = rankings(ratings)
    found = votes(ratings, by_halves, by_popularity)
    assert set(np.unique(found)) <= {-1.0, 0.0, 1.0}
    assert found.sum() > 0.05 * ratings.n_users
    np.testing.assert_array_equal(votes(ratings, by_popularity, by_halves), -found)
    np.testing.assert_array_equal(votes(ratings, by_halves, by_halves), 0)


def test_a_vote_depends_on_the_user_s_own_items_alone():
    ratings = halves()
    found = votes(ratings, *rankings(ratings))
    alone = votes(ratings.keep(ratings.users == 3), *rankings(ratings))
    assert alone[3] == found[3]
    assert not np.delete(alone, 3).any()


def test_who_has_fewer_than_two_items_has_no_vote():
    ratings = halves(users=40)
    first = np.zeros(ratings.n_ratings, dtype=bool)
    first[ratings.indptr[:-1]] = True
    assert not votes(ratings.keep(first), *rankings(ratings)).any()


@pytest.mark.parametrize(("sum_of_votes", "taken"), [(1e4, True), (-1e4, False)])
def test_pairs_are_taken_where_the_noised_vote_exceeds_its_noise(tmp_path, monkeypatch, sum_of_votes, taken):
    monkeypatch.setattr("tacit.methods.auto.choices.shrunken_factors", lambda pairs, noise: np.ones((12, 2)))
    monkeypatch.setattr(
        "tacit.methods.auto.choices.votes", lambda ratings, *given: np.full(ratings.n_users, np.sign(sum_of_votes))
    )
    run(ranking(), tmp_path / "run")
    assert (Model.load(tmp_path / "run").form.pairs is not None) == taken


# -- what is learned --------------------------------------------------------------------------------------------------


def test_with_enough_budget_pairs_find_what_popularity_cannot():
    learned, held_out = split(halves(), by="leave-one-out", seed=7)
    hits = {}
    for objective in ("rating", "ranking"):
        head = {"head": 60, "together_share": 1.0} if objective == "ranking" else {}
        privacy = tacit.DP(epsilon=100.0, delta=1e-6)
        model = tacit.Auto(objective=objective, privacy=privacy, aggregation="ideal", seed=7, **head)
        model.fit(partition(learned, into=3))
        hits[objective] = evaluate(model, held_out, relevance=1, bootstrap=0).metrics["hr_full@10"]
    assert hits["ranking"] > 0.3 > 0.25 > hits["rating"]


def test_liked_items_come_sooner_the_higher_they_are_predicted(tmp_path):
    run(ranking(method={"name": "auto", "objective": "liked"}), tmp_path / "run")
    form = Model.load(tmp_path / "run").form
    states = form.fold_in(np.array([0, 0]), np.zeros(0, dtype=np.int64), np.zeros(0))
    more = form.rank(states, np.array([0])) - replace(form, liked=False).rank(states, np.array([0]))
    rated = form.rate(states, np.zeros(60, dtype=np.int64), np.arange(60))
    order = np.argsort(rated)
    assert np.all(np.diff(more[0][order]) >= -1e-5)
    assert np.ptp(more) > 0


def test_the_saved_model_ranks_a_new_user_as_a_party_ranks_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit.methods.auto.choices.shrunken_factors", lambda p, noise: 0.3 * np.eye(12)[:, :4])
    monkeypatch.setattr("tacit.methods.auto.choices.votes", lambda ratings, *given: np.ones(ratings.n_users))
    data = load("demo", users=200, items=40, ratings=3000, features=["genres"])
    privacy = tacit.DP(epsilon=4.0, delta=1e-6)
    estimator = tacit.Auto(objective="ranking", head=12, privacy=privacy, aggregation="ideal", seed=7)
    estimator.fit(partition(data, into=2))
    model = Model.load(estimator.model_.save(tmp_path / "model"))
    assert model.form.pairs is not None
    mine = slice(data.indptr[5], data.indptr[6])
    history = dict(zip(data.item_ids.ids[data.items[mine]].tolist(), data.values[mine].tolist(), strict=True))
    np.testing.assert_allclose(model.scores(history), estimator.predictor_.scores(np.array([5]))[0], rtol=1e-4)


# -- implicit feedback ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["user", "rating"])
@pytest.mark.parametrize(
    ("divided", "aggregation"), [({"into": 4}, "ideal"), ({"into": 4}, "secagg"), ({"by": "device"}, "ideal")]
)
def test_implicit_feedback_is_ranked_under_every_aggregation(tmp_path, divided, aggregation, unit):
    method = {} if unit == "rating" else {"head": 12}
    privacy = {"epsilon": 4.0, "delta": 1e-6, "unit": unit}
    file = implicit(method, partition=divided, aggregation={"name": aggregation}, privacy=privacy)
    kinds = {name: type(one.query) for name, one in plan_of(file).terms.steps.items()}
    user = {"counts": Normalised, "together": PairShares, "vote": Clipped}
    assert kinds == (user if unit == "user" else {"counts": RatingCounts})
    summary = run(file, tmp_path / "run")
    assert 3.9 < summary["guarantee"]["epsilon"] <= 4.0
    assert summary["guarantee"]["unit"] == unit
    model = Model.load(tmp_path / "run")
    assert isinstance(model.form, CoOccurrence)
    assert "mse" not in summary["metrics"]
    assert len(model.recommend({model.item_ids[0].item(): 1.0}, n=5)) == 5


def test_what_is_about_ratings_is_refused_of_implicit_feedback():
    for method in ({"objective": "liked"}, {"residuals_share": 0.5}):
        with pytest.raises(UsageError, match="is about ratings"):
            plan_of(implicit(method))
    with pytest.raises(UsageError, match="moves with each"):
        plan_of(implicit({"head": 12}, privacy={"epsilon": 4.0, "delta": 1e-6, "unit": "rating"}))


def test_an_implicit_run_of_few_users_spends_all_on_counts():
    (counts,) = plan_of(implicit()).terms.steps.values()
    assert counts.spec.share == 1.0
    public = PublicFacts(6040, 3883, Scale(0, 1), 1_000_209, 0, Feedback.IMPLICIT)
    context = Context(public, Setting.HORIZONTAL, 10, Target(4.0, 1e-6, Unit.USER))
    assert set(AutoParameters().resolved(context).shares) == {"means", "together", "vote"}
