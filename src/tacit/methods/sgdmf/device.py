"""SGDMF where every user is a party: each fits its own factors at home and adds its item gradient to a sum (P0, §6)."""

from __future__ import annotations

import numpy as np

from tacit.boundary import Gate, Release, Unbounded
from tacit.boundary.query import Blocks
from tacit.boundary.release import Kind
from tacit.federation import Facts, Federation, Floats, Party, Schema, Whole, step
from tacit.kernels.embed import descend_and_embed, embed
from tacit.kernels.gradient import factor_gradients
from tacit.methods.fit import fitted_users
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.rates import Rates
from tacit.methods.start import start_factors
from tacit.model import Fitted, Model
from tacit.partition import Share

ITEMS = Schema(items=Floats("items", "factors"))

#: Steps in which a device fits its own factors to the final item factors; they cost nobody anything.
FINAL_STEPS = 100


class DeviceCoordinator:
    """V ← Π(V − γ_t·n/(|S|·|Ω|) Σ_{i∈S} g_i), T times, over the devices S that contributed."""

    def __init__(self, parameters: SGDMFParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        T, span, eta = self.parameters.rounds, self.facts.scale.span, self.parameters.eta
        rates = Rates(self.parameters, self.facts, T)
        V = start_factors(self.facts, self.facts.items, self.parameters.factors, "items")
        for t in federation.rounds(T):
            total = federation.sum("contribute", items=V, t=t)
            heard = max(1, total.contributors) / (eta * self.facts.users)
            V = descend_and_embed(
                V, total["items"].astype(np.float32), rates.per_rating(t) / heard, span, rates.decay(t)
            )
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model("sgdmf", self.facts.scale, self.facts.item_ids, self.parameters.form(self.facts.scale, V))


class DeviceCohort(Party):
    """For each sampled device i: T' steps on u_i at home, then its item gradient g_i joins the sum.

    A cohort is many devices in one block of rows; a device takes part in a round with probability η, and one that
    does not adds exactly 0.
    """

    parameters: SGDMFParameters

    def __init__(self, share: Share, parameters: SGDMFParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        self.home.setdefault("users", start_factors(facts, self.member.users, parameters.factors, "users", share.name))

    @step(
        Kind.SUM,
        takes=Schema(items=Floats("items", "factors"), t=Whole(0, 100_000)),
        gives=ITEMS,
        what="the device's gradient of the item factors, from its own ratings",
    )
    def contribute(self, items: np.ndarray, t: int) -> Release:
        present = np.ones(self.member.users, dtype=bool) if self.present is None else self.present
        taking_part = self.gate.stream("take part").random(self.member.users) < self.parameters.eta
        rows = np.flatnonzero(taking_part & present)
        V, ratings = embed(items, self.facts.scale.span), self.ratings
        self.home["users"] = users = self._fitted(V, rows, self.parameters.local_steps)

        def answer(state: Blocks, stream: np.random.Generator) -> dict[str, np.ndarray]:
            low = self.facts.scale.low
            _, by_item = factor_gradients(ratings.indptr, ratings.items, ratings.values, low, rows, users, V)
            return {"items": by_item}

        return self.gate.sum(Unbounded(answer), contributors=len(rows))

    @step(Kind.PUBLIC, takes=ITEMS, what="the word that the final item factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        V = embed(items, self.facts.scale.span)
        self.home["users"] = self._fitted(V, np.arange(self.member.users), FINAL_STEPS)
        self.home["items"] = V
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted(self.parameters.form(self.facts.scale, self._latest("items", shared)), self.home["users"])

    def _fitted(self, V: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        """User factors with `steps` more steps for `rows`, each device on its own ratings."""
        return fitted_users(self.ratings, self.home["users"], V, rows, steps)
