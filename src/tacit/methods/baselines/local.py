"""`local`: each party trains on its own ratings alone. Nothing leaves it."""

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.federation import Facts, Federation, Integer, Party, Schema, step
from tacit.methods.baselines.descent import DescentParameters, descend, started
from tacit.methods.factors import nonnegative
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting
from tacit.rng import derive


class LocalCoordinator(Coordinator):
    """Starts the parties, and learns nothing."""

    def run(self, federation: Federation) -> Model:
        for t in federation.rounds(1):
            federation.ask("train", t=t)
            federation.show()
        return Model("local", self.facts.scale, self.facts.item_ids, own_mean(self.facts))


class Alone(Party):
    """Plain SGD on the party's own ratings; an item that nobody here rated keeps its random start."""

    parameters: DescentParameters

    @step(Kind.PUBLIC, takes=Schema(t=Integer(0, 0)), what="confirmation that it has trained")
    def train(self, t: int) -> Release:
        ratings = self.ratings
        U = started(self.parameters, self.facts, self.member.users, "users", self.name)
        V = started(self.parameters, self.facts, self.member.items, "items", self.name)
        stream = derive(self.facts.seed, self.name, "epochs")
        columns = ratings.users, ratings.items, ratings.values
        for _epoch in descend(columns, ratings.scale, (U, V), self.parameters, stream):
            self.home.update(users=U, items=V)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted(nonnegative(self.facts, self.home["items"]), self.home["users"])


class AloneOnDevice(Party):
    """One user's ratings tell nothing about other items: their own mean, shrunk towards the middle of the scale."""

    @step(Kind.PUBLIC, takes=Schema(t=Integer(0, 0)), what="confirmation that it has trained")
    def train(self, t: int) -> Release:
        ratings, scale = self.ratings, self.facts.scale
        sums = np.bincount(ratings.users, weights=ratings.values - np.float32(scale.low), minlength=ratings.n_users)
        self.home["means"] = (scale.low + (sums + scale.span / 2) / (ratings.counts + 1)).astype(np.float32)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted(own_mean(self.facts), self.home["means"][:, None])


def own_mean(facts: Facts) -> Linear:
    """A user's own mean, with one rating's worth of the middle of the scale in it."""
    return Linear.levels(np.zeros(facts.items, dtype=np.float32), facts.scale, shrinkage=1.0)


LOCAL = Method(
    name="local",
    title="Local training, each party alone",
    what="Each party trains on its own ratings and shares nothing. It is what a party has without the others.",
    parameters=DescentParameters,
    sides={
        Setting.HORIZONTAL: Sides(LocalCoordinator, Alone),
        Setting.VERTICAL: Sides(LocalCoordinator, Alone),
        Setting.DEVICE: Sides(LocalCoordinator, AloneOnDevice),
    },
    feedback=RATED,
    guaranteed=False,
)
