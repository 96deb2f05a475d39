"""`bias` on neighbours, end to end: what a whole party sends when one record is emptied, or one rating changed."""

from dataclasses import replace

import numpy as np
import pytest

from tacit.boundary import Gate
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.release import Kind
from tacit.boundary.spec import unprotected
from tacit.boundary.wire import decode
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings
from tacit.data.synthetic import demo
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.methods.bias import BiasParameters, BiasParty, specs
from tacit.methods.context import Context, Target
from tacit.partition import Setting, partition

PARTIES = partition(demo(users=40, items=30, ratings=500), into=2)
FACTS = Facts.of(PARTIES, 7)
#: Answers are float32 without privacy: half a unit in the last place of each of 60 cells.
ROUNDING = 1e-5


def sent(ratings: Ratings, unit: Unit | None = None, **parameters: float) -> np.ndarray:
    """The exact contribution of a party that holds these ratings."""
    facts, share = replace(FACTS, unit=unit), replace(PARTIES[0], ratings=ratings)
    public = PublicFacts(facts.users, facts.items, facts.scale, facts.ratings)
    target = None if unit is None else Target(1.0, 1e-6, unit)
    (spec,) = specs(BiasParameters(**parameters), Context(public, Setting.HORIZONTAL, 2, target))
    gate = Gate("party-1", 7, {}, terms=unprotected({"contribute": (spec, Kind.SUM)}))
    party = BiasParty(share, BiasParameters(**parameters), facts, gate)
    with party.gate.serving("contribute", 1, 0, "request"):
        body = decode(party.contribute().body)
    return np.concatenate([body["errors"], body["weights"]]).astype(np.float64)


def emptied(ratings: Ratings, user: int) -> Ratings:
    gone = slice(ratings.indptr[user], ratings.indptr[user + 1])
    indptr = ratings.indptr - np.where(np.arange(len(ratings.indptr)) > user, ratings.counts[user], 0)
    return replace(ratings, indptr=indptr, items=np.delete(ratings.items, gone), values=np.delete(ratings.values, gone))


def without(ratings: Ratings, entry: int) -> Ratings:
    indptr = ratings.indptr - (ratings.indptr > entry)
    return replace(
        ratings, indptr=indptr, items=np.delete(ratings.items, entry), values=np.delete(ratings.values, entry)
    )


@pytest.mark.parametrize("parameters", [{}, {"count_weight": 0.01, "shrinkage": 0.0}, {"count_weight": 10.0}])
def test_an_emptied_record_moves_what_leaves_by_at_most_one(parameters):
    ratings = PARTIES[0].ratings
    whole = sent(ratings, **parameters)
    bound = Normalised(("errors", "weights")).sensitivity(Unit.USER, Relation.ZERO_OUT)
    moved = [np.linalg.norm(whole - sent(emptied(ratings, u), **parameters)) for u in range(ratings.n_users)]
    assert max(moved) <= bound + ROUNDING
    assert min(m for m, n in zip(moved, ratings.counts, strict=True) if n) > 0.99 * bound  # and every record counts


@pytest.mark.parametrize("parameters", [{}, {"count_weight": 0.01, "shrinkage": 0.0}])
def test_one_rating_moves_what_leaves_by_at_most_itself(parameters):
    """Where the unit is a rating, no mean and no weight of its user comes before the sum."""
    ratings = PARTIES[0].ratings
    extreme = replace(ratings, values=np.where(ratings.values > 3, 5, 1).astype(np.float32))
    asked = Deviations(ratings.scale, BiasParameters(**parameters).count_weight)
    bound = asked.sensitivity(Unit.RATING, Relation.ZERO_OUT)
    for held in (ratings, extreme):
        whole = sent(held, Unit.RATING, **parameters)
        near = [sent(without(held, e), Unit.RATING, **parameters) for e in range(0, held.n_ratings, 5)]
        assert all(np.count_nonzero(whole != other) <= 2 for other in near)
        moved = [np.linalg.norm(whole - other) for other in near]
        assert max(moved) <= bound + ROUNDING
    assert min(moved) > 0.999 * bound  # extreme ratings attain it


def test_a_party_that_centres_by_users_before_the_sum_is_noticed(monkeypatch):
    """Planted: the unit is a rating, and users' own means come in all the same."""

    def forgetful(self):
        mine = self._levels(np.zeros(self.member.items, dtype=np.float32))
        middle = np.float32(self.facts.scale.low + self.facts.scale.span / 2)
        return (replace(self.ratings, values=self.ratings.values - mine[self.ratings.users] + middle),)

    monkeypatch.setattr(BiasParty, "_query_data", forgetful)
    with pytest.raises(AssertionError):
        test_one_rating_moves_what_leaves_by_at_most_itself({})


def test_users_that_share_a_mean_are_noticed(monkeypatch):
    """Planted: everybody is centred by the party's mean, so one record moves all the others' contributions."""
    monkeypatch.setattr(
        BiasParty, "_levels", lambda self, b: np.full(self.member.users, self.ratings.values.mean(), np.float32)
    )
    with pytest.raises(AssertionError):
        test_an_emptied_record_moves_what_leaves_by_at_most_one({})
