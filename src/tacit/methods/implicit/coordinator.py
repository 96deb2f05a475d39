"""`implicit` at the coordinator: descent on item factors along each epoch's gradient (Algorithm 2)."""

import math
from dataclasses import dataclass

import numpy as np

from tacit.boundary.cell_reports import CellReports, estimated, spread
from tacit.boundary.least_squares import unpacked
from tacit.federation import Federation
from tacit.methods.factors import linear_decay
from tacit.methods.implicit.parameters import ImplicitParameters
from tacit.methods.implicit.party import form
from tacit.methods.method import Coordinator
from tacit.model import Model
from tacit.rng import derive

#: How far the noise of all epochs may carry an entry of V, whose products with users' factors are about 1, and the last
#: epoch's rate as a part of the first one's. Found on synthetic worlds.
DRIFT, LAST = 0.15, 0.02


@dataclass(frozen=True, eq=False)
class Gradient:
    """Σ_u f(u, ·)/n, with the sign that V moves along (eqs. 5 and 9).

    Attributes
    ----------
    mean : (m, F) float64, of declared users
    noise : the standard deviation of a cell
    curvature : the largest that an item's loss can have, over 2
    """

    mean: np.ndarray
    noise: float
    curvature: float


class ImplicitCoordinator(Coordinator):
    """V ← V − γ·(−2·mean + 2λ/n·V), `steps` times an epoch."""

    parameters: ImplicitParameters

    def run(self, federation: Federation) -> Model:
        parameters, facts = self.parameters, self.facts
        stream = derive(facts.seed, "item factors")
        V = parameters.start(facts) * stream.standard_normal((facts.items, parameters.factors))
        for t in federation.rounds(parameters.rounds):
            sent = V.astype(np.float32)
            found = self._summed(federation, sent) if parameters.reports is None else self._reported(federation, sent)
            V = descended(V, found.mean, self.decay, self._rate(found, t), parameters.steps)
            federation.show(items=V.astype(np.float32))
        last = V.astype(np.float32)
        federation.ask("finish", items=last)
        return Model("implicit", facts.scale, facts.item_ids, form(parameters, last))

    @property
    def decay(self) -> float:
        """λ/n: the mean of eq. (6) over users."""
        return self.parameters.regularization / self.facts.users

    def _summed(self, federation: Federation, V: np.ndarray) -> Gradient:
        """Σ_u f = items − V·whole: what users add to items that they did not take is in `whole`."""
        n, total = self.facts.users, federation.sum("gradients", items=V)
        whole = unpacked(total["whole"][None].astype(np.float64))[0]
        curvature = max(float(np.linalg.eigvalsh(whole)[-1]), total.noise) / n
        return Gradient((total["items"] - V @ whole) / n, total.noise / n, (1 + self.parameters.confidence) * curvature)

    def _reported(self, federation: Federation, V: np.ndarray) -> Gradient:
        """The mean of what devices reported of their gradients, clipped to [−1, 1]; then curvature is about 1."""
        shape, k, z = V.shape, self.parameters.reports or 1, federation.noise("report")
        query = CellReports((shape[0], shape[1]), self.parameters.confidence, k, self.parameters.mechanism)
        randomizer = query.randomizer(1 / z if z else math.inf)
        reports = federation.reports("report", items=V)["report"]
        noise = spread(query.cells, randomizer, self.facts.users * k)
        return Gradient(estimated(reports, query.shape, randomizer), noise, 1.0)

    def _rate(self, found: Gradient, t: int) -> float:
        """γ as given; or so that an epoch's steps are one of 1/curvature, or what noise allows, and then falling."""
        parameters, T = self.parameters, self.parameters.rounds
        if parameters.rate is not None:
            return parameters.rate
        whole = 1 / max(found.curvature, 1e-12)
        if found.noise > 0:
            whole = min(whole, DRIFT / (found.noise * math.sqrt(T))) * float(linear_decay(T, LAST)[t])
        return whole / (2 * parameters.steps)


def descended(V: np.ndarray, mean: np.ndarray, decay: float, rate: float, steps: int) -> np.ndarray:
    """V after steps along −2·mean + 2·λ/n·V, eqs. (6) and (7) over n; all reuse the one gradient of their epoch."""
    for _ in range(steps):
        V = V - rate * 2 * (decay * V - mean)
    return V
