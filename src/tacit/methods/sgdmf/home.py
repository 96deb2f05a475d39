"""What a horizontal silo does at home: fit users' factors, and fine-tune for itself. None of it leaves (P0, §5.1)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tacit.boundary import Gate, Release
from tacit.boundary.release import Kind
from tacit.federation import Facts, Floats, Party, Schema, step
from tacit.methods.baselines.descent import DescentParameters, descend
from tacit.methods.initial import start_factors
from tacit.methods.sgdmf.parameters import SGDMFParameters
from tacit.methods.sgdmf.update_rule import EMBEDDED, Rule
from tacit.methods.user_factors import fitted_users
from tacit.model import Fitted
from tacit.partition import Share

ITEMS = Schema(items=Floats("items", "factors"))


class SiloAtHome(Party):
    """Stages 1 and 3 of a horizontal silo, which cost nobody anything because only "done" leaves.

    Fine-tuning item factors protects nobody from others of the same silo; fine-tuning users' factors alone would.
    """

    parameters: SGDMFParameters
    rule: ClassVar[Rule] = EMBEDDED

    def __init__(self, share: Share, parameters: SGDMFParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        start = start_factors(facts, self.member.users, parameters.factors, "users", share.name)
        if parameters.users == "noised" or facts.unit is None:
            self.home.setdefault("users", start)
        else:
            self.gate.store_private("users", self.home.get("users", start))

    @step(Kind.PUBLIC, takes=ITEMS, what="the word that users' factors were fitted at home")
    def pretrain(self, items: np.ndarray) -> Release:
        V = self._projected(items)
        self.gate.store_private("users", self._fitted(V, np.arange(self.member.users), self.parameters.pretraining))
        return self.gate.public("done")

    @step(Kind.PUBLIC, takes=ITEMS, what="the word that the final item factors have arrived")
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
            return Fitted(self.rule.form(self.facts.scale, self.home["own items"]), self.home["own users"])
        return Fitted(self.rule.form(self.facts.scale, self._latest("items", shared)), self.home["users"])

    def before_fine_tuning(self, **shared: np.ndarray) -> Fitted | None:
        if not self.parameters.fine_tuning:
            return None
        return Fitted(self.rule.form(self.facts.scale, self._latest("items", shared)), self.home["users"])

    def _projected(self, items: np.ndarray) -> np.ndarray:
        return self.rule.project(self.parameters, items, self.facts.scale.span)

    def _moved(self, V: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        """Users' factors after one more step of a sample of users at V ("together")."""
        rows = np.flatnonzero(stream.random(self.member.users) < self.parameters.eta)
        return self.gate.store_private("users", self._fitted(V, rows, 1))

    def _fitted(self, V: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        """Users' factors with `steps` more steps for `rows`, each user on her own ratings."""
        return fitted_users(self.ratings, self.home["users"], V, rows, steps)

    def _fine_tuned(self, U: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both blocks after a few passes of plain SGD over the silo's own ratings, all of them."""
        ratings = self.ratings
        tuning = DescentParameters(factors=U.shape[1], epochs=self.parameters.fine_tuning or 1)
        columns, start = (ratings.users, ratings.items, ratings.values), (U.copy(), V.copy())
        for _epoch in descend(*columns, self.facts.scale, start, tuning, self.gate.stream("fine-tune")):
            pass
        return start
