"""`als` where feedback is implicit: weighted least squares (Hu, Koren and Volinsky 2008), by sums over users.

Every pair of a user and an item counts: taken ones as 1 with confidence 1 + α, all others as 0 with confidence 1.

    Σ_ui c_ui·(p_ui − x_u·v_i)² + λ·(Σ_u ‖x_u‖² + Σ_i ‖v_i‖²)

For fixed V each user's x is a ridge regression at home; the whole catalogue enters by VᵀV alone. For fixed X each
item's v is one too, and needs three sums over users, in which the whole of the users enters by XᵀX alone:

    v_i = (XᵀX + α·Σ_{u took i} x_u·x_uᵀ + λI)⁻¹ (1 + α)·Σ_{u took i} x_u

So silos and devices reach the central model, and users' factors stay at home. What counts is that an item was taken,
not how often or how high it was rated. Each x is cut to a public length, so that hidden sums have a bound.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.boundary import Release
from tacit.boundary.query import Query, Unbounded, UnboundedAnswer
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.boundary.wire import Array
from tacit.errors import PrivacyRefused
from tacit.federation import Federation, Floats, Party, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.kernels.grams import gram_solutions, gram_sums
from tacit.methods.als.parameters import EitherParameters
from tacit.methods.als.statistics import ByItem
from tacit.methods.context import Context
from tacit.methods.method import Coordinator, Sides
from tacit.model import Fitted, Implicit, Model
from tacit.rng import derive

#: The largest norm of a user's factors; x·v is about 1, and norms stay far below.
REACH = 16.0
#: The standard deviation of items' factors at the start.
START = 0.1


@dataclass(frozen=True)
class TakenSums(Query):
    """Per item, Σ x·xᵀ as "gram" and Σ x as "moment" over those who took it, and Σ x·xᵀ over all users as "whole".

    Norms of x are cut to `reach`. It has no sensitivity: a user adds to as many items as they took.
    """

    reach: float

    @property
    def largest(self) -> float:
        return max(self.reach, self.reach**2)

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, by_item: ByItem, x: Array, present: Array | None = None) -> UnboundedAnswer:
        return UnboundedAnswer(Unbounded(), lambda *_: self._sums(by_item, x, present))

    def _sums(self, by_item: ByItem, x: Array, present: Array | None) -> dict[str, Array]:
        x = x.astype(np.float64)
        x *= np.minimum(1.0, self.reach / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-300))
        if present is not None:
            x *= present[:, None]
        ones = np.ones(len(by_item.users), dtype=np.float32)
        gram, moment = gram_sums(by_item.indptr, by_item.users, ones, ones, x)
        whole = (x.T @ x)[np.triu_indices(x.shape[1])]
        return {"gram": gram, "moment": moment, "whole": whole.astype(np.float32)}


class ImplicitCoordinator(Coordinator):
    """V ← its least-squares solution given everybody's x, as often as there are sweeps."""

    parameters: EitherParameters

    def run(self, federation: Federation) -> Model:
        parameters, facts = self.parameters, self.facts
        stream = derive(facts.seed, "item factors")
        V = (START * stream.standard_normal((facts.items, parameters.factors or 1))).astype(np.float32)
        for _ in federation.rounds(parameters.sweeps):
            total = federation.sum("sweep", items=V)
            V = solved(total["gram"], total["moment"], total["whole"], parameters)
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model("als", facts.scale, facts.item_ids, form(parameters, V))


class ImplicitParty(Party):
    """A silo, or a cohort of devices: users' factors are solved at home for the items' factors that it is sent."""

    parameters: EitherParameters

    @cached_property
    def _by_item(self) -> ByItem:
        return ByItem.of(self.ratings)

    @step(
        Kind.SUM,
        takes=Schema(items=Floats("items", "rank")),
        gives=Schema(gram=Floats("items", "triangle"), moment=Floats("items", "rank"), whole=Floats("triangle")),
        what="per item, sums of the factors, and of their products, of the users who took it, and over all users",
    )
    def sweep(self, items: np.ndarray) -> Release:
        return self.gate.sum(self._by_item, self._states(items))

    @step(
        Kind.PUBLIC,
        takes=Schema(items=Floats("items", "rank")),
        what="the word that the items' factors have arrived",
    )
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = items
        self.gate.store_private("users", self._states(items))
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        items = self._latest("items", shared)
        return Fitted(form(self.parameters, items), self._states(items) if shared else self.home["users"])

    def _states(self, items: np.ndarray) -> np.ndarray:
        """Every user's factors, from their own items alone."""
        return form(self.parameters, items).fold_in(self.ratings.indptr, self.ratings.items, self.ratings.values)


def form(parameters: EitherParameters, items: np.ndarray) -> Implicit:
    """The model with these item factors."""
    return Implicit(items, parameters.confidence, parameters.regularization, binary=True)


def solved(gram: np.ndarray, moment: np.ndarray, whole: np.ndarray, parameters: EitherParameters) -> np.ndarray:
    """V from the three sums, (m, k) float32."""
    k, alpha = moment.shape[1], parameters.confidence
    a, b = np.triu_indices(k)
    common = parameters.regularization * np.eye(k)
    common[a, b] = common[b, a] = common[a, b] + whole
    return gram_solutions(gram, (1 + alpha) * moment, alpha, common)


def specs(parameters: EitherParameters, context: Context) -> Sequence[Spec]:
    """One sum per sweep, without noise; a user adds to as many items as they took, so [privacy] is refused."""
    if context.target is not None:
        raise PrivacyRefused(
            'For implicit feedback, what a user adds to the sums of "als" has no bound, so [privacy] cannot be kept; '
            'choose "auto", which learns from it with a guarantee, or leave [privacy] out.'
        )
    return [Spec("sweep", TakenSums(REACH), releases=parameters.sweeps)]


SIDES = Sides(ImplicitCoordinator, ImplicitParty, specs)
