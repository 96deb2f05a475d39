"""`bias`: noisy item means from one sum, and user biases fitted at home. The floor of every private model.

Each user centres her ratings by her own mean and sends, for each of her items, (w·e, w·s), scaled so that her whole
contribution has norm 1 (an empty record sends 0). From the noised sums alone it is estimated how much weight each item
got and how far its ratings lie from their users' means, by empirical Bayes; every user then fits her own level at home.

    r̂_uj = level_u + b_j,   b_j = τ²·S_j·(A_j − S_j·b̄)/(τ²·S_j² + v_j) + b̄

Where users are divided, all parties' contributions become one sum and the coordinator estimates b. Where items are, a
silo holds all ratings of its items: it noises the sums of these alone, estimates their b from what was noised, and lets
only b out. A user contributes to every silo then, at norm 1, and has a level in each.

Where the unit is one rating, that would be needlessly noisy: her mean and her weight move with each of her ratings, so
one of them moves all that she sends, by up to 2. Then every rating goes into the sum by itself, as (r − middle, s), no
mean and no weight of hers before it, and moves the sum by at most √((R/2)² + s²) (`DeviationSum`). b_j is then how far
an item lies from the middle of the scale, shrunk towards the mean over all ratings; levels are fitted as before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.query import Query
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.data.ratings import Feedback
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.guarantee import Unit
from tacit.methods.bias.shrink import item_biases
from tacit.methods.context import Context
from tacit.methods.method import Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting


class BiasParameters(Parameters):
    """Parameters of `bias`.

    Parameters
    ----------
    count_weight : s, how much of a contribution tells that an item was rated, beside how
    shrinkage : how many ratings' worth of the middle of the scale a user's own level starts with
    """

    count_weight: float = Field(default=0.7, gt=0, le=10)
    shrinkage: float = Field(default=5.0, ge=0)


class BiasCoordinator:
    """One sum, one model."""

    def __init__(self, parameters: BiasParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        for _ in federation.rounds(1):
            total = federation.sum("contribute")
            b = estimated(total.blocks, total.noise, self.parameters, self.facts)
            federation.show(biases=b)
        federation.ask("finish", biases=b)
        return shared_model(b, self.parameters, self.facts)


class VerticalBiasCoordinator:
    """Every silo's biases of its own items, side by side; 0 for those of a silo that does not answer."""

    def __init__(self, parameters: BiasParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        b = np.zeros(self.facts.items, dtype=np.float32)
        for _ in federation.rounds(1):
            for party, answer in federation.ask("contribute").items():
                b[self.facts.member(party).columns] = answer["biases"]
            federation.show(biases=b)
        return shared_model(b, self.parameters, self.facts)


class Levels(Party):
    """What both kinds of party do: bring the data of sums that suit the unit, and predict from level and bias."""

    parameters: BiasParameters

    def _asked_over(self) -> tuple[Any, ...]:
        """The data of the step's query: ratings alone where these are the unit, else with what her mean leaves."""
        ratings = self.ratings
        if self.facts.unit is Unit.RATING:
            return (ratings,)
        mine = self._levels(np.zeros(self.member.items, dtype=np.float32))
        channels = {
            "errors": ratings.values - mine[ratings.users],
            "weights": np.full(ratings.n_ratings, self.parameters.count_weight, dtype=np.float32),
        }
        return ratings, channels

    def _levels(self, biases: np.ndarray) -> np.ndarray:
        """Each user's own level: the mean of what her ratings leave over the biases, shrunk; (n,) float32."""
        ratings, scale, k = self.ratings, self.facts.scale, self.parameters.shrinkage
        clipped = np.clip(ratings.values, scale.low, scale.high)
        sums = np.bincount(ratings.users, weights=clipped - biases[ratings.items], minlength=self.member.users)
        middle = scale.low + scale.span / 2
        with np.errstate(invalid="ignore"):
            levels = (sums + k * middle) / (ratings.counts + k)
        return np.where(ratings.counts + k > 0, levels, middle).astype(np.float32)

    def _predictor(self, b: np.ndarray) -> Fitted:
        return Fitted(Linear.levels(b, self.facts.scale, self.parameters.shrinkage), self._levels(b)[:, None])


class BiasParty(Levels):
    """A silo, or a cohort of devices: contributes once, then fits its users' levels at home."""

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(errors=Floats("items"), weights=Floats("items")),
        what=(
            "per item, the sum of its users' weighted deviations from their own means and of their weights; where the "
            "unit is a rating, of its ratings' deviations from the middle of the scale and of how many there are"
        ),
    )
    def contribute(self) -> Release:
        return self.gate.sum(*self._asked_over())

    @step(Kind.PUBLIC, takes=Schema(biases=Floats("items")), what="the word that the item biases have arrived")
    def finish(self, biases: np.ndarray) -> Release:
        self.home["biases"] = biases.copy()
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return self._predictor(self._latest("biases", shared))


class VerticalBiasParty(Levels):
    """A silo with items of its own: a chain of one noisy answer, whose update is the empirical Bayes of its biases."""

    @step(
        Kind.CHAIN,
        takes=Schema(),
        gives=Schema(biases=Floats("items")),
        what="how far each of its items lies from its users' means, or from the scale's middle, by noised sums alone",
    )
    def contribute(self) -> Release:
        noise = self.gate.noise

        def update(state: dict[str, Any], noised: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            return {"biases": estimated(noised, noise, self.parameters, self.facts)}

        return self.gate.chain(*self._asked_over(), update=update, release=("biases",))

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return self._predictor(shared["biases"][self.member.columns] if shared else self.home["biases"])


def estimated(sums: Mapping[str, np.ndarray], noise: float, parameters: BiasParameters, facts: Facts) -> np.ndarray:
    """b from noised sums whose every cell carries noise of that standard deviation; (m,) float32.

    Sums of single ratings are reckoned in quarters of the scale, which is how far a rating is taken to vary about its
    item's mean; no item lies further than R/2 from the middle.
    """
    s, span = parameters.count_weight, facts.scale.span
    A, weights = (np.asarray(sums[name], dtype=np.float64) for name in ("errors", "weights"))
    if facts.unit is Unit.RATING:
        quarter = span / 4
        b = quarter * item_biases(A / quarter, weights / s, noise / quarter, noise / s, spread=1.0)
        return np.clip(b, -span / 2, span / 2).astype(np.float32)
    b = item_biases(A, weights / s, noise, noise / s)
    return np.clip(b, -span, span).astype(np.float32)


def shared_model(b: np.ndarray, parameters: BiasParameters, facts: Facts) -> Model:
    """What everybody may have: b, to which somebody new fits a level from their own ratings, as parties do.

    Items are ranked by level + b as it is: cut to the scale, many would be alike to whoever rates high.
    """
    form = replace(Linear.levels(b, facts.scale, parameters.shrinkage), order=b, personal=1.0)
    return Model("bias", facts.scale, facts.item_ids, form)


def specs(parameters: BiasParameters, context: Context) -> Sequence[Spec]:
    """One release of one answer; where items are divided, one of every silo.

    Forecast: everybody has |Ω|/n ratings, divided evenly.
    """
    facts, silos = context.facts, context.parties if context.setting is Setting.VERTICAL else 1
    s, deviation, hers = parameters.count_weight, facts.scale.span / 4, facts.ratings / facts.users / silos
    query: Query = Normalised(("errors", "weights"))
    weight = 1 / math.sqrt(max(hers, 1.0) * (deviation**2 + s**2))
    if context.unit is Unit.RATING:
        query, weight = Deviations(facts.scale, s), 1.0
    return [Spec("contribute", query, signal=facts.ratings / facts.items * weight * s)]


SIDES = Sides(BiasCoordinator, BiasParty, specs)
BIAS = Method(
    name="bias",
    title="Item and user biases",
    what=(
        "Every user sends, once, how far her ratings lie from her own mean, scaled to length one; from the sum it is "
        "estimated how far each item lies from its users' means. Where items are divided, each silo does so for its "
        "own. Users fit their own level at home. Where single ratings are protected, each is sent as it is, less the "
        "middle of the scale."
    ),
    parameters=BiasParameters,
    sides={
        Setting.HORIZONTAL: SIDES,
        Setting.DEVICE: SIDES,
        Setting.VERTICAL: Sides(VerticalBiasCoordinator, VerticalBiasParty, specs),
    },
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
)
