"""`dplcf`: item similarities from interactions that every device flips at random before they leave (P3's comparison).

Gao, Huang, Lin and Jin 2020 ("DPLCF: Differentially Private Local Collaborative Filtering", SIGIR). The coordinator
counts items together, corrected for the flips, and sends similarities back; each device recommends at home what is most
similar to its own items. Its ε is of one interaction: over m items a whole record has m·ε (see `interaction_bits`).
"""

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.interaction_bits import InteractionBits, co_occurrences
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.data.ratings import Feedback
from tacit.federation import Federation, Floats, Party, Schema, step
from tacit.federation.messages import Ints
from tacit.guarantee import Unit
from tacit.methods.context import Context
from tacit.methods.method import Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, ItemItem, Model
from tacit.partition import Setting

SHARED = Schema(weights=Floats("items", "items"), base=Floats("items"))
#: The part of an item's popularity that decides between items of equal similarity.
TIES = 1e-6


class DPLCFParameters(Parameters):
    """Parameters of `dplcf`.

    Parameters
    ----------
    neighbours : k, how many items each item is compared with
    """

    neighbours: int = Field(default=50, ge=1, le=100_000)


class DPLCFCoordinator(Coordinator):
    """Cosines of items: c_ij/√(c_i·c_j) of corrected counts, the k largest of each item."""

    parameters: DPLCFParameters

    def run(self, federation: Federation) -> Model:
        facts, m, z = self.facts, self.facts.items, federation.noise("interactions")
        epsilon = 1 / z if z else math.inf
        for _ in federation.rounds(1):
            bits = federation.reports("interactions")["bits"]
            shared = self.similar(co_occurrences(bits, m, epsilon), len(bits), epsilon)
            federation.show(**shared)
        federation.ask("finish", to=None, **shared)
        return Model("dplcf", facts.scale, facts.item_ids, form(**shared))

    def similar(self, counts: np.ndarray, devices: int, epsilon: float) -> dict[str, np.ndarray]:
        """Weights and base; a count below the standard deviation of its noise, √(n·pq)/(p − q), counts as that."""
        noise = 0.0 if epsilon == math.inf else math.sqrt(devices) / (2 * math.sinh(epsilon / 2))
        single = np.maximum(np.diagonal(counts), max(1.0, noise)).astype(np.float32)
        weights = np.maximum(counts, 0) / np.sqrt(single[:, None] * single)
        np.fill_diagonal(weights, 0)
        k = min(self.parameters.neighbours, len(weights))
        least = np.partition(weights, len(weights) - k, axis=0)[len(weights) - k]
        weights[weights < least] = 0
        return {"weights": weights.astype(np.float32), "base": (TIES * single / single.max()).astype(np.float32)}


class DPLCFCohort(Party):
    """Devices that report their bits once, and recommend from their own true history."""

    @step(
        Kind.REPORT,
        takes=Schema(),
        gives=Schema(bits=Ints("any", "item_words")),
        what="for every item a bit that says whether it was taken, each flipped at random",
    )
    def interactions(self) -> Release:
        return self.gate.report(self.ratings)

    @step(Kind.PUBLIC, takes=SHARED, what="the word that similarities have arrived")
    def finish(self, weights: np.ndarray, base: np.ndarray) -> Release:
        self.home.update(weights=weights, base=base)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        similar = form(self._latest("weights", shared), self._latest("base", shared))
        ratings = self.ratings
        return Fitted(similar, similar.fold_in(ratings.indptr, ratings.items, ratings.values))


def form(weights: np.ndarray, base: np.ndarray) -> ItemItem:
    """The model with these similarities, of all items."""
    return ItemItem(np.arange(1, len(base) + 1, dtype=np.float32), weights, base)


def specs(parameters: DPLCFParameters, context: Context) -> Sequence[Spec]:
    """One report of m bits: ε of one bit per rating, m of them per user.

    Forecast: how often an item was taken, in units in which its noise is √n/ε₀.
    """
    query = InteractionBits(context.facts.items, context.unit or Unit.RATING)
    return [Spec("interactions", query, answers=query.reports, signal=context.facts.ratings / context.facts.items)]


DPLCF = Method(
    name="dplcf",
    title="Item similarities from randomised interactions",
    what=(
        "Every device says of every item whether it took it, each answer flipped at random. The coordinator counts "
        "items together, corrected for the flips, and sends their similarities; devices recommend at home what is "
        "similar to their own items. Each single interaction is protected, and a user's interactions together are not."
    ),
    parameters=DPLCFParameters,
    sides={Setting.DEVICE: Sides(DPLCFCoordinator, DPLCFCohort, specs)},
    feedback=frozenset({Feedback.IMPLICIT, Feedback.COUNT}),
)
