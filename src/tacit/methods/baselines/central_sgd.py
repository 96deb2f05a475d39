"""`central-sgd`: every party sends its ratings as they are, and plain SGD is run on all of them."""

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.federation.messages import Ints
from tacit.methods.baselines.descent import DescentParameters, descend, started
from tacit.methods.factors import nonnegative
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.model import Fitted, Model
from tacit.partition import Setting
from tacit.rng import derive


class CentralSGDCoordinator(Coordinator):
    """Pools the ratings, then plain SGD with embedding clipping."""

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        columns = pooled(facts, federation.ask("surrender"))
        U = started(self.parameters, facts, facts.users, "users")
        V = started(self.parameters, facts, facts.items, "items")
        descent = descend(columns, facts.scale, (U, V), self.parameters, derive(facts.seed, "epochs"))
        for _t, (U, V) in zip(federation.rounds(self.parameters.epochs), descent, strict=True):
            federation.show(users=U, items=V)
        return Model("central-sgd", facts.scale, facts.item_ids, nonnegative(facts, V), states=U)


def pooled(facts: Facts, answers: dict[str, dict[str, np.ndarray]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All parties' ratings, users stacked in roster order, or items at their columns of the whole."""
    parts = []
    for party, answer in answers.items():
        users, items = answer["users"], answer["items"]
        if facts.setting is Setting.VERTICAL:
            items = facts.member(party).columns[items].astype(np.int32)
        else:
            users = users + np.int32(facts.first_user(party))
        parts.append((users, items, answer["values"]))
    users, items, values = (np.concatenate(column) for column in zip(*parts, strict=True))
    return users, items, values


class Disclosing(Party):
    """A party that sends all of its ratings."""

    @step(
        Kind.DISCLOSE,
        takes=Schema(),
        gives=Schema(users=Ints("ratings"), items=Ints("ratings"), values=Floats("ratings")),
        what="all of the party's ratings, as they are",
    )
    def surrender(self) -> Release:
        ratings = self.ratings
        return self.gate.disclose(users=ratings.users, items=ratings.items, values=ratings.values)


class CentralSGDParty(Disclosing):
    """A party that sends all of its ratings, and predicts with what all of them gave."""

    def at_home(self, **shared: np.ndarray) -> Fitted:
        U, V = shared["users"], shared["items"]
        if self.facts.setting is Setting.VERTICAL:
            V = V[self.member.columns]
        else:
            first = self.facts.first_user(self.name)
            U = U[first : first + self.member.users]
        return Fitted(nonnegative(self.facts, V), U)


CENTRAL_SGD = Method(
    name="central-sgd",
    title="Central training by SGD",
    what=(
        "Every party sends its ratings to the coordinator, which runs plain SGD on all of them. It protects nothing."
    ),
    parameters=DescentParameters,
    sides=dict.fromkeys(Setting, Sides(CentralSGDCoordinator, CentralSGDParty)),
    feedback=RATED,
    guaranteed=False,
)
