"""SGDMF where users are divided: item factors are shared, user factors never leave (P0, §5: HFL-SGDMF).

Guarantee
---------
Only V^(k) after noisy steps leaves a silo. A step's query is a sum over sampled users of what each adds to the item
gradient; her factors u_i may depend on her own ratings, on V as it was received or noised, and on nobody else. So
emptying her record takes away what she adds, at most √θ·2R^1.5, and T·T' such answers compose. Which coins made u_i
does not matter: given all that was let out, the next answer is a mixture over them of pairs that all meet the same
bound, and divergences are jointly convex. Per rating, a changed rating changes u_i and with it everything she adds:
that is the replace case of her whole record. Where users' factors are "noised" like the item factors, although they
stay, one rating moves the pair of gradients by 2√2·R^1.5, and a sample of ratings amplifies that.

With one local step (T' = 1) what a silo adds is linear in its users: then the step is a *sum*, of raw gradients without
silo weights, projected once by the coordinator. Under `plain` every silo adds noise of its own; under a secure sum the
sum carries one. With more steps a silo's V^(k) is no sum over users any more: masks can hide it, and each keeps its own
noise.

What is fine-tuned afterwards never leaves. It protects nobody from others of the same silo.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tacit.boundary import Release
from tacit.boundary.calibrate import multiplier as calibrated
from tacit.boundary.events import Event, Gaussian, SampledGaussian
from tacit.boundary.query import Blocks, Query
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Facts, Federation, Floats, Integer, Schema, step
from tacit.guarantee import Relation, Unit
from tacit.methods.context import Context
from tacit.methods.initial import start_factors
from tacit.methods.sgdmf.home import ITEMS, SiloAtHome
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.step_sizes import Rates, typical_signal
from tacit.methods.sgdmf.update_rule import EMBEDDED, Rule
from tacit.model import Model
from tacit.rng import derive


class HorizontalCoordinator:
    """Stage 1: users' factors are fitted at home. Stage 2, T times: V ← Σ_k (n_k/n) V^(k), or where T' = 1
    V ← Π(V − γ_t/(η·|Ω|) Σ_k g̃_V^(k)). Stage 3: at home again."""

    rule: ClassVar[Rule] = EMBEDDED

    def __init__(self, parameters: SGDMFParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        V = start_factors(self.facts, self.facts.items, self.parameters.factors, "items")
        if self.parameters.users == "pretrained":
            federation.ask("pretrain", items=V)
        for t in federation.rounds(self.parameters.rounds):
            if self.parameters.summed:
                V = self._descended(federation, V, t)
            else:
                V = federation.mean("improve", items=V, t=t)
            federation.show(items=V)
        federation.ask("finish", items=V)
        form = self.rule.form(self.facts.scale, V)
        return Model(self.parameters.method, self.facts.scale, self.facts.item_ids, form)

    def _descended(self, federation: Federation, V: np.ndarray, t: int) -> np.ndarray:
        """V after one step along all silos' gradient; as it was, where the round is void."""
        total = federation.sum_unless_void("contribute", items=V, t=t)
        if total is None:
            return V
        p, span = self.parameters, self.facts.scale.span
        rates = Rates(p, self.facts, p.steps, total.noise, drift=self.rule.drift(p))
        move = self.rule.mover(p, span, total.noise, derive(self.facts.seed, "move", t))
        return move(V.copy(), total["items"].astype(np.float32), rates.per_rating(t), rates.decay(t))


class HorizontalSilo(SiloAtHome):
    """V^(k) ← Π(V^(k) − γ_t g_V), T' times (eq. 5), and meanwhile U_k as `users` says.

    g is the gradient sum over sampled users divided by η·|Ω_k|, where |Ω_k| stands for |Ω|·n_k/n; so user rows move by
    γ_t/(η·|Ω|) per rating, and item rows by n/n_k times that.
    """

    @step(
        Kind.CHAIN,
        takes=Schema(items=Floats("items", "factors"), t=Integer(0, 100_000)),
        gives=ITEMS,
        what="the party's own copy of the item factors after a few steps on its ratings",
    )
    def improve(self, items: np.ndarray, t: int) -> Release:
        span, weight, local = self.facts.scale.span, self.facts.weight(self.name), self.parameters.local_steps
        noise, silos = self.gate.noise, len(self.facts.roster)
        drift = self.rule.drift(self.parameters)
        rates = Rates(self.parameters, self.facts, self.parameters.steps, noise, silos, drift)
        move = self.rule.mover(self.parameters, span, noise, self.gate.stream("move"))

        def update(state: dict[str, Any], gradient: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            now = t * local + step
            rate, decay = rates.per_rating(now), rates.decay(now)
            if "users" in state:
                move(state["users"], gradient["users"], rate, decay)
            move(state["items"], gradient["items"], rate / weight, decay)
            return state

        state = {"items": self._projected(items)}
        if users_move_along(self.parameters, self.facts.unit):
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
        """Users' factors at the chain's item factors: those kept at home, a step further where they move together."""
        if self.parameters.users != "together":
            return lambda _state: {"users": self.home["users"]}
        stream = self.gate.stream("together")
        return lambda state: {"users": self._moved(state["items"], stream)}


def users_move_along(parameters: SGDMFParameters, unit: Unit | None) -> bool:
    """Whether users' factors are steps of the same chain: without privacy "together", with it "noised"."""
    return parameters.users == "noised" or (parameters.users == "together" and unit is None)


def specs(parameters: SGDMFParameters, context: Context, rule: Rule = EMBEDDED) -> Sequence[Spec]:
    """T releases of T' answers each, or where T' = 1 of T sums; a user or rating is in one silo."""
    signal = typical_signal(parameters, context.facts, context.facts.items)
    T = parameters.rounds
    if parameters.summed:
        query = rule.query(parameters, context, ("items",), users_are_public=False, at_home=True)
        return [Spec("contribute", query, releases=T, signal=signal)]
    along = users_move_along(parameters, context.unit)
    blocks = ("users", "items") if along else ("items",)
    query = rule.query(parameters, context, blocks, users_are_public=along, at_home=not along)
    return [Spec("improve", query, releases=T, answers=parameters.local_steps, mean=True, signal=signal)]


def proposition_3(parameters: SGDMFParameters, context: Context, rule: Rule = EMBEDDED) -> float | None:
    """P0, Proposition 3, to the letter: z for T' sampled steps (not T·T'), times θ·2R^1.5 (not √θ·2R^1.5)."""
    if context.target is None or context.target.unit is not Unit.USER:
        return None
    theta, eta, local = parameters.trim or 1, parameters.eta, parameters.local_steps

    def events(z: float) -> list[Event]:
        return [SampledGaussian(z, eta, local) if eta < 1 else Gaussian(z, local)]

    query: Query = rule.query(parameters, context, ("items",), users_are_public=False, at_home=True)
    true = query.sensitivity(Unit.USER, Relation.ZERO_OUT)
    of_one = true / math.sqrt(theta)
    stated, true = theta * of_one, math.sqrt(theta) * of_one
    epsilon, delta = context.target.epsilon, context.target.delta
    return float(calibrated(events, epsilon, delta, Relation.ZERO_OUT)) * stated / true
