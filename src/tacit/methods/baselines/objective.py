"""`objective-perturbation`: one noisy convex problem per item (Hua, Xia and Zhong 2015, as P0 compares with it).

An objective over both factors is not convex, and descent does not solve one exactly, so noise in it would protect
nobody. Here users' factors are fitted at home against public start factors and then fixed; what remains is a
least-squares problem for every item, convex, in a ball, and solved exactly with the noise inside
(`tacit.boundary.objective_perturbation`, with the proof). Privacy makes λ large, so factors are drawn to the public
start: drawn to 0 they would predict the bottom of the scale.
"""

import math
from collections.abc import Sequence
from typing import Self

import numpy as np
from pydantic import Field

from tacit.boundary import Gate, Release
from tacit.boundary.objective_perturbation import Objectives
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.kernels.embed import embed
from tacit.methods.context import Context
from tacit.methods.factors import FactorParameters, fitted_users, nonnegative, start_factors
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.model import Fitted, Model
from tacit.partition import Setting, Share

ITEMS = Schema(items=Floats("items", "factors"))


class ObjectiveParameters(FactorParameters):
    """Parameters of `objective-perturbation`.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    trim : θ, ratings used of a user; 10 with privacy, else all
    pretraining : steps of each user on their own factors, before the items' problems and again after them
    regularization : the least weight λ of an item's start factors; privacy asks for more
    """

    trim: int | None = Field(default=None, ge=1, le=1_000_000)
    pretraining: int = Field(default=30, ge=1, le=10_000)
    regularization: float = Field(default=1.0, gt=0)

    def resolved(self, context: Context) -> Self:
        return self if context.unit is None or self.trim is not None else self.model_copy(update={"trim": 10})


class ObjectiveCoordinator(Coordinator):
    """V ← Π(Σ_k (n_k/n) V^(k)), once."""

    def run(self, federation: Federation) -> Model:
        V = start_factors(self.facts, self.facts.items, self.parameters.factors, "items")
        federation.ask("pretrain", items=V)
        for _ in federation.rounds(1):
            V = embed(federation.mean("solve", items=V), self.facts.scale.span)
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model("objective-perturbation", self.facts.scale, self.facts.item_ids, nonnegative(self.facts, V))


class ObjectiveSilo(Party):
    """Fits its users at home, solves its items' problems once, and fits its users again to what all silos found."""

    parameters: ObjectiveParameters

    def __init__(self, share: Share, parameters: ObjectiveParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        start = start_factors(facts, self.member.users, parameters.factors, "users", share.name)
        self.gate.store_private("users", self.home.get("users", start))

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that users' factors were fitted at home")
    def pretrain(self, items: np.ndarray) -> Release:
        self.gate.store_private("users", self._fitted(items))
        return self.gate.public("done")

    @step(
        Kind.CHAIN,
        takes=ITEMS,
        gives=ITEMS,
        what="for each item, the factors that fit the party's ratings best once noise was added to the question",
    )
    def solve(self, items: np.ndarray) -> Release:
        return self.gate.chain(self.ratings, self.home["users"], items)

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that the final item factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.gate.store_private("users", self._fitted(items))
        self.home["items"] = embed(items, self.facts.scale.span)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted(nonnegative(self.facts, self._latest("items", shared)), self.home["users"])

    def _fitted(self, items: np.ndarray) -> np.ndarray:
        V, rows = embed(items, self.facts.scale.span), np.arange(self.member.users)
        return fitted_users(self.ratings, self.home["users"], V, rows, self.parameters.pretraining)


def specs(parameters: ObjectiveParameters, context: Context) -> Sequence[Spec]:
    """One release, in which a user's θ ratings are in θ objectives.

    The signal is a linear term's: ratings used per item, times twice an error of R/4, times a factor's entry as they
    start.
    """
    facts, span = context.facts, context.facts.scale.span
    query = Objectives(facts.scale, parameters.trim, parameters.regularization)
    theta = 1 if parameters.trim is None else query.theta
    kept = min(theta, facts.ratings / facts.users) * facts.users / facts.items
    signal = kept * 2 * span / 4 * math.sqrt(0.6 * span / parameters.factors)
    return [Spec("solve", query, answers=theta, mean=True, signal=signal)]


OBJECTIVE = Method(
    name="objective-perturbation",
    title="Objective perturbation",
    what=(
        "Each silo fits its users at home and then solves one least-squares problem per item, exactly and once, with "
        "noise added to the problem instead of to the answer."
    ),
    parameters=ObjectiveParameters,
    sides={Setting.HORIZONTAL: Sides(ObjectiveCoordinator, ObjectiveSilo, specs)},
    feedback=RATED,
)
