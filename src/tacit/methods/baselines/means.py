"""Baselines that are the same for everyone: the global mean, item means, popularity. Each needs one sum."""

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
from tacit.federation import Federation, Floats, Party, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.methods.context import Context
from tacit.methods.method import Coordinator, Method, Parameters, Sides
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
    """Per item, how often it was rated and the sum of its ratings; it has no sensitivity."""

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


class TotalsParty(Party):
    """A silo, or a cohort of devices, that adds up the ratings of each item."""

    @step(Kind.SUM, takes=Schema(), gives=TOTALS, what="how often each item was rated, and the ratings' sum")
    def totals(self) -> Release:
        return self.gate.sum(self.ratings)

    def at_home(self, **shared: np.ndarray) -> Fitted:
        scores = shared["scores"]
        if self.facts.setting is Setting.VERTICAL:
            scores = scores[self.member.columns]
        form = Linear.scores(scores, self.facts.scale, rates=bool(shared["rates"]))
        return Fitted.same_for_all(form, self.member.users)


class VerticalTotalsParty(TotalsParty):
    """The same, where each party holds different items, so that there is nothing to sum."""

    @step(
        Kind.DISCLOSE,
        takes=Schema(),
        gives=TOTALS,
        what="how often each of its items was rated, and the ratings' sum",
    )
    def totals(self) -> Release:
        return self.gate.disclose(**totals(self.ratings))


class MeansCoordinator(Coordinator):
    """One question, one model: subclasses define scores from the items' rating sums and counts."""

    name, rates = "", True

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        sums, counts = np.zeros(facts.items), np.zeros(facts.items)
        for _ in federation.rounds(1):
            if facts.setting is Setting.VERTICAL:
                for party, answer in federation.ask("totals").items():
                    columns = facts.member(party).columns
                    sums[columns], counts[columns] = answer["ratings"], answer["counts"]
            else:
                total = federation.sum("totals")
                sums, counts = total["ratings"], total["counts"]
        scores = self.scores(sums, counts).astype(np.float32)
        federation.show(scores=scores, rates=np.array(self.rates))
        return Model(self.name, facts.scale, facts.item_ids, Linear.scores(scores, facts.scale, rates=self.rates))

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def mean(self, sums: np.ndarray, counts: np.ndarray) -> float:
        """Σr/|Ω|, above the scale's low end; the middle of the scale where there is no rating at all."""
        n = counts.sum()
        return float(sums.sum() / n) if n else self.facts.scale.span / 2


class GlobalMean(MeansCoordinator):
    """r̂ = mean of all ratings."""

    name = "global-mean"

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return np.full(self.facts.items, self.facts.scale.low + self.mean(sums, counts))


class ItemMean(MeansCoordinator):
    """r̂_j = (Σ_i r_ij + s·mean) / (count_j + s)."""

    name = "item-mean"

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        s, mean = self.parameters.shrinkage, self.mean(sums, counts)
        with np.errstate(invalid="ignore"):
            means = (sums + s * mean) / (counts + s)
        return self.facts.scale.low + np.where(counts + s > 0, means, mean)


class Popularity(MeansCoordinator):
    """Rank by how often an item was rated."""

    name, rates = "popularity", False

    def scores(self, sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return counts


def specs(parameters: Parameters, context: Context) -> Sequence[Spec]:
    """One sum, without noise."""
    return [Spec("totals", Totals(context.facts.scale))]


def baseline(coordinator: type[MeansCoordinator], title: str, what: str, parameters: type[Parameters]) -> Method:
    """A method of one sum, or where items are divided of totals that are disclosed."""
    summed = Sides(coordinator, TotalsParty, specs)
    vertical = Sides(coordinator, VerticalTotalsParty)
    sides = {Setting.HORIZONTAL: summed, Setting.DEVICE: summed, Setting.VERTICAL: vertical}
    return Method(coordinator.name, title, what, parameters, sides, guaranteed=False)


GLOBAL_MEAN = baseline(GlobalMean, "The mean of all ratings", "One number for everyone, from one sum.", NoParameters)
ITEM_MEAN = baseline(
    ItemMean,
    "Item means",
    "Each item's mean rating, shrunk towards the mean of all, from one sum.",
    MeanParameters,
)
POPULARITY = baseline(
    Popularity, "Popularity", "Items in the order of how often they were rated, from one sum.", NoParameters
)
