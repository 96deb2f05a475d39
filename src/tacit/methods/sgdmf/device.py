"""SGDMF where every user is a party (P0, §6: LFL-SGDMF).

Guarantee
---------
Only what a device adds to a sum leaves it: the gradient of *one* of its ratings, fresh in each round, of norm at most
2R^1.5, or of its whole *record*, clipped to R^1.5. Its factors u may depend on its own ratings and on item factors that
were released. So emptying a record takes away at most that much in each of T rounds, and T plain answers compose: that
one rating of many was drawn amplifies nothing per user, since all of them are the user's, and who takes part is seen.
Per rating a changed one changes u, and with it everything that its device adds: the replace case of the unit user.

Under a secure sum all devices share one noise. Under `plain` each adds a whole one, which is local privacy. Without
privacy it is the same method at no noise, and a device may send the gradient of *all* its ratings as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.boundary import Release
from tacit.boundary.clipped_gradients import EmbeddingGradient
from tacit.boundary.clipped_records import RecordGradient
from tacit.boundary.query import Blocks, Query, Unbounded, UnboundedAnswer
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.boundary.wire import Array
from tacit.data.ratings import Ratings, Scale
from tacit.federation import Facts, Federation, Floats, Integer, Schema, Total, step
from tacit.guarantee import Relation, Unit
from tacit.kernels.embed import descend_and_embed, embed
from tacit.kernels.squared_error import factor_gradients
from tacit.kernels.users import fold_in
from tacit.methods.context import Context
from tacit.methods.factors import linear_decay, nonnegative
from tacit.methods.method import Coordinator
from tacit.methods.sgdmf.biased import StartsFromBiases, level_user, released_items, with_start
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.update_rule import BIASED_DRIFT, typical_signal
from tacit.model import Fitted, Model
from tacit.rng import derive

ITEMS = Schema(items=Floats("items", "factors"))

#: Rows of the start's item factors have about this part of the largest length, √R.
LENGTH = 0.7
#: The start's entries lie within this part of their common mean.
SPREAD = 0.3
#: How far the noise of all rounds may carry an entry of an item factor, in parts of √(R/p).
DRIFT = 0.3
#: A round's step for the mean rating, in parts of what curvature allows; for whole records, which count more, less.
STEP = {"all": 4.0, "rating": 1.0, "record": 0.3}
#: The last step as a part of the first, where no noise asks for steps that are all alike.
LAST = 0.02
#: How much of R a device's factors are drawn to the middle of the scale, as if by so many ratings.
PRIOR = 0.3


class DeviceCoordinator(Coordinator):
    """V nearly flat; devices fit u; then T times V ← Π(V − c_t Σ_{i∈S} g̃_i), and devices fit u again."""

    def run(self, federation: Federation) -> Model:
        V = flat_factors(self.facts, self.parameters.factors)
        if self.parameters.from_biases:
            V = released_items(self.facts, federation.sum("start"), self.parameters.factors)
        federation.ask("pretrain", items=V)
        federation.show(items=V)
        for t in federation.rounds(self.parameters.rounds):
            total = federation.sum_unless_void("contribute", items=V, t=t)
            if total is not None:
                gradient = total["items"].astype(np.float32)
                V = descend_and_embed(V.copy(), gradient, self._rate(total, t), self.facts.scale.span)
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model("sgdmf", self.facts.scale, self.facts.item_ids, nonnegative(self.facts, V))

    def _rate(self, total: Total, t: int) -> float:
        """The smaller of what curvature and noise allow, from public quantities.

        A row gets |S|/m ratings a round if all are rated alike, of curvature 2‖u‖² ≤ 2R each; |Ω|/n times as many where
        devices send all of them. Of T rounds' noise an entry gets c·σ·√T. Without noise steps decay.
        """
        R, p, T = self.facts.scale.span, self.parameters.factors, self.parameters.rounds
        send, each = self.parameters.send or "rating", max(1.0, self.facts.ratings / self.facts.users)
        curved = (self.parameters.rate or STEP[send]) * self.facts.items / (max(1, total.contributors) * R)
        curved /= {"all": each, "rating": 1.0, "record": math.sqrt(each)}[send]
        if total.noise:
            drift = BIASED_DRIFT if self.parameters.from_biases else DRIFT
            return min(curved, drift * math.sqrt(R / p) / (total.noise * math.sqrt(T)))
        return float(curved * linear_decay(T, LAST)[t]) if send == "all" else curved


class DeviceCohort(StartsFromBiases):
    """Devices, one a row: each fits u to its own ratings, and adds its gradient to a sum."""

    parameters: SGDMFParameters

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that the device's own factors were fitted at home")
    def pretrain(self, items: np.ndarray) -> Release:
        self._fit(items)
        return self.gate.public("done")

    @step(
        Kind.SUM,
        takes=Schema(items=Floats("items", "factors"), t=Integer(0, 100_000)),
        gives=ITEMS,
        what="the device's bounded gradient of the item factors, from one of its ratings or from all",
    )
    def contribute(self, items: np.ndarray, t: int) -> Release:
        V = self._fit(items)
        if self.parameters.send == "rating":
            return self.gate.sum(self.ratings, at={"users": self.home["users"], "items": V})
        return self.gate.sum(self.ratings, self.home["users"], V)

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that the final item factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = self._fit(items)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        V = self._latest("items", shared)
        return Fitted(nonnegative(self.facts, V), self._fitted(V))

    def _fit(self, items: np.ndarray) -> np.ndarray:
        """Fit every device's factors to Π(items), which is returned."""
        V = embed(items, self.facts.scale.span)
        self.gate.store_private("users", self._fitted(V))
        return V

    def _fitted(self, V: np.ndarray) -> np.ndarray:
        ratings, scale = self.ratings, self.facts.scale
        prior = (level_user if self.parameters.from_biases else flat_user)(scale, self.parameters.factors)
        steps, weight = self.parameters.pretraining, PRIOR * scale.span
        return fold_in(ratings.indptr, ratings.items, ratings.values, scale.low, V, prior, weight, scale.span, steps)


def specs(parameters: SGDMFParameters, context: Context) -> Sequence[Spec]:
    """T sums of what each device adds; it is one user's, and who takes part is seen: nothing amplifies."""
    facts, span = context.facts, context.facts.scale.span
    each = max(1.0, facts.ratings / facts.users)
    query: Query
    match parameters.send:
        case "all":
            query, signal = DeviceGradient(facts.scale), typical_signal(parameters, facts, facts.items)
        case "record":
            query, spread = RecordGradient(facts.scale, span**1.5), math.sqrt(each * parameters.factors)
            signal = facts.ratings / facts.items * span**1.5 / spread / 2
        case _:
            query = EmbeddingGradient(facts.scale, 1.0, 1, ("items",), users_are_public=False)
            signal = typical_signal(parameters, facts, facts.items) / each
    steps = [Spec("contribute", query, releases=parameters.rounds, signal=signal)]
    return with_start(context, steps) if parameters.from_biases else steps


@dataclass(frozen=True)
class DeviceGradient(Query):
    """The item gradient of the devices that take part, each at its own factors, for runs without privacy.

    It has no sensitivity. An entry of what one device adds is at most 2R·√R: |u·v − r| ≤ R where Π keeps both factors
    short, and |u_f| ≤ √R.
    """

    scale: Scale

    @property
    def largest(self) -> float:
        return 2 * self.scale.span**1.5

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, ratings: Ratings, users: Array, items: Array, present: Array | None = None) -> UnboundedAnswer:
        rows = np.arange(ratings.n_users) if present is None else np.flatnonzero(present)

        def answer(state: Blocks, stream: np.random.Generator) -> dict[str, np.ndarray]:
            columns = ratings.indptr, ratings.items, ratings.values
            _, by_item = factor_gradients(*columns, self.scale.low, rows, users, items)
            return {"items": by_item}

        return Unbounded().over(answer)


def flat_factors(facts: Facts, factors: int) -> np.ndarray:
    """Item factors nearly alike, so that a user's own encode little but their mean, until gradients come; (m, p)."""
    entry = LENGTH * math.sqrt(facts.scale.span / factors)
    uniform = derive(facts.seed, "start", "flat").random((facts.items, factors), dtype=np.float32)
    return embed(np.float32(entry) * (1 + np.float32(SPREAD) * (2 * uniform - 1)), facts.scale.span)


def flat_user(scale: Scale, factors: int) -> np.ndarray:
    """The factors whose product with a flat row is the middle of the scale: where every device starts; (p,) float32."""
    return np.full(factors, math.sqrt(scale.span) / (2 * LENGTH * math.sqrt(factors)), dtype=np.float32)
