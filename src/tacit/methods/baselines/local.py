"""`local`: each party trains `als` on its own ratings alone. Nothing leaves it."""

import numpy as np

from tacit.boundary import Release
from tacit.boundary.release import Kind
from tacit.federation import Integer, Party, Schema, step
from tacit.methods.als.learner import form_of, payload_of
from tacit.methods.als.parameters import ALSParameters
from tacit.methods.als.pooled import sweeps
from tacit.methods.baselines.local_sgd import AloneOnDevice, LocalSGDCoordinator
from tacit.methods.context import Context
from tacit.methods.method import RATED, Method, Sides
from tacit.model import Bayesian, Fitted
from tacit.partition import Setting
from tacit.rng import derive


class LocalParameters(ALSParameters):
    """Parameters of `local`: those of `als`, but the rank follows from a party's own sizes."""

    def resolved(self, context: Context) -> "LocalParameters":
        return self


class LocalCoordinator(LocalSGDCoordinator):
    """Starts the parties, and learns nothing."""

    name = "local"


class Alone(Party):
    """Bayesian alternating least squares on the party's own ratings."""

    parameters: LocalParameters

    @step(Kind.PUBLIC, takes=Schema(t=Integer(0, 0)), what="confirmation that it has trained")
    def train(self, t: int) -> Release:
        stream = derive(self.facts.seed, self.name, "start", "items")
        features = self.facts.features_of(self.name)
        for form, states in sweeps(self.ratings, features, self.parameters, stream):
            self.home.update(users=states, **payload_of(form))
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted(form_of(self.facts.scale, {name: self.home[name] for name in PAYLOAD}), self.home["users"])


PAYLOAD = (*Bayesian.arrays, "numbers")
LOCAL = Method(
    name="local",
    title="Local training, each party alone",
    what=(
        "Each party trains Bayesian alternating least squares on its own ratings and shares nothing. It is what a "
        "party has without the others."
    ),
    parameters=LocalParameters,
    sides={
        Setting.HORIZONTAL: Sides(LocalCoordinator, Alone),
        Setting.VERTICAL: Sides(LocalCoordinator, Alone),
        Setting.DEVICE: Sides(LocalCoordinator, AloneOnDevice),
    },
    feedback=RATED,
    guaranteed=False,
)
