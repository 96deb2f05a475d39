"""`local`: each party trains `als` and `ease` on its own data alone. Nothing leaves it."""

from dataclasses import replace
from functools import cached_property

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.data.ratings import Feedback
from tacit.federation import Facts, Federation, Integer, Party, Schema, step
from tacit.methods.als.learner import form_of, payload_of
from tacit.methods.als.pooled import rows, sweeps
from tacit.methods.als_and_ease import BothParameters
from tacit.methods.baselines.local_sgd import AloneOnDevice, LocalSGDCoordinator
from tacit.methods.context import Context
from tacit.methods.ease_pooled import between_items_of
from tacit.methods.method import Method, Sides
from tacit.model import Bayesian, Fitted, ItemItem, Linear, Model, RatedAndRanked
from tacit.partition import Setting
from tacit.rng import derive


class LocalParameters(BothParameters):
    """Parameters of `local`: those of `als` and `ease`, but rank and head follow from a party's own sizes."""

    def resolved(self, context: Context) -> "LocalParameters":
        return self


class LocalCoordinator(LocalSGDCoordinator):
    """Starts the parties, and learns nothing."""

    name = "local"

    def run(self, federation: Federation) -> Model:
        model = super().run(federation)
        return model if self.facts.feedback is not Feedback.IMPLICIT else replace(model, form=no_order(self.facts))


class Alone(Party):
    """`als` on the party's own ratings, where it has any, and `ease` on which items its users took."""

    parameters: LocalParameters

    @step(Kind.PUBLIC, takes=Schema(t=Integer(0, 0)), what="confirmation that it has trained")
    def train(self, t: int) -> Release:
        stream = derive(self.facts.seed, self.name, "start", "items")
        features = self.facts.features_of(self.name)
        if self.facts.feedback is not Feedback.IMPLICIT:
            for form, states in sweeps(self.ratings, features, self.parameters, stream):
                self.home.update(users=states, **payload_of(form))
        return self.gate.public("done")

    @cached_property
    def _ranks(self) -> ItemItem:
        return between_items_of(self.ratings, self.parameters)

    def at_home(self, **shared: np.ndarray) -> Fitted:
        taken = self._ranks.fold_in(*rows(self.ratings))
        if self.facts.feedback is Feedback.IMPLICIT:
            return Fitted(self._ranks, taken)
        rates = form_of(self.facts.scale, {name: self.home[name] for name in PAYLOAD})
        return Fitted(RatedAndRanked.of(rates, self._ranks), np.hstack([self.home["users"], taken]))


class OnDevice(AloneOnDevice):
    """One user's ratings say nothing about other items, and one user's clicks say nothing at all."""

    def at_home(self, **shared: np.ndarray) -> Fitted:
        if self.facts.feedback is Feedback.IMPLICIT:
            return Fitted.same_for_all(no_order(self.facts), self.member.users)
        return super().at_home(**shared)


def no_order(facts: Facts) -> Linear:
    """Every item has the same score."""
    return Linear.scores(np.zeros(facts.items, dtype=np.float32), facts.scale, rates=False)


PAYLOAD = (*Bayesian.arrays, "numbers")
LOCAL = Method(
    name="local",
    title="Local training, each party alone",
    what=(
        "Each party trains Bayesian alternating least squares and weights between items on its own ratings and shares "
        "nothing. It is what a party has without the others."
    ),
    parameters=LocalParameters,
    sides={
        Setting.HORIZONTAL: Sides(LocalCoordinator, Alone),
        Setting.VERTICAL: Sides(LocalCoordinator, Alone),
        Setting.DEVICE: Sides(LocalCoordinator, OnDevice),
    },
    guaranteed=False,
)
