"""SGDMF where items are divided: user factors are shared, item factors stay until the end (P0, §4: VFL-SGDMF).

Guarantee
---------
Every step noises both blocks, and the last κ steps, at the final user factors, noise the item block, so both blocks are
functions of noised and public values and may be published. One rating moves the pair of gradients by 2√2·R^1.5 and is
in one silo: T·T' + κ answers compose. A user's θ ratings move it by 2R^1.5·√(θ² + θ), and the user is in all s silos,
which sample and trim by themselves: s·(T·T' + κ) answers compose.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.boundary import Gate, Release
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Facts, Federation, Floats, Integer, Party, Schema, step
from tacit.methods.bias import contribution, estimated
from tacit.methods.context import Context
from tacit.methods.factors import start_factors
from tacit.methods.method import Coordinator
from tacit.methods.sgdmf.biased import BIAS, biased_items, biased_users, with_start
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.update_rule import LAST_DRIFT, Steps, typical_signal
from tacit.model import Fitted, Model
from tacit.partition import Share

USERS = Schema(users=Floats("users", "factors"))


class VerticalCoordinator(Coordinator):
    """U ← Σ_k (m_k/m) U^(k), T times; then every party sends the factors of its own items."""

    def run(self, federation: Federation) -> Model:
        starting = biased_users if self.parameters.from_biases else start_factors
        U = starting(self.facts, self.facts.users, self.parameters.factors, "users")
        if self.parameters.from_biases:
            federation.ask("start")
        for t in federation.rounds(self.parameters.rounds):
            U = federation.mean("improve", users=U, t=t)
            federation.show(users=U)
        V = np.zeros((self.facts.items, self.parameters.factors), dtype=np.float32)
        for party, answer in federation.ask("finish", users=U).items():
            V[self.facts.member(party).columns] = answer["items"]
        form = self.parameters.rule.form(self.facts.scale, V)
        return Model(self.parameters.method, self.facts.scale, self.facts.item_ids, form, states=U)


class VerticalSilo(Party):
    """U^(k) ← Π(U^(k) − γ_t g_U),  V_k ← Π(V_k − γ_t (m_k/m) g_V), T' times (eq. 4).

    g is the gradient sum over sampled users divided by η·|Ω_k|, where |Ω_k| stands for |Ω|·m_k/m; so item rows move by
    γ_t/(η·|Ω|) per rating, and user rows by m/m_k times that.
    """

    parameters: SGDMFParameters

    def __init__(self, share: Share, parameters: SGDMFParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        self.home.setdefault("items", start_factors(facts, self.member.items, parameters.factors, "items", share.name))

    @step(
        Kind.CHAIN,
        takes=Schema(),
        gives=Schema(biases=Floats("items")),
        what="how far each of its items lies from its users' means, or from the scale's middle, by noised sums alone",
    )
    def start(self) -> Release:
        noise, p = self.gate.noise, self.parameters.factors

        def update(state: dict[str, Any], noised: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            b = estimated(noised, noise, BIAS, self.facts)
            return {"biases": b, "items": biased_items(self.facts, b, p, self.name)}

        return self.gate.chain(*contribution(self.ratings, BIAS, self.facts), update=update, release=("biases",))

    @step(
        Kind.CHAIN,
        takes=Schema(users=Floats("users", "factors"), t=Integer(0, 100_000)),
        gives=USERS,
        what="the party's own copy of the user factors after a few steps on its ratings",
    )
    def improve(self, users: np.ndarray, t: int) -> Release:
        p, weight = self.parameters, self.facts.weight(self.name)
        silos, stream = len(self.facts.roster), self.gate.stream("move")
        descend = Steps(p, self.facts, p.steps, self.gate.noise, silos, stream=stream)

        def update(state: dict[str, Any], gradient: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            now = t * p.local_steps + step
            descend(state["users"], gradient["users"], now, weight)
            descend(state["items"], gradient["items"], now)
            return state

        state = {"users": self._projected(users), "items": self.home["items"].copy()}
        return self.gate.chain(self.ratings, update=update, state=state, release=("users",))

    @step(
        Kind.CHAIN,
        takes=USERS,
        gives=Schema(items=Floats("items", "factors")),
        what="the factors of the party's items, after a few last steps on its ratings",
    )
    def finish(self, users: np.ndarray) -> Release:
        p, stream = self.parameters, self.gate.stream("move")
        kappa = max(1, p.final_steps or 0)
        descend = Steps(p, self.facts, kappa, self.gate.noise, limit=min(LAST_DRIFT, p.rule.drift(p)), stream=stream)
        self.home["users"] = U = self._projected(users)

        def update(state: dict[str, Any], gradient: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            descend(state["items"], gradient["items"], step)
            return state

        state = {"items": self.home["items"].copy()}
        return self.gate.chain(self.ratings, at={"users": U}, update=update, state=state, release=("items",))

    def at_home(self, **shared: np.ndarray) -> Fitted:
        U = shared["users"] if shared else self.home["users"]
        return Fitted(self.parameters.rule.form(self.facts.scale, self.home["items"]), U)

    def _projected(self, users: np.ndarray) -> np.ndarray:
        return self.parameters.rule.project(self.parameters, users, self.facts.scale.span)


def specs(parameters: SGDMFParameters, context: Context) -> Sequence[Spec]:
    """T releases of T' answers, then one of κ; a user is in all silos, a rating in one."""
    facts, silos, rule = context.facts, context.parties, parameters.rule
    both = rule.query(parameters, context, ("users", "items"), users_are_public=True)
    items = rule.query(parameters, context, ("items",), users_are_public=True, at_home=True)
    by_user = typical_signal(parameters, facts, facts.users, silos)
    by_item = typical_signal(parameters, facts, facts.items, silos)
    steps = [
        Spec("improve", both, parameters.rounds, parameters.local_steps, mean=True, signal=by_user),
        Spec("finish", items, answers=parameters.final_steps or 0, signal=by_item),
    ]
    return with_start(context, steps) if parameters.from_biases else steps
