"""The floor: a random order of items for each user. Nothing leaves a party."""

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.federation import Federation, Party, Schema, step
from tacit.methods.baselines.means import NoParameters
from tacit.methods.method import Coordinator, Method, Sides
from tacit.model import Fitted, Hashed, Model
from tacit.partition import Setting
from tacit.rng import id_keys


class RandomCoordinator(Coordinator):
    """A model of random keys, one per item."""

    def run(self, federation: Federation) -> Model:
        for _ in federation.rounds(1):
            federation.ask("ready")
        federation.show()
        keys = id_keys(self.facts.seed, "random item", self.facts.item_ids.ids)
        return Model("random", self.facts.scale, self.facts.item_ids, Hashed(keys))


class RandomParty(Party):
    """Scores that are a function of (seed, user id, item id)."""

    @step(Kind.PUBLIC, takes=Schema(), what="confirmation that it is there")
    def ready(self) -> Release:
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        seed, ratings = self.facts.seed, self.ratings
        users, items = ratings.user_ids.ids, ratings.item_ids.ids
        return Fitted(Hashed(id_keys(seed, "random item", items)), id_keys(seed, "random user", users)[:, None])


RANDOM = Method(
    "random",
    "Random order",
    "A random order of items for each user; nothing leaves a party.",
    NoParameters,
    dict.fromkeys(Setting, Sides(RandomCoordinator, RandomParty)),
    guaranteed=False,
)
