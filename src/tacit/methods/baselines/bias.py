"""`bias`: noisy item means from one sum, and user biases fitted at home. The floor of every private model.

Each user centres her ratings by her own mean and sends, for each of her items, (w·e, w·s), scaled so that her whole
contribution has norm 1 (an empty record sends 0). From the noised sums alone, the coordinator estimates how much
weight each item got and how far its ratings lie from their users' means, by empirical Bayes; every user then fits her
own level at home.

    r̂_uj = level_u + b_j,   b_j = τ²·S_j·(A_j − S_j·b̄)/(τ²·S_j² + v_j) + b̄
"""

from __future__ import annotations

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.bounded import NormalisedSum
from tacit.boundary.release import Kind
from tacit.data.public import PublicFacts
from tacit.data.ratings import Feedback
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.methods.base import Method, Parameters, Sides
from tacit.methods.baselines.shrink import item_biases
from tacit.methods.plan import Noisy, Situation
from tacit.model import Model
from tacit.model.predictor import Biases
from tacit.partition import Setting

#: Ratings that a user is assumed to have, for the forecast only.
TYPICAL = 50


class BiasParameters(Parameters):
    """Parameters of `bias`.

    Parameters
    ----------
    count_weight : s, how much of a user's contribution tells that she rated an item, beside how
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
            s = self.parameters.count_weight
            deviations = item_biases(total["errors"], total["weights"] / s, total.noise, total.noise / s)
            b = np.clip(deviations, -self.facts.scale.span, self.facts.scale.span).astype(np.float32)
            federation.show(biases=b)
        federation.ask("finish", biases=b)
        scores = self.facts.scale.low + self.facts.scale.span / 2 + b
        return Model("bias", self.facts.scale, self.facts.item_ids, item_scores=scores.astype(np.float32))


class BiasParty(Party):
    """A silo, or a cohort of devices: contributes once, then fits its users' levels at home."""

    parameters: BiasParameters

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(errors=Floats("items"), weights=Floats("items")),
        what="per item, the sum of its users' weighted deviations from their own means, and of their weights",
    )
    def contribute(self) -> Release:
        ratings = self.ratings
        mine = self._levels(np.zeros(self.member.items, dtype=np.float32))
        errors = ratings.values - mine[ratings.users]
        query = NormalisedSum(
            ratings.indptr,
            ratings.items,
            {"errors": errors, "weights": np.full(ratings.n_ratings, self.parameters.count_weight, dtype=np.float32)},
            self.member.items,
            self.present,
        )
        here = max(1, self.member.devices) if self.present is None else int(np.count_nonzero(self.present))
        return self.gate.sum(query, contributors=here, present=self.present)

    @step(Kind.PUBLIC, takes=Schema(biases=Floats("items")), what="the word that the item biases have arrived")
    def finish(self, biases: np.ndarray) -> Release:
        self.home["biases"] = biases.copy()
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Biases:
        b = self._latest("biases", shared)
        return Biases(self._levels(b), b, self.facts.scale.low, self.facts.scale.high)

    def _levels(self, biases: np.ndarray) -> np.ndarray:
        """Each user's own level: the mean of what her ratings leave over the biases, shrunk; (n,) float32."""
        ratings, scale, k = self.ratings, self.facts.scale, self.parameters.shrinkage
        clipped = np.clip(ratings.values, scale.low, scale.high)
        sums = np.bincount(ratings.users, weights=clipped - biases[ratings.items], minlength=self.member.users)
        middle = scale.low + scale.span / 2
        with np.errstate(invalid="ignore"):
            levels = (sums + k * middle) / (ratings.counts + k)
        return np.where(ratings.counts + k > 0, levels, middle).astype(np.float32)


def schedule(parameters: BiasParameters, facts: PublicFacts, unit: Unit, situation: Situation) -> tuple[Noisy, ...]:
    """One release of one answer."""
    sensitivity = NormalisedSum.bound(unit, Relation.ZERO_OUT)
    deviation = facts.scale.span / 4
    weight = 1 / np.sqrt(TYPICAL * (deviation**2 + parameters.count_weight**2))
    signal = facts.users * TYPICAL / facts.items * weight * parameters.count_weight
    return (Noisy("contribute", 1, 1, 1.0, sensitivity, 2 * facts.items, float(signal)),)


SIDES = Sides(BiasCoordinator, BiasParty)
BIAS = Method(
    name="bias",
    title="Item and user biases",
    what=(
        "Every user sends, once, how far her ratings lie from her own mean, scaled to length one; from the sum the "
        "coordinator estimates how far each item lies from its users' means. Users fit their own level at home."
    ),
    parameters=BiasParameters,
    sides={Setting.HORIZONTAL: SIDES, Setting.DEVICE: SIDES},
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
    schedule=schedule,
)
