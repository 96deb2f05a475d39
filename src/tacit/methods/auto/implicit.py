"""`auto` where it is only known what users took: counts of the whole catalogue, and what the ranking needs beside them.

P(j | u) ∝ d_j·exp(x_j·θ_u), d from noised counts, x public features, θ at home; and pairs of popular items where they
outweigh their noise and win the vote (`choices`). It ranks; there are no ratings to predict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.item_counts import RatingCounts
from tacit.boundary.query import Query
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Federation, Floats, Schema, step
from tacit.guarantee import Unit
from tacit.methods.auto.choices import Choices, choice_specs, choices_of, pair_factors
from tacit.methods.auto.parameters import AutoParameters
from tacit.methods.context import Context
from tacit.methods.counts import COMPONENTS, Measured, posterior_counts
from tacit.methods.method import Coordinator, Sides
from tacit.model import Fitted, Model


class ImplicitCoordinator(Coordinator):
    """Counts, then pairs of the items that these put first, and a vote."""

    parameters: AutoParameters

    def run(self, federation: Federation) -> Model:
        pairs = np.zeros((self.parameters.head or 0, 0), dtype=np.float32)
        for _ in federation.rounds(1):
            total = federation.sum("counts")
            measured = Measured(total["counts"].astype(np.float64), np.ones(self.facts.items), total.noise)
            popularity = posterior_counts([measured], self.facts.components(COMPONENTS))[1].astype(np.float32)
            if "together" in self.parameters.shares:
                pairs = pair_factors(federation, popularity)
        federation.ask("finish", None, popularity=popularity, pairs=pairs)
        return Model("auto", self.facts.scale, self.facts.item_ids, choices_of(self.facts, popularity, pairs))


class ImplicitParty(Choices):
    """A silo, or a cohort of devices with one row each."""

    parameters: AutoParameters

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(counts=Floats("items")),
        what="how many users took each item; a user counts the less the more they took, unless the unit is a rating",
    )
    def counts(self) -> Release:
        if self.facts.unit is Unit.RATING:
            return self.gate.sum(self.ratings)
        return self.gate.sum(self.ratings, {"counts": np.ones(self.ratings.n_ratings)})

    @step(
        Kind.PUBLIC,
        takes=Schema(popularity=Floats("items"), pairs=Floats("head", "any")),
        what="the word that the shared model has arrived",
    )
    def finish(self, popularity: np.ndarray, pairs: np.ndarray) -> Release:
        self.home.update(popularity=popularity, pairs=pairs)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        form = choices_of(self.facts, *(self._latest(name, shared) for name in ("popularity", "pairs")))
        return Fitted(form, form.fold_in(self.ratings.indptr, self.ratings.items, self.ratings.values))


def specs(parameters: AutoParameters, context: Context) -> Sequence[Spec]:
    """Counts once, and what `choice_specs` adds; forecasts are for |Ω|/n items of each user.

    Guarantee
    ---------
    Counts are over the whole public catalogue. A user's weights 1/√(how many they took) have norm 1 together
    (`Normalised`), and a user without items adds 0. Where one rating is the unit each adds 1 to one cell
    (`RatingCounts`), and nothing else is released: θ is found at home.
    """
    facts = context.facts
    each = max(facts.ratings / facts.users, 1.0)
    query: Query = RatingCounts() if context.unit is Unit.RATING else Normalised(("counts",))
    signal = facts.ratings / facts.items / (1 if context.unit is Unit.RATING else math.sqrt(each))
    counts = Spec("counts", query, share=parameters.shares["means"], signal=signal)
    return [counts, *choice_specs(parameters, context)]


SIDES = Sides(ImplicitCoordinator, ImplicitParty, specs)
