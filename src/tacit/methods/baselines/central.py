"""The ceiling: all ratings in one place. Every party hands over its ratings as they are."""

from __future__ import annotations

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.data.ratings import Feedback
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.federation.messages import Ints
from tacit.methods.baselines.descent import DescentParameters, descend, started
from tacit.methods.method import Method, Sides
from tacit.model import Fitted, Model, NonNegative
from tacit.partition import Setting
from tacit.rng import derive


class CentralCoordinator:
    """Pools the ratings, then plain SGD with embedding clipping."""

    def __init__(self, parameters: DescentParameters, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        users, items, values = self._pooled(federation.ask("surrender"))
        U = started(self.parameters, facts, facts.users, "users")
        V = started(self.parameters, facts, facts.items, "items")
        descent = descend(users, items, values, facts.scale, (U, V), self.parameters, derive(facts.seed, "epochs"))
        for _t, (U, V) in zip(federation.rounds(self.parameters.epochs), descent, strict=True):
            federation.show(users=U, items=V)
        form = NonNegative(facts.scale.low, facts.scale.high, V)
        return Model("central", facts.scale, facts.item_ids, form, states=U)

    def _pooled(self, answers: dict[str, dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Everybody's ratings, users stacked in roster order, or items put back where they belong."""
        parts = []
        for party, answer in answers.items():
            users, items = answer["users"], answer["items"]
            if self.facts.setting is Setting.VERTICAL:
                items = self.facts.member(party).columns[items].astype(np.int32)
            else:
                users = users + np.int32(self.facts.first_user(party))
            parts.append((users, items, answer["values"]))
        users, items, values = (np.concatenate(column) for column in zip(*parts, strict=True))
        return users, items, values


class Surrendering(Party):
    """A party that keeps nothing to itself."""

    @step(
        Kind.DISCLOSE,
        takes=Schema(),
        gives=Schema(users=Ints("ratings"), items=Ints("ratings"), values=Floats("ratings")),
        what="all of the party's ratings, as they are",
    )
    def surrender(self) -> Release:
        ratings = self.ratings
        return self.gate.disclose(users=ratings.users, items=ratings.items, values=ratings.values)

    def at_home(self, **shared: np.ndarray) -> Fitted:
        users, items, scale = shared["users"], shared["items"], self.facts.scale
        if self.facts.setting is Setting.VERTICAL:
            return Fitted(NonNegative(scale.low, scale.high, items[self.member.columns]), users)
        first = self.facts.first_user(self.name)
        return Fitted(NonNegative(scale.low, scale.high, items), users[first : first + self.member.users])


CENTRAL = Method(
    name="central",
    title="Central training, all ratings in one place",
    what=(
        "Every party hands its ratings to the coordinator, who trains on all of them. "
        "It protects nothing; it shows what could be had."
    ),
    parameters=DescentParameters,
    sides=dict.fromkeys(Setting, Sides(CentralCoordinator, Surrendering)),
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
    guaranteed=False,
)
