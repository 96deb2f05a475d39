"""Baselines that are the same for everyone: the global mean, item means, popularity. Each needs one sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.query import Query, Unbounded, UnboundedAnswer
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings, Scale
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.methods.context import Context
from tacit.methods.method import Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting


class MeanParameters(Parameters):
    """Parameters of the mean baselines.

    Parameters
    ----------
    shrinkage : how many ratings' worth of the global mean every item mean starts with
    """

    shrinkage: float = Field(default=5.0, ge=0)


class NoParameters(Parameters):
    """Nothing to choose."""


TOTALS = Schema(ratings=Floats("items"), counts=Floats("items"))


@dataclass(frozen=True)
class Totals(Query):
    """Per item, how often it was rated and the sum of its ratings; it claims no sensitivity."""

    scale: Scale

    @property
    def largest(self) -> float:
        """One user rates an item once."""
        return max(1.0, self.scale.span)

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, ratings: Ratings, present: Array | None = None) -> UnboundedAnswer:
        return Unbounded().over(lambda _state, _stream: totals(ratings, present))


def totals(ratings: Ratings, present: Array | None = None) -> dict[str, np.ndarray]:
    """The sums over those that are present, (m,) float32 each."""
    items, values = ratings.items, ratings.values - np.float32(ratings.scale.low)
    if present is not None:
        here = np.repeat(present, ratings.counts)
        items, values = items[here], values[here]
    return {
        "ratings": np.bincount(items, weights=values, minlength=ratings.n_items).astype(np.float32),
        "counts": np.bincount(items, minlength=ratings.n_items).astype(np.float32),
    }


class Totalling(Party):
    """A party that adds up what its items got."""

    @step(Kind.SUM, takes=Schema(), gives=TOTALS, what="how often each item was rated, and the ratings' sum")
    def totals(self) -> Release:
        return self.gate.sum(self.ratings)

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return self._predictor(shared["scores"], shared["rates"])

    def _predictor(self, scores: np.ndarray, rates: np.ndarray) -> Fitted:
        return Fitted.same_for_all(Linear.scores(scores, self.facts.scale, rates=bool(rates)), self.member.users)


class VerticalTotalling(Totalling):
    """The same, where each party has items of its own: the totals stand beside each other."""

    @step(
        Kind.DISCLOSE,
        takes=Schema(),
        gives=TOTALS,
        what="how often each of its items was rated, and the ratings' sum",
    )
    def totals(self) -> Release:
        return self.gate.disclose(**totals(self.ratings))

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return self._predictor(shared["scores"][self.member.columns], shared["rates"])


class _Means:
    """One question, one model: scores from the items' rating sums and counts."""

    name, rates = "", True

    def __init__(self, parameters: MeanParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        for _ in federation.rounds(1):
            sums, counts = self._gather(federation)
        scores = self.scores(sums, counts).astype(np.float32)
        federation.show(scores=scores, rates=np.array(self.rates))
        form = Linear.scores(scores, self.facts.scale, rates=self.rates)
        return Model(self.name, self.facts.scale, self.facts.item_ids, form)

    def _gather(self, federation: Federation) -> tuple[np.ndarray, np.ndarray]:
        if self.facts.setting is not Setting.VERTICAL:
            total = federation.sum("totals")
            return total["ratings"], total["counts"]
        sums, counts = np.zeros(self.facts.items), np.zeros(self.facts.items)
        for party, answer in federation.ask("totals").items():
            columns = self.facts.member(party).columns
            sums[columns], counts[columns] = answer["ratings"], answer["counts"]
        return sums, counts

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def mean(self, sums: np.ndarray, counts: np.ndarray) -> float:
        """Σr/|Ω|, above the scale's low end; the middle of the scale where there is no rating at all."""
        n = counts.sum()
        return float(sums.sum() / n) if n else self.facts.scale.span / 2


class GlobalMean(_Means):
    """r̂ = mean of all ratings."""

    name = "global-mean"

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return np.full(self.facts.items, self.facts.scale.low + self.mean(sums, counts))


class ItemMean(_Means):
    """r̂_j = (Σ_i r_ij + s·mean) / (count_j + s)."""

    name = "item-mean"

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        s, mean = self.parameters.shrinkage, self.mean(sums, counts)
        with np.errstate(invalid="ignore"):
            means = (sums + s * mean) / (counts + s)
        return self.facts.scale.low + np.where(counts + s > 0, means, mean)


class Popularity(_Means):
    """Rank by how often an item was rated."""

    name, rates = "popularity", False

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return counts


def specs(parameters: Parameters, context: Context) -> Sequence[Spec]:
    """One sum, without noise."""
    return [Spec("totals", Totals(context.facts.scale))]


def _everywhere(coordinator: type[_Means]) -> dict[Setting, Sides]:
    return {
        Setting.HORIZONTAL: Sides(coordinator, Totalling, specs),
        Setting.DEVICE: Sides(coordinator, Totalling, specs),
        Setting.VERTICAL: Sides(coordinator, VerticalTotalling),
    }


GLOBAL_MEAN = Method(
    "global-mean",
    "The mean of all ratings",
    "One number for everyone, from one sum.",
    NoParameters,
    _everywhere(GlobalMean),
    guaranteed=False,
)
ITEM_MEAN = Method(
    "item-mean",
    "Item means",
    "Each item's mean rating, shrunk towards the mean of all, from one sum.",
    MeanParameters,
    _everywhere(ItemMean),
    guaranteed=False,
)
POPULARITY = Method(
    "popularity",
    "Popularity",
    "Items in the order of how often they were rated, from one sum.",
    NoParameters,
    _everywhere(Popularity),
    guaranteed=False,
)
