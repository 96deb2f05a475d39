"""`central`, the ceiling: every party sends its ratings as they are, and `als` is trained on all of them."""

from dataclasses import replace

import numpy as np

from tacit.data.ratings import Ratings
from tacit.data.vocabulary import Vocabulary
from tacit.federation import Facts, Federation
from tacit.methods.als.learner import form_of, payload_of
from tacit.methods.als.parameters import ALSParameters
from tacit.methods.als.pooled import sweeps
from tacit.methods.baselines.central_sgd import Disclosing, pooled
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.model import Fitted, Model
from tacit.partition import Setting
from tacit.rng import derive


class CentralCoordinator(Coordinator):
    """Pools the ratings, then sweeps over them."""

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        ratings = in_rows(facts, *pooled(facts, federation.ask("surrender")))
        stream = derive(facts.seed, "start", "items")
        fitting = sweeps(ratings, facts.catalogue.features(), self.parameters, stream)
        for _t, (form, states) in zip(federation.rounds(max(1, self.parameters.sweeps)), fitting, strict=True):
            federation.show(users=states, **payload_of(form))
        return Model("central", facts.scale, facts.item_ids, form, states=states)


class CentralParty(Disclosing):
    """A party that sends all of its ratings, and predicts with what all of them gave."""

    def at_home(self, **shared: np.ndarray) -> Fitted:
        form, U = form_of(self.facts.scale, shared), shared["users"]
        if self.facts.setting is Setting.VERTICAL:
            here = self.member.columns
            return Fitted(replace(form, items=form.items[here], moments=form.moments[here]), U)
        first = self.facts.first_user(self.name)
        return Fitted(form, U[first : first + self.member.users])


def in_rows(facts: Facts, users: np.ndarray, items: np.ndarray, values: np.ndarray) -> Ratings:
    """Pooled ratings in compressed rows; users are known by their place in the roster."""
    order = np.lexsort((items, users))
    indptr = np.zeros(facts.users + 1, dtype=np.int64)
    np.cumsum(np.bincount(users, minlength=facts.users), out=indptr[1:])
    everyone = Vocabulary(np.arange(facts.users), "user")
    return Ratings(indptr, items[order], values[order], everyone, facts.item_ids, facts.scale)


CENTRAL = Method(
    name="central",
    title="Central training, all ratings in one place",
    what=(
        "Every party sends its ratings to the coordinator, which trains Bayesian alternating least squares on all of "
        "them. It protects nothing; it shows the best that could be reached."
    ),
    parameters=ALSParameters,
    sides=dict.fromkeys(Setting, Sides(CentralCoordinator, CentralParty)),
    feedback=RATED,
    guaranteed=False,
)
