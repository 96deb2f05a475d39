"""`central`, the ceiling: every party sends its data as it is; `als` and `ease` are trained on all of it."""

import numpy as np

from tacit.data.ratings import Feedback, Ratings
from tacit.data.vocabulary import Vocabulary
from tacit.federation import Facts, Federation
from tacit.methods.als.learner import form_of, payload_of
from tacit.methods.als.pooled import rows, sweeps
from tacit.methods.als_and_ease import BothParameters
from tacit.methods.baselines.central_sgd import Disclosing, pooled
from tacit.methods.ease_pooled import between_items_of
from tacit.methods.method import Coordinator, Method, Sides
from tacit.model import Bayesian, Fitted, ItemItem, Model, RatedAndRanked
from tacit.model.forms import arrays_of
from tacit.partition import Setting
from tacit.rng import derive


class CentralCoordinator(Coordinator):
    """Pools the ratings, finds the weights between items, and sweeps over the ratings."""

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        ratings = in_rows(facts, *pooled(facts, federation.ask("surrender")))
        ranks = between_items_of(ratings, self.parameters)
        taken, weights = ranks.fold_in(*rows(ratings)), arrays_of(ranks)
        if facts.feedback is Feedback.IMPLICIT:
            for _ in federation.rounds(1):
                federation.show(users=taken, **weights)
            return Model("central", facts.scale, facts.item_ids, ranks, states=taken)
        stream, count = derive(facts.seed, "start", "items"), max(1, self.parameters.sweeps)
        fitting = sweeps(ratings, facts.catalogue.features(), self.parameters, stream)
        for t, (rates, found) in zip(federation.rounds(count), fitting, strict=True):
            last = t == count - 1
            states = np.hstack([found, taken]) if last else found
            federation.show(users=states, **payload_of(rates), **(weights if last else {}))
        return Model("central", facts.scale, facts.item_ids, RatedAndRanked.of(rates, ranks), states=states)


class CentralParty(Disclosing):
    """A party that sends all of its data, and predicts with what all of it gave."""

    def at_home(self, **shared: np.ndarray) -> Fitted:
        form, states = self._form(shared), shared["users"]
        if self.facts.setting is Setting.VERTICAL:
            return Fitted(form.of_items(self.member.columns), states)
        first = self.facts.first_user(self.name)
        return Fitted(form, states[first : first + self.member.users])

    def _form(self, shared: dict[str, np.ndarray]) -> Bayesian | ItemItem | RatedAndRanked:
        """What is shared so far: weights between items, and where there are ratings, what predicts them."""
        if "items" not in shared:
            return weights_of(shared)
        rates = form_of(self.facts.scale, shared)
        return RatedAndRanked.of(rates, weights_of(shared)) if "weights" in shared else rates


def weights_of(shared: dict[str, np.ndarray]) -> ItemItem:
    """The weights between items, as they were shared."""
    return ItemItem(**{name: shared[name] for name in ItemItem.arrays})


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
        "them to predict ratings, and weights between items to rank. It protects nothing; it shows the best that could "
        "be reached."
    ),
    parameters=BothParameters,
    sides=dict.fromkeys(Setting, Sides(CentralCoordinator, CentralParty)),
    guaranteed=False,
)
