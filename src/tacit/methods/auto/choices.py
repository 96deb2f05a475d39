"""What users choose, for the ranking: how items occur together, and a vote whether that ranks better. Private sums.

G is Σ_u x·xᵀ/c over the head of the catalogue, as in `ease`. Where noise leaves little of it, it can rank worse than
popularity and tastes alone; so each user hides one own item and says which of the two finds it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Clipped
from tacit.boundary.co_occurrence import PairShares
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.methods.auto.vote import votes
from tacit.methods.co_occurrence import head_of, shrunken_factors
from tacit.methods.context import Context
from tacit.methods.item_features import choice_features
from tacit.model import CoOccurrence


class Choices(Party):
    """The steps of a party that are about choices; `parameters.head` is K.

    The head is found from `popularity`, which the coordinator computed from noised sums, never from a party's own
    counts: a head that follows exact counts changes with one user's items, and the whole sum with it.
    """

    parameters: Any

    @step(
        Kind.SUM,
        takes=Schema(popularity=Floats("items")),
        gives=Schema(together=Floats("head pairs")),
        what="for pairs of popular items, how many users rated both; a user's pairs count the less the more there are",
    )
    def together(self, popularity: np.ndarray) -> Release:
        return self.gate.sum(self.ratings, head_of(popularity, self.parameters.head or 0))

    @step(
        Kind.SUM,
        takes=Schema(popularity=Floats("items"), pairs=Floats("head", "any")),
        gives=Schema(vote=Floats(1)),
        what="how many more users would find an item of their own, which they hide, by pairs than without them",
    )
    def vote(self, popularity: np.ndarray, pairs: np.ndarray) -> Release:
        """hit@10 with pairs less hit@10 without, of one hidden item; −1, 0 or 1 for each user."""
        with np.errstate(all="ignore"):
            with_pairs, without = (choices_of(self.facts, popularity, x) for x in (pairs, pairs[:, :0]))
            found = votes(self.ratings, with_pairs, without)
            return self.gate.sum({"vote": found[:, None]}, self.ratings.counts)


def choices_of(facts: Facts, popularity: np.ndarray, pairs: np.ndarray) -> CoOccurrence:
    """The form that ranks by released log counts (m,), pairs of the head (K, r) and public features."""
    return CoOccurrence.of(popularity, choice_features(facts), head_of(popularity, len(pairs)), pairs)


def pair_factors(federation: Federation, popularity: np.ndarray) -> np.ndarray:
    """How the head's items occur together, (K, r) float32, from noised sums; r = 0 where that would not rank better."""
    known = popularity.astype(np.float32)
    total = federation.sum("together", popularity=known)
    factors: np.ndarray = shrunken_factors(total["together"], total.noise).astype(np.float32)
    if not factors.shape[1]:
        return factors
    vote = federation.sum("vote", popularity=known, pairs=factors)
    return factors if float(vote["vote"][0]) > vote.noise else factors[:, :0]


def choice_specs(parameters: Any, context: Context) -> list[Spec]:
    """G and the vote, once each, where they have parts of the budget.

    Guarantee
    ---------
    `together` is `PairShares`: what a user adds has norm 1, or 0 without items of the head. The head is computed from
    noised sums that were released and charged. `vote` is one number in {−1, 0, 1}, a function of the user's own items
    and of released values, and 0 for a user with fewer than two items: it is cut to length 1 (`Clipped`), which is the
    sensitivity under zero-out. Which item is hidden depends on how many the user has and on nothing else.
    """
    shares, users = parameters.shares, context.facts.users
    stated = {
        "together": (PairShares(), users / max(parameters.head or 0, 1)),
        "vote": (Clipped(("vote",), 1.0), 0.03 * users),
    }
    return [
        Spec(name, query, share=shares[name], signal=signal)
        for name, (query, signal) in stated.items()
        if name in shares
    ]
