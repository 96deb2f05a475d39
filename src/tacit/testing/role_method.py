"""A small method with a role beside its parties, for tests of what every role must do, in one process and apart.

Parties send, once a round, the sum of their deviations; the catalogue counts how often it was asked, and sends a
weight for each item that it alone knows. Nothing of it is a good recommender.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Federation, Floats, Integer, Party, Role, Schema, step
from tacit.methods.context import Context
from tacit.methods.method import Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting

ITEMS = Schema(items=Floats("items"))


class WeighedParameters(Parameters):
    """Parameters of `weighed-means`."""

    rounds: int = Field(default=3, ge=1, le=100)


class WeighedCoordinator(Coordinator):
    """A sum over parties each round, weighed by what the catalogue says to it."""

    def run(self, federation: Federation) -> Model:
        items = np.zeros(self.facts.items, dtype=np.float32)
        for t in federation.rounds(self.parameters.rounds):
            total = federation.sum("deviations")
            answer = federation.ask("weigh", to="catalogue", items=total["items"].astype(np.float32), t=t)["catalogue"]
            items = (items + answer["items"] * np.float32(answer["asked"])).astype(np.float32)
            federation.show(items=items)
        federation.ask("finish", items=items)
        return Model("weighed-means", self.facts.scale, self.facts.item_ids, Linear.scores(items, self.facts.scale))


class WeighedParty(Party):
    """A silo that sends sums, and scores items by what came back."""

    @step(Kind.SUM, takes=Schema(), gives=ITEMS, what="per item, the sum of its users' deviations from the middle")
    def deviations(self) -> Release:
        scale = self.facts.scale
        return self.gate.sum(self.ratings, {"items": self.ratings.values - np.float32(scale.low + scale.span / 2)})

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that the scores have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = items.copy()
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted.same_for_all(Linear.scores(self._latest("items", shared), self.facts.scale), self.member.users)


class WeighingCatalogue(Role):
    """Knows a weight for each item, if it brought one, and how often it was asked, which it keeps at home."""

    @step(
        Kind.PUBLIC,
        takes=Schema(items=Floats("items"), t=Integer(0, 100)),
        gives=Schema(items=Floats("items"), asked=Integer(1, 101)),
        what="the sums that the coordinator sent, weighed by what only the catalogue knows of items",
    )
    def weigh(self, items: np.ndarray, t: int) -> Release:
        self.home["asked"] = asked = np.asarray(self.home.get("asked", 0)) + 1
        weights = (
            np.ones(len(items)) if self.own_catalogue is None else 1 + np.abs(self.own_catalogue.features()).sum(axis=1)
        )
        seen = self.home["seen"] = np.asarray(self.home.get("seen", np.zeros(len(items)))) + items
        return self.gate.send(items=(weights * seen).astype(np.float32), asked=int(asked))


def specs(parameters: WeighedParameters, context: Context) -> Sequence[Spec]:
    """One sum a round."""
    return [Spec("deviations", Normalised(("items",)), releases=parameters.rounds)]


WEIGHED = Method(
    name="weighed-means",
    title="Means that a catalogue weighs",
    what="A method for tests: sums of deviations, weighed by a role that holds no ratings.",
    parameters=WeighedParameters,
    sides={Setting.HORIZONTAL: Sides(WeighedCoordinator, WeighedParty, specs, {"catalogue": WeighingCatalogue})},
)


def install(folder: Path) -> Path:
    """Make `folder` a place, for PYTHONPATH, in which this method is installed as another package's method would be."""
    info = folder / "tacit_weighed-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tacit-weighed\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[tacit.methods]\nweighed-means = tacit.testing.role_method:WEIGHED\n")
    return folder
