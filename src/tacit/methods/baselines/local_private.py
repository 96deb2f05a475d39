"""`local-private`: every silo alone, with the noise that publishing its factors needs (P0, §4.3: local-only).

Each silo makes T·T' noisy steps on its own ratings and releases its own factors, once. It is SGDMF without cooperation,
at the same noise: the difference is what cooperation is worth. (`local` releases nothing and needs no noise.)
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Federation, Floats, Integer, Party, Schema, step
from tacit.methods.context import Context
from tacit.methods.factors import nonnegative, start_factors
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.methods.sgdmf.parameters import StepParameters
from tacit.methods.sgdmf.update_rule import Steps, typical_signal
from tacit.model import Fitted, Model
from tacit.partition import Setting

BOTH = ("users", "items")


class AloneParameters(StepParameters):
    """Parameters of `local-private`: those of vertical SGDMF, without final steps.

    Parameters
    ----------
    local_steps : T'; a silo makes T·T' steps by itself
    """

    method: ClassVar[str] = "local-private"

    local_steps: int = Field(default=10, ge=1, le=10_000)

    @property
    def steps(self) -> int:
        """T·T'."""
        return self.rounds * self.local_steps


class AloneCoordinator(Coordinator):
    """Collects what every silo learned by itself; no silo learns from another."""

    def run(self, federation: Federation) -> Model:
        V = np.zeros((self.facts.items, self.parameters.factors), dtype=np.float32)
        for t in federation.rounds(1):
            for party, answer in federation.ask("train", t=t).items():
                V[self.facts.member(party).columns] = answer["items"]
            federation.show()
        return Model(self.parameters.method, self.facts.scale, self.facts.item_ids, nonnegative(self.facts, V))


class AloneSilo(Party):
    """U^(k) ← Π(U^(k) − γ_t g_U),  V_k ← Π(V_k − γ_t g_V), T·T' times, on the silo's own ratings."""

    parameters: AloneParameters

    @step(
        Kind.CHAIN,
        takes=Schema(t=Integer(0, 0)),
        gives=Schema(users=Floats("users", "factors"), items=Floats("items", "factors")),
        what="the factors of its users and items that the silo found by itself",
    )
    def train(self, t: int) -> Release:
        parameters = self.parameters
        descend = Steps(parameters, self.facts, parameters.steps, self.gate.noise)

        def update(state: dict[str, Any], gradient: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            return {block: descend(state[block], gradient[block], step) for block in BOTH}

        sizes = {"users": self.member.users, "items": self.member.items}
        state = {block: start_factors(self.facts, sizes[block], parameters.factors, block, self.name) for block in BOTH}
        return self.gate.chain(self.ratings, update=update, state=state, release=BOTH)

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted(nonnegative(self.facts, self.home["items"]), self.home["users"])


def specs(parameters: AloneParameters, context: Context) -> Sequence[Spec]:
    """One release of T·T' answers; a user is in all silos, a rating in one."""
    query = parameters.rule.query(parameters, context, BOTH, users_are_public=True)
    signal = typical_signal(parameters, context.facts, context.facts.users, context.parties) / context.parties
    return [Spec("train", query, answers=parameters.steps, signal=signal)]


ALONE = Method(
    name="local-private",
    title="Everybody alone, with noise",
    what="Each silo makes noisy steps on its own ratings and releases its own factors; no silo learns from another.",
    parameters=AloneParameters,
    sides={Setting.VERTICAL: Sides(AloneCoordinator, AloneSilo, specs)},
    feedback=RATED,
)
