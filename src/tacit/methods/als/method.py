"""`als`: Bayesian alternating least squares. Users' posteriors stay at home, and every sweep is one sum over users.

    r = g + b_u + b_i + p_u·q_i + N(0, σ²_u)
    (b_u, p_u) ~ N(B_Uᵀf_u, Σ_U),  (b_i, q_i) ~ N(B_Iᵀf_i, Σ_I)
    f_i = [1, log n_i, its square, public features],  f_u = [1, log n_u, Σ_{i∈u} E(b_i, q_i)/√(n_u + 1)]

In a sweep every user finds their posterior from the items', and adds what it says about each of their items and about
the priors; the coordinator finds the items' posteriors and both priors, by empirical Bayes, from the sum. Nothing has
to be tuned: the rank follows from the sizes, k = N // (n + m), and priors decide how much of it is used. All of it is
sums over users, so silos and devices get the central model under every aggregation.
"""

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Federation, Floats, Party, Schema, Total, step
from tacit.methods.als import implicit, vertical
from tacit.methods.als.learner import Learner, form_of
from tacit.methods.als.noised import COUNT_WEIGHT, noised_start, noised_update
from tacit.methods.als.parameters import ALSParameters, EitherParameters
from tacit.methods.als.scaled import query, said
from tacit.methods.als.statistics import NOISE, ByItem, ItemTotals, Totals, UserStatistics, from_middle
from tacit.methods.context import Context
from tacit.methods.method import Coordinator, Forecast, Method, Sides
from tacit.model import Fitted, Model
from tacit.partition import Setting
from tacit.rng import derive

#: With [privacy]: the counts' part of the budget, and how many ratings of the middle a user's own mean starts with.
COUNTS, OWN = 0.3, 5.0


class ALSCoordinator(Coordinator):
    """One sum for counts and means, then one for each sweep."""

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        for _ in federation.rounds(1):
            learner = self._started(federation.sum("count"))
        for _t in federation.rounds(self.parameters.sweeps):
            total = federation.sum("sweep", **learner.payload)
            learner = learner.updated(total.blocks) if facts.unit is None else noised_update(learner, total)
            federation.show(**learner.payload)
        federation.ask("finish", to=None, **learner.payload)
        return Model("als", facts.scale, facts.item_ids, learner.form)

    def _started(self, counted: Total) -> Learner:
        facts, factors, stream = self.facts, self.parameters.factors, derive(self.facts.seed, "start", "items")
        if facts.unit is not None:
            return noised_start(facts, counted, factors, stream)
        counts, sums = counted["counts"], counted["sums"]
        return Learner.start(facts.scale, facts.users, counts, sums, factors, facts.catalogue.features(), stream)


SHARED = Schema(
    items=Floats("items", "factors"),
    moments=Floats("items", "pairs"),
    coefficients=Floats("user_features", "free"),
    precision=Floats("free", "free"),
    numbers=Floats(3),
)


class ALSParty(Party):
    """A silo, or a cohort of devices with one row each."""

    parameters: ALSParameters

    @cached_property
    def _by_item(self) -> ByItem:
        return ByItem.of(self.ratings)

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(counts=Floats("items"), sums=Floats("items")),
        what="per item, how often it was rated and the sum of its ratings",
    )
    def count(self) -> Release:
        ratings = self.ratings
        v, ones = from_middle(ratings.values, self.facts.scale), np.ones(ratings.n_ratings)
        if self.facts.unit is None:
            return self.gate.sum(ratings, {"counts": ones, "sums": v})
        sums = np.bincount(ratings.users, weights=v, minlength=ratings.n_users)
        own = (sums / (ratings.counts + OWN))[ratings.users]
        return self.gate.sum(ratings, {"counts": COUNT_WEIGHT * ones, "sums": v - own})

    @step(
        Kind.SUM,
        takes=SHARED,
        gives=Schema(
            moments=Floats("items", "pairs"),
            targets=Floats("items", "factors"),
            joint=Floats("joint"),
            errors=Floats(NOISE),
        ),
        what=(
            "per item, the sums over its users of their factors' second moments and of their ratings times their "
            "factors, both over the user's noise; and how users' factors, counts and errors vary"
        ),
    )
    def sweep(self, **shared: np.ndarray) -> Release:
        form = form_of(self.facts.scale, shared)
        noise = self.home.get("variances", np.full(self.member.users, form.noise))
        statistics = UserStatistics.at(form, self.ratings, self._by_item, noise)
        self.gate.store_private("variances", statistics.found.noise)
        self.gate.store_private("states", statistics.found.states)
        return self.gate.sum(statistics) if self.facts.unit is None else self.gate.sum(self.ratings, *said(statistics))

    @step(Kind.PUBLIC, takes=SHARED, what="the word that the shared part has arrived")
    def finish(self, **shared: np.ndarray) -> Release:
        self.home.update({name: array.copy() for name, array in shared.items()})
        form, ratings = form_of(self.facts.scale, shared), self.ratings
        self.gate.store_private("states", form.fold_in(ratings.indptr, ratings.items, ratings.values))
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        form, ratings = (
            form_of(self.facts.scale, {name: self._latest(name, shared) for name in SHARED.fields}),
            self.ratings,
        )
        if shared or "states" not in self.home:  # those at home were found for the model before
            return Fitted(form, form.fold_in(ratings.indptr, ratings.items, ratings.values))
        return Fitted(form, self.home["states"])


def specs(parameters: ALSParameters, context: Context) -> Sequence[Spec]:
    """One sum for counts, and one for each sweep; with [privacy] every user's part of each has length 1."""
    if context.target is None:
        return [Spec("count", ItemTotals()), Spec("sweep", Totals(), releases=parameters.sweeps)]
    facts, sweeps, counts = context.facts, parameters.sweeps, Normalised(("counts", "sums"))
    signal = math.sqrt(facts.ratings * facts.users) / facts.items  # Σ_u 1/√n_u of an item, about
    if not sweeps:
        return [Spec("count", counts, signal=COUNT_WEIGHT * signal)]
    return [
        Spec("count", counts, share=COUNTS, signal=COUNT_WEIGHT * signal),
        Spec("sweep", query(parameters.factors or 1), releases=sweeps, share=1 - COUNTS, signal=signal / 2),
    ]


def forecast(parameters: ALSParameters, context: Context) -> Forecast:
    """One round for counts, and one for each sweep."""
    return Forecast(rounds=1 + parameters.sweeps)


SIDES = Sides(ALSCoordinator, ALSParty, specs, forecast=forecast)
ALS = Method(
    name="als",
    title="Bayesian alternating least squares",
    what=(
        "Biases and factors of users and items with their uncertainty, priors learned from counts, public features and "
        "the user's own items, and noise per user. Users' factors stay at home; every sweep is one sum over users."
    ),
    parameters=EitherParameters,
    sides={
        Setting.HORIZONTAL: SIDES,
        Setting.DEVICE: SIDES,
        Setting.VERTICAL: Sides(vertical.VerticalCoordinator, vertical.VerticalParty, vertical.specs),
    },
    implicit={Setting.HORIZONTAL: implicit.SIDES, Setting.DEVICE: implicit.SIDES},
)
