"""`als` and `ease` as one method, which `auto` is without privacy: the one rates, the other ranks.

Both are sums over users, so silos and devices get the model of all data in one place, under every aggregation. Where
feedback is implicit there is nothing to rate, and it is `ease` alone.
"""

from dataclasses import replace
from typing import cast

import numpy as np

from tacit.boundary.spec import Spec
from tacit.data.ratings import Feedback
from tacit.federation import Federation
from tacit.methods import als, ease
from tacit.methods.als.method import ALSCoordinator, ALSParameters, ALSParty
from tacit.methods.context import Context
from tacit.methods.ease import EaseCoordinator, EaseParameters, EaseParty
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.model import Bayesian, Fitted, ItemItem, Model, RatedAndRanked
from tacit.partition import Setting


class BothParameters(EaseParameters, ALSParameters):
    """Parameters of `als` and of `ease`.

    Parameters
    ----------
    factors, sweeps : as for `als`
    head, regularization, denoising : as for `ease`
    """

    def resolved(self, context: Context) -> "BothParameters":
        return cast(BothParameters, super().resolved(context))


class BothCoordinator(Coordinator):
    """What is taken together, then what is rated."""

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        ranks = EaseCoordinator(self.parameters, facts).closed_form(federation)
        rates = cast(Bayesian, ALSCoordinator(self.parameters, facts).run(federation).form)
        return Model("auto", facts.scale, facts.item_ids, RatedAndRanked.of(rates, ranks))


class BothParty(ALSParty, EaseParty):
    """A silo, or a cohort of devices with one row each."""

    parameters: BothParameters

    def at_home(self, **shared: np.ndarray) -> Fitted:
        rated = ALSParty.at_home(self, **shared)
        if "items" not in self.home:  # sweeps go on, and move ratings alone
            return rated
        ranked = EaseParty.at_home(self, **shared)
        form = RatedAndRanked.of(cast(Bayesian, rated.form), cast(ItemItem, ranked.form))
        return Fitted(form, np.hstack([rated.states, ranked.states]))


class AloneCoordinator(EaseCoordinator):
    """`ease` under the name of `auto`."""

    def run(self, federation: Federation) -> Model:
        return replace(super().run(federation), method="auto")


def specs(parameters: BothParameters, context: Context) -> list[Spec]:
    """The sums of both, without noise."""
    return [*ease.specs(parameters, context), *als.method.specs(parameters, context)]


BOTH = Sides(BothCoordinator, BothParty, specs)
ALS_AND_EASE = Method(
    name="auto",
    title="Alternating least squares for ratings, items that occur together for the ranking",
    what=(
        "Bayesian alternating least squares predicts ratings, and which items users rated together ranks what a user "
        "has not rated. All that crosses is sums over users."
    ),
    parameters=BothParameters,
    sides={Setting.HORIZONTAL: BOTH, Setting.DEVICE: BOTH},
    feedback=RATED,
)
ALONE = Sides(AloneCoordinator, EaseParty, ease.specs)
EASE_ALONE = replace(
    ease.EASE,
    name="auto",
    sides={Setting.HORIZONTAL: ALONE, Setting.DEVICE: ALONE},
    feedback=frozenset({Feedback.IMPLICIT}),
)
