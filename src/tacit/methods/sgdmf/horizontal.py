"""SGDMF where users are divided: item factors are shared, user factors never leave (P0, §5: HFL-SGDMF).

Guarantee
---------
Only V^(k) after noisy steps leaves a silo. A step's query is a sum over sampled users of what each adds to the item
gradient; a user's factors u_i may depend on their own ratings, on V as it was received or noised, and on nobody else.
So emptying a record takes away what its user adds, at most √θ·2R^1.5, and T·T' such answers compose. Which coins made
u_i does not matter: given all that was released, the next answer is a mixture over them of pairs that all meet the same
bound, and divergences are jointly convex. Per rating, a changed rating changes u_i and with it everything the user
adds: that is the replace case of the whole record. Where users' factors are "noised" like the item factors, although
they stay, one rating moves the pair of gradients by 2√2·R^1.5, and a sample of ratings amplifies that.

With one local step (T' = 1) what a silo adds is linear in its users: then the step is a *sum*, of raw gradients without
silo weights, projected once by the coordinator. Under `plain` every silo adds noise of its own; under a secure sum the
sum carries one. With more steps a silo's V^(k) is no sum over users any more: masks can hide it, and each keeps its own
noise.

What is fine-tuned afterwards never leaves. It protects no one from others of the same silo.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tacit.boundary import Gate, Release
from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.events import Event, Gaussian, SampledGaussian
from tacit.boundary.query import Blocks, Query
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Facts, Federation, Floats, Integer, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.methods.baselines.descent import DescentParameters, descend
from tacit.methods.context import Context
from tacit.methods.factors import fitted_users, start_factors
from tacit.methods.method import Coordinator
from tacit.methods.sgdmf.biased import StartsFromBiases, biased_users, released_items, with_start
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.update_rule import Steps, typical_signal
from tacit.model import Fitted, Model
from tacit.partition import Setting, Share
from tacit.rng import derive

ITEMS = Schema(items=Floats("items", "factors"))


class HorizontalCoordinator(Coordinator):
    """Stage 1: users' factors are fitted at home. Stage 2, T times: V ← Σ_k (n_k/n) V^(k), or where T' = 1
    V ← Π(V − γ_t/(η·|Ω|) Σ_k g̃_V^(k)). Stage 3: at home again."""

    def run(self, federation: Federation) -> Model:
        V = start_factors(self.facts, self.facts.items, self.parameters.factors, "items")
        if self.parameters.from_biases:
            V = released_items(self.facts, federation.sum("start"), self.parameters.factors)
        if self.parameters.users == "pretrained":
            federation.ask("pretrain", items=V)
        for t in federation.rounds(self.parameters.rounds):
            if self.parameters.summed:
                V = self._descended(federation, V, t)
            else:
                V = federation.mean("improve", items=V, t=t)
            federation.show(items=V)
        federation.ask("finish", items=V)
        form = self.parameters.rule.form(self.facts.scale, V)
        return Model(self.parameters.method, self.facts.scale, self.facts.item_ids, form)

    def _descended(self, federation: Federation, V: np.ndarray, t: int) -> np.ndarray:
        """V after one step along all silos' gradient; unchanged where the round is void."""
        total = federation.sum_unless_void("contribute", items=V, t=t)
        if total is None:
            return V
        stream = derive(self.facts.seed, "move", t)
        descend = Steps(self.parameters, self.facts, self.parameters.steps, total.noise, stream=stream)
        return descend(V.copy(), total["items"].astype(np.float32), t)


class HorizontalSilo(StartsFromBiases):
    """V^(k) ← Π(V^(k) − γ_t g_V), T' times (eq. 5), and meanwhile U_k as `users` says.

    g is the gradient sum over sampled users divided by η·|Ω_k|, where |Ω_k| stands for |Ω|·n_k/n; so user rows move by
    γ_t/(η·|Ω|) per rating, and item rows by n/n_k times that. Stages 1 and 3 cost nothing, because only "done" leaves.
    """

    parameters: SGDMFParameters

    def __init__(self, share: Share, parameters: SGDMFParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        starting = biased_users if parameters.from_biases else start_factors
        start = starting(facts, self.member.users, parameters.factors, "users", share.name)
        if parameters.users == "noised" or facts.unit is None:
            self.home.setdefault("users", start)
        else:
            self.gate.store_private("users", self.home.get("users", start))

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that users' factors were fitted at home")
    def pretrain(self, items: np.ndarray) -> Release:
        V = self._projected(items)
        self.gate.store_private("users", self._fitted(V, np.arange(self.member.users), self.parameters.pretraining))
        return self.gate.public("done")

    @step(
        Kind.CHAIN,
        takes=Schema(items=Floats("items", "factors"), t=Integer(0, 100_000)),
        gives=ITEMS,
        what="the party's own copy of the item factors after a few steps on its ratings",
    )
    def improve(self, items: np.ndarray, t: int) -> Release:
        p, weight = self.parameters, self.facts.weight(self.name)
        silos, stream = len(self.facts.roster), self.gate.stream("move")
        descend = Steps(p, self.facts, p.steps, self.gate.noise, silos, stream=stream)

        def update(state: dict[str, Any], gradient: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            now = t * p.local_steps + step
            if "users" in state:
                descend(state["users"], gradient["users"], now)
            descend(state["items"], gradient["items"], now, weight)
            return state

        state = {"items": self._projected(items)}
        if users_move_along(p, self.facts.unit):
            state["users"] = self.home["users"].copy()
            return self.gate.chain(self.ratings, update=update, state=state, release=("items",))
        return self.gate.chain(self.ratings, at=self._at_home(), update=update, state=state, release=("items",))

    @step(
        Kind.SUM,
        takes=Schema(items=Floats("items", "factors"), t=Integer(0, 100_000)),
        gives=ITEMS,
        what="the silo's gradient of the item factors, from a sample of its users",
    )
    def contribute(self, items: np.ndarray, t: int) -> Release:
        V = self._projected(items)
        together = self.parameters.users == "together"
        U = self._moved(V, self.gate.stream("together")) if together else self.home["users"]
        return self.gate.sum(self.ratings, at={"users": U, "items": V})

    def _at_home(self) -> Callable[[Blocks], Blocks]:
        """Users' factors at the chain's item factors: those at home, a step further where they move together."""
        if self.parameters.users != "together":
            return lambda _state: {"users": self.home["users"]}
        stream = self.gate.stream("together")
        return lambda state: {"users": self._moved(state["items"], stream)}

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that the final item factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = V = self._projected(items)
        U = self.home["users"]
        if self.parameters.users == "noised":
            U = self._fitted(V, np.arange(self.member.users), self.parameters.pretraining)
        if self.parameters.fine_tuning:
            U, V = self._fine_tuned(U, V)
        self.gate.store_private("own users", U)
        self.gate.store_private("own items", V)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        if "own users" in self.home:
            return self._predictor(self.home["own users"], self.home["own items"])
        return self._predictor(self.home["users"], self._latest("items", shared))

    def before_fine_tuning(self, **shared: np.ndarray) -> Fitted | None:
        if not self.parameters.fine_tuning:
            return None
        return self._predictor(self.home["users"], self._latest("items", shared))

    def _predictor(self, U: np.ndarray, V: np.ndarray) -> Fitted:
        return Fitted(self.parameters.rule.form(self.facts.scale, V), U)

    def _projected(self, items: np.ndarray) -> np.ndarray:
        return self.parameters.rule.project(self.parameters, items, self.facts.scale.span)

    def _moved(self, V: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """Users' factors after one more step of a sample of users at V ("together")."""
        rows = np.flatnonzero(stream.random(self.member.users) < self.parameters.eta)
        return self.gate.store_private("users", self._fitted(V, rows, 1))

    def _fitted(self, V: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        return fitted_users(self.ratings, self.home["users"], V, rows, steps)

    def _fine_tuned(self, U: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both blocks after a few passes of plain SGD over all of the silo's own ratings; protects no one within it."""
        tuning = DescentParameters(factors=U.shape[1], epochs=self.parameters.fine_tuning or 1)
        ratings, start = self.ratings, (U.copy(), V.copy())
        columns = ratings.users, ratings.items, ratings.values
        for _epoch in descend(columns, self.facts.scale, start, tuning, self.gate.stream("fine-tune")):
            pass
        return start


def users_move_along(parameters: SGDMFParameters, unit: Unit | None) -> bool:
    """Whether users' factors are steps of the same chain: without privacy "together", with it "noised"."""
    return parameters.users == "noised" or (parameters.users == "together" and unit is None)


def specs(parameters: SGDMFParameters, context: Context) -> Sequence[Spec]:
    """T releases of T' answers each, or where T' = 1 of T sums, after the start's; a user or rating is in one silo."""
    steps = [_steps(parameters, context)]
    return with_start(context, steps) if parameters.from_biases else steps


def _steps(parameters: SGDMFParameters, context: Context) -> Spec:
    signal = typical_signal(parameters, context.facts, context.facts.items)
    T, rule = parameters.rounds, parameters.rule
    if parameters.summed:
        query = rule.query(parameters, context, ("items",), users_are_public=False, at_home=True)
        return Spec("contribute", query, releases=T, signal=signal)
    along = users_move_along(parameters, context.unit)
    blocks = ("users", "items") if along else ("items",)
    query = rule.query(parameters, context, blocks, users_are_public=along, at_home=not along)
    return Spec("improve", query, releases=T, answers=parameters.local_steps, mean=True, signal=signal)


def proposition_3(parameters: SGDMFParameters, context: Context) -> float | None:
    """P0, Proposition 3, to the letter: z for T' sampled steps (not T·T'), times θ·2R^1.5 (not √θ·2R^1.5)."""
    if context.setting is not Setting.HORIZONTAL or context.target is None or context.unit is not Unit.USER:
        return None
    if parameters.from_biases:
        return None
    theta, eta, local = parameters.trim or 1, parameters.eta, parameters.local_steps

    def events(z: float) -> list[Event]:
        return [SampledGaussian(z, eta, local) if eta < 1 else Gaussian(z, local)]

    query: Query = parameters.rule.query(parameters, context, ("items",), users_are_public=False, at_home=True)
    true = query.sensitivity(Unit.USER, Relation.ZERO_OUT)
    of_one = true / math.sqrt(theta)
    stated, true = theta * of_one, math.sqrt(theta) * of_one
    epsilon, delta = context.target.epsilon, context.target.delta
    return float(calibrated(events, epsilon, delta, Relation.ZERO_OUT)) * stated / true
