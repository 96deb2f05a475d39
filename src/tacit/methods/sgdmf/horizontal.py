"""SGDMF where users are divided: item factors are shared, user factors never leave (P0, horizontal FMF)."""

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

ITEMS = Schema(items=Floats("items", "factors"))


class HorizontalCoordinator:
    """V ← Σ_k (n_k/n) V^(k), T times."""

    def __init__(self, parameters: SGDMFParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        V = start_factors(self.facts, self.facts.items, self.parameters.factors, "items")
        for t in federation.rounds(self.parameters.rounds):
            V = federation.mean("improve", items=V, t=t)
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model("sgdmf", self.facts.scale, self.facts.item_ids, item_factors=V)


class HorizontalSilo(Party):
    """U_k ← Π(U_k − γ_t (n_k/n) g_U),  V^(k) ← Π(V^(k) − γ_t g_V), T' times (eq. 5).

    g is the gradient sum over sampled users divided by η·|Ω_k|, where |Ω_k| stands for the declared |Ω|·n_k/n; so user
    rows move by γ_t/(η·|Ω|) per rating, and item rows by n/n_k times that.
    """

    parameters: SGDMFParameters

    def __init__(self, share: Share, parameters: SGDMFParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        self.home.setdefault("users", start_factors(facts, self.member.users, parameters.factors, "users", share.name))

    @step(
        Kind.CHAIN,
        takes=Schema(items=Floats("items", "factors"), t=Whole(0, 100_000)),
        gives=ITEMS,
        what="the party's own copy of the item factors after a few steps on its ratings",
    )
    def improve(self, items: np.ndarray, t: int) -> Release:
        span, weight = self.facts.scale.span, self.facts.weight(self.name)
        T, local = self.parameters.rounds, self.parameters.local_steps

        def update(state: dict[str, Any], gradient: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            now, steps = t * local + step, T * local
            rate, decay = (
                self.parameters.rate_per_rating(self.facts, now, steps),
                self.parameters.decay(now, steps),
            )
            descend_and_embed(state["users"], gradient["users"], rate, span, decay)
            descend_and_embed(state["items"], gradient["items"], rate / weight, span, decay)
            return state

        query = factor_gradient(self.ratings, self.parameters.sampling)
        state = {"users": self.home["users"].copy(), "items": embed(items, span)}
        return self.gate.chain(query, update, state, local, lets_out=("items",))

    @step(Kind.PUBLIC, takes=ITEMS, what="the word that the final item factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = embed(items, self.facts.scale.span)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Factors:
        return Factors(self.facts.scale.low, self.home["users"], self._latest("items", shared))
