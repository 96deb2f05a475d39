"""`ials`: alternating least squares for implicit feedback (Hu, Koren and Volinsky 2008), by sums over users.

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

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.query import Query, Unbounded, UnboundedAnswer
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings
from tacit.federation import Federation, Floats, Party, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.kernels.outer_sums import outer_sums
from tacit.methods.context import Context
from tacit.methods.method import Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, Implicit, Model
from tacit.partition import Setting
from tacit.rng import derive

#: The largest norm of a user's factors; x·v is about 1, and norms stay far below.
REACH = 16.0
#: The standard deviation of items' factors at the start.
START = 0.1
#: Items whose factors are solved at a time.
AT_ONCE = 2_000


class ImplicitParameters(Parameters):
    """Parameters of `ials`.

    Parameters
    ----------
    factors : k
    sweeps : how often users' and items' factors are solved in turn
    confidence : α, how much more a taken item counts than any other
    regularization : λ
    """

    factors: int = Field(default=64, ge=1, le=256)
    sweeps: int = Field(default=10, ge=1, le=1000)
    confidence: float = Field(default=1.0, gt=0)
    regularization: float = Field(default=20.0, gt=0)

    @property
    def dimensions(self) -> dict[str, int]:
        k = self.factors
        return {"factors": k, "triangle": k * (k + 1) // 2}

    def form(self, items: np.ndarray) -> Implicit:
        """The model with these item factors."""
        return Implicit(items, self.confidence, self.regularization, binary=True)


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

    def over(self, ratings: Ratings, x: Array, present: Array | None = None) -> UnboundedAnswer:
        return Unbounded().over(lambda _state, _stream: self._sums(ratings, x, present))

    def _sums(self, ratings: Ratings, x: Array, present: Array | None) -> dict[str, Array]:
        lengths = np.linalg.norm(x, axis=1, keepdims=True)
        x = x * np.minimum(1.0, self.reach / np.maximum(lengths, 1e-300))
        if present is not None:
            x = x * present[:, None]
        gram, moment = outer_sums(ratings.indptr, ratings.items, x, ratings.n_items)
        whole = (x.T @ x)[np.triu_indices(x.shape[1])]
        blocks = {"gram": gram, "moment": moment, "whole": whole}
        return {name: block.astype(np.float32) for name, block in blocks.items()}


class ImplicitCoordinator(Coordinator):
    """V ← its least-squares solution given everybody's x, as often as there are sweeps."""

    parameters: ImplicitParameters
    method = "ials"

    def run(self, federation: Federation) -> Model:
        parameters, facts = self.parameters, self.facts
        stream = derive(facts.seed, "item factors")
        V = (START * stream.standard_normal((facts.items, parameters.factors))).astype(np.float32)
        for _ in federation.rounds(parameters.sweeps):
            total = federation.sum("sweep", items=V)
            V = solved(total["gram"], total["moment"], total["whole"], parameters)
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model(self.method, facts.scale, facts.item_ids, parameters.form(V))


class ImplicitParty(Party):
    """A silo, or a cohort of devices: users' factors are solved at home for the items' factors that it is sent."""

    parameters: ImplicitParameters

    @step(
        Kind.SUM,
        takes=Schema(items=Floats("items", "factors")),
        gives=Schema(gram=Floats("items", "triangle"), moment=Floats("items", "factors"), whole=Floats("triangle")),
        what="per item, sums of the factors, and of their products, of the users who took it, and over all users",
    )
    def sweep(self, items: np.ndarray) -> Release:
        return self.gate.sum(self.ratings, self._states(items).astype(np.float64))

    @step(
        Kind.PUBLIC,
        takes=Schema(items=Floats("items", "factors")),
        what="the word that the items' factors have arrived",
    )
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = items
        self.gate.store_private("users", self._states(items))
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        items = self._latest("items", shared)
        return Fitted(self.parameters.form(items), self._states(items) if shared else self.home["users"])

    def _states(self, items: np.ndarray) -> np.ndarray:
        """Every user's factors, from their own items alone."""
        return self.parameters.form(items).fold_in(self.ratings.indptr, self.ratings.items, self.ratings.values)


def solved(gram: np.ndarray, moment: np.ndarray, whole: np.ndarray, parameters: ImplicitParameters) -> np.ndarray:
    """V from the three sums, (m, k) float32; some items at a time."""
    k, alpha = parameters.factors, parameters.confidence
    a, b = np.triu_indices(k)

    def symmetric(triangles: np.ndarray) -> np.ndarray:
        full = np.empty((len(triangles), k, k))
        full[:, a, b] = full[:, b, a] = triangles
        return full

    common = symmetric(whole[None])[0] + parameters.regularization * np.eye(k)
    V = np.empty((len(moment), k), dtype=np.float32)
    for first in range(0, len(V), AT_ONCE):
        part = slice(first, first + AT_ONCE)
        right = (1 + alpha) * moment[part, :, None].astype(np.float64)
        V[part] = np.linalg.solve(common + alpha * symmetric(gram[part]), right)[:, :, 0]
    return V


def specs(parameters: ImplicitParameters, context: Context) -> Sequence[Spec]:
    """One sum per sweep, without noise."""
    return [Spec("sweep", TakenSums(REACH), releases=parameters.sweeps)]


SIDES = Sides(ImplicitCoordinator, ImplicitParty, specs)
IALS = Method(
    name="ials",
    title="Factors of implicit feedback",
    what="Alternating least squares in which every pair of user and item counts, by sums over users; users stay home.",
    parameters=ImplicitParameters,
    sides={Setting.HORIZONTAL: SIDES, Setting.DEVICE: SIDES},
    guaranteed=False,
)
