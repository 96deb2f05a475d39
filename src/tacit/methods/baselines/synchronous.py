"""`synsgd`: silos send one noisy item gradient at every step, and the coordinator descends (P0, §5.3: HFL-synSGD).

Users' factors are improved at home between the steps. Since a contribution is linear, it is a *sum*: under `plain`
every silo adds its own noise, under an aggregation that hides single contributions the sum carries one.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.data.public import PublicFacts
from tacit.data.ratings import Feedback
from tacit.federation import Facts, Federation, Floats, Schema, Whole, step
from tacit.guarantee import Unit
from tacit.kernels.embed import descend_and_embed
from tacit.methods.base import Method, Sides
from tacit.methods.plan import Asked, Situation
from tacit.methods.sgdmf.home import ITEMS, SiloAtHome
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.rates import Rates
from tacit.methods.sgdmf.schedule import horizontal
from tacit.methods.start import start_factors
from tacit.model import Model
from tacit.partition import Setting


class SynchronousParameters(SGDMFParameters):
    """Parameters of `synsgd`: those of SGDMF with one local step and, by default, 1,000 rounds."""

    method: ClassVar[str] = "synsgd"

    rounds: int = Field(default=1000, ge=1, le=100_000)
    local_steps: int = Field(default=1, ge=1, le=1)
    users: Literal["together", "pretrained"] | None = None

    def resolved(self, unit: Unit | None, situation: Situation) -> SynchronousParameters:
        """Users' factors are fitted "together" unless told otherwise."""
        told = self if self.users is not None else self.model_copy(update={"users": "together"})
        return super(SynchronousParameters, told).resolved(unit, situation)


class SynchronousCoordinator:
    """V ← Π(V − γ_t/(η·|Ω|) Σ_k g̃_V^(k)), T times."""

    def __init__(self, parameters: SynchronousParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        T, span = self.parameters.rounds, self.facts.scale.span
        V = start_factors(self.facts, self.facts.items, self.parameters.factors, "items")
        if self.parameters.users == "pretrained":
            federation.ask("pretrain", items=V)
        for t in federation.rounds(T):
            total = federation.sum("contribute", items=V, t=t)
            rates = Rates(self.parameters, self.facts, T, total.noise)
            V = descend_and_embed(V, total["items"].astype(np.float32), rates.per_rating(t), span, rates.decay(t))
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model(self.parameters.method, self.facts.scale, self.facts.item_ids, item_factors=V)


class SynchronousSilo(SiloAtHome):
    """g_V^(k) over a sample of users, at their factors as they are."""

    parameters: SynchronousParameters

    @step(
        Kind.SUM,
        takes=Schema(items=Floats("items", "factors"), t=Whole(0, 100_000)),
        gives=ITEMS,
        what="the silo's gradient of the item factors, from a sample of its users",
    )
    def contribute(self, items: np.ndarray, t: int) -> Release:
        V = self.parameters.project(items, self.facts.scale.span)
        together = self.parameters.users == "together"
        U = self._moved(V, self.gate.stream("together")) if together else self.home["users"]
        at = {"users": U, "items": V}
        query = self.parameters.gradient(self.ratings, self.facts, ("items",), users_are_public=False, at=at)
        return self.gate.sum(query)


def schedule(parameters: SynchronousParameters, facts: PublicFacts, unit: Unit, situation: Situation) -> Asked:
    """T releases of one answer; otherwise as in horizontal SGDMF."""
    return horizontal(parameters, facts, unit, "contribute")


SYNCHRONOUS = Method(
    name="synsgd",
    title="Noisy gradients, averaged at every step",
    what=(
        "Every silo sends one noisy gradient of the item factors at every step, and the coordinator descends. "
        "It is SGDMF without local steps: more messages, and users' factors follow at home."
    ),
    parameters=SynchronousParameters,
    sides={Setting.HORIZONTAL: Sides(SynchronousCoordinator, SynchronousSilo)},
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
    schedule=schedule,
)
