"""Baselines that are the same for everyone: the global mean, item means, popularity. Each needs one sum."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from tacit.boundary import Release, Unbounded
from tacit.boundary.release import Kind
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.methods.base import Method, Parameters, Sides
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


class Totalling(Party):
    """A party that adds up what its items got."""

    @step(Kind.SUM, takes=Schema(), gives=TOTALS, what="how often each item was rated, and the ratings' sum")
    def totals(self) -> Release:
        here = max(1, self.member.devices) if self.present is None else int(np.count_nonzero(self.present))
        return self.gate.sum(Unbounded(lambda state, stream: self._totals()), contributors=here)

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return self._predictor(shared["scores"], shared["rates"])

    def _predictor(self, scores: np.ndarray, rates: np.ndarray) -> Fitted:
        return Fitted.alike(Linear.scores(scores, self.facts.scale, rates=bool(rates)), self.member.users)

    def _totals(self) -> dict[str, np.ndarray]:
        ratings, m = self.ratings, self.member.items
        items, values = ratings.items, ratings.values - np.float32(ratings.scale.low)
        if self.present is not None:
            here = np.repeat(self.present, ratings.counts)
            items, values = items[here], values[here]
        return {
            "ratings": np.bincount(items, weights=values, minlength=m).astype(np.float32),
            "counts": np.bincount(items, minlength=m).astype(np.float32),
        }


class VerticalTotalling(Totalling):
    """The same, where each party has items of its own: the totals stand beside each other."""

    @step(
        Kind.DISCLOSE,
        takes=Schema(),
        gives=TOTALS,
        what="how often each of its items was rated, and the ratings' sum",
    )
    def totals(self) -> Release:
        return self.gate.disclose(**self._totals())

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


def _everywhere(coordinator: type[_Means]) -> dict[Setting, Sides]:
    return {
        Setting.HORIZONTAL: Sides(coordinator, Totalling),
        Setting.DEVICE: Sides(coordinator, Totalling),
        Setting.VERTICAL: Sides(coordinator, VerticalTotalling),
    }


GLOBAL_MEAN = Method(
    "global-mean",
    "The mean of all ratings",
    "One number for everyone, from one sum.",
    NoParameters,
    _everywhere(GlobalMean),
)
ITEM_MEAN = Method(
    "item-mean",
    "Item means",
    "Each item's mean rating, shrunk towards the mean of all, from one sum.",
    MeanParameters,
    _everywhere(ItemMean),
)
POPULARITY = Method(
    "popularity",
    "Popularity",
    "Items in the order of how often they were rated, from one sum.",
    NoParameters,
    _everywhere(Popularity),
)
