"""SGDMF where items are divided: user factors are shared, item factors stay until the end (P0, vertical FMF)."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit.boundary import Gate, Release
from tacit.boundary.release import Kind
from tacit.federation import Facts, Federation, Floats, Party, Schema, Whole, step
from tacit.kernels.embed import descend_and_embed, embed
from tacit.methods.sgdmf.gradient import factor_gradient
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.start import start_factors
from tacit.model import Factors, Model
from tacit.partition import Share


class VerticalCoordinator:
    """U ← Σ_k (m_k/m) U^(k), T times; then every party hands over the factors of its own items."""

    def __init__(self, parameters: SGDMFParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        U = start_factors(self.facts, self.facts.users, self.parameters.factors, "users")
        for t in federation.rounds(self.parameters.rounds):
            U = federation.mean("improve", users=U, t=t)
            federation.show(users=U)
        V = np.zeros((self.facts.items, self.parameters.factors), dtype=np.float32)
        for party, answer in federation.ask("finish", users=U).items():
            V[self.facts.member(party).columns] = answer["items"]
        return Model("sgdmf", self.facts.scale, self.facts.item_ids, item_factors=V, user_factors=U)


class VerticalSilo(Party):
    """U^(k) ← Π(U^(k) − γ_t g_U),  V_k ← Π(V_k − γ_t (m_k/m) g_V), T' times (eq. 4).

    g is the gradient sum over sampled users divided by η·|Ω_k|, where |Ω_k| stands for the declared |Ω|·m_k/m; so item
    rows move by γ_t/(η·|Ω|) per rating, and user rows by m/m_k times that.
    """

    parameters: SGDMFParameters

    def __init__(self, share: Share, parameters: SGDMFParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        self.home.setdefault("items", start_factors(facts, self.member.items, parameters.factors, "items", share.name))

    @step(
        Kind.CHAIN,
        takes=Schema(users=Floats("users", "factors"), t=Whole(0, 100_000)),
        gives=Schema(users=Floats("users", "factors")),
        what="the party's own copy of the user factors after a few steps on its ratings",
    )
    def improve(self, users: np.ndarray, t: int) -> Release:
        span, weight = self.facts.scale.span, self.facts.weight(self.name)
        T, local = self.parameters.rounds, self.parameters.local_steps

        def update(state: dict[str, Any], gradient: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            now, steps = t * local + step, T * local
            rate, decay = (
                self.parameters.rate_per_rating(self.facts, now, steps),
                self.parameters.decay(now, steps),
            )
            descend_and_embed(state["users"], gradient["users"], rate / weight, span, decay)
            descend_and_embed(state["items"], gradient["items"], rate, span, decay)
            return state

        query = factor_gradient(self.ratings, self.parameters.sampling)
        state = {"users": embed(users, span), "items": self.home["items"].copy()}
        return self.gate.chain(query, update, state, local, lets_out=("users",))

    @step(
        Kind.DISCLOSE,
        takes=Schema(users=Floats("users", "factors")),
        gives=Schema(items=Floats("items", "factors")),
        what="the final factors of the party's items",
    )
    def finish(self, users: np.ndarray) -> Release:
        self.home["users"] = embed(users, self.facts.scale.span)
        return self.gate.disclose(items=self.home["items"])

    def at_home(self, **shared: np.ndarray) -> Factors:
        return Factors(self.facts.scale.low, self._latest("users", shared), self.home["items"])
