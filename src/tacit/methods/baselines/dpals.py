"""`dpals`: private alternating least squares (Chien et al., ICML 2021), with weights per item (Krichene et al., 2023).

    r = middle + b_i + l_u + p_u·q_i
    at home      (l_u, p_u) by exact least squares on the user's own ratings;  x_u = (s, p_u), cut to norm Γ
    one sum      per item Σ_u c·x·xᵀ and Σ_u c·y·x, with Σ_i c² ≤ B for every user and y, what is left of a rating, cut
                 to ±y_max before it is added; noise; items solve least squares with the sum made positive semidefinite

Users are not sampled down to B ratings, as in the first paper, but weighted, as in the second. A first sum releases
item means and counts, and is charged: biases, the head of the catalogue (items outside it keep their means), weights of
items and starting factors come from it alone.

Traps in published code, and what closes them: centred ratings are cut before the sum, by the query; counts and centring
are a release like any other; head items are those with the largest *released* counts; and the unit "rating" is refused,
because a user's factors and weights are fitted to the whole record. `accounting = "paper"` leaves the first sum out of
the budget, as published, and states what the run then truly costs.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.least_squares import Weighted
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.errors import PrivacyRefused
from tacit.federation import Facts, Federation, Floats, Party, Schema, Total, step
from tacit.guarantee import Unit
from tacit.kernels.predict import predict_pairs
from tacit.methods.als.noised import COUNT_WEIGHT, directions
from tacit.methods.als.statistics import from_middle
from tacit.methods.baselines.item_solutions import solved
from tacit.methods.bias import item_biases
from tacit.methods.context import Context
from tacit.methods.method import DEPENDS, RATED, Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting
from tacit.rng import derive

#: How many ratings of the middle a user's own mean starts with, in the first sum.
OWN = 3.0
#: s, and how much more a target weighs than the products of factors beside it; sizes of starting factors.
ONE, TARGETS, START = 1.0, 6.0, 0.25
#: A priori, in quarters of the scale: the variances of what is left of a rating, of an item's bias and factors, and of
#: a user's level and factors.
LEFT, BIAS, FACTOR, LEVEL, TASTE = 0.75, 0.03, 0.015, 0.25, 0.125

#: The first sum's part of the budget, by μ·n.
MEANS_AT, MEANS_SHARES = (2_000, 10_000, 60_000), (0.7, 0.5, 0.3)


class DPALSParameters(Parameters):
    """Parameters of `dpals`; lengths are in quarters of the scale.

    Parameters
    ----------
    factors : k; by default 12, and with [privacy] 2 and 5 for each of two feature columns
    rounds : how often users and items are fitted to each other; by default 2, and 10 without [privacy]
    head : so many items, of the largest released counts, get factors; by default half of them
    budget : B, the squared weights that a user's ratings have together at most
    factor_clip : Γ, the largest norm of a user's factors
    target_clip : y_max, the largest deviation of a rating from what is expected
    item_weights : β: an item of count n weighs n^−β
    means_share : part of the budget for item means and counts; by default .7 to .3, more where there is more noise
    """

    factors: Annotated[int, DEPENDS] = Field(default=12, ge=1, le=64)
    rounds: Annotated[int, DEPENDS] = Field(default=2, ge=1, le=100)
    head: int | None = Field(default=None, ge=1)
    budget: float = Field(default=20.0, gt=0, le=1e6)
    factor_clip: float = Field(default=1.0, gt=0, le=100)
    target_clip: float = Field(default=1.0, gt=0, le=8)
    item_weights: float = Field(default=0.25, ge=0, le=1)
    means_share: Annotated[float, DEPENDS] = Field(default=0.5, gt=0, lt=1)

    @property
    def dimensions(self) -> dict[str, int]:
        k = self.factors
        return {"factors": k, "extended": k + 1, "pairs": (k + 1) * (k + 2) // 2}

    @property
    def query(self) -> Weighted:
        """Of one round."""
        return Weighted(self.budget, self.factor_clip, TARGETS * self.target_clip)

    def resolved(self, context: Context) -> "DPALSParameters":
        if context.unit is Unit.RATING:
            raise PrivacyRefused(
                "dpals protects users: factors and weights are fitted to a whole record, so one rating moves all that "
                'its user sends, and a claim per rating would be false; set unit = "user".'
            )
        facts, private = context.facts, context.target is not None
        update: dict[str, Any] = {"head": min(self.head or math.ceil(facts.items / 2), facts.items)}
        rule: dict[str, Any] = {"rounds": 10}
        if private:
            share = float(np.interp(context.mu * facts.users, MEANS_AT, MEANS_SHARES))
            rule = {"factors": 2 + 5 * min(facts.features, 2), "means_share": share}
        given = self.model_fields_set
        return self.model_copy(update=update | {name: x for name, x in rule.items() if name not in given})


class DPALSCoordinator(Coordinator):
    """One sum for means and counts, then one for each round."""

    parameters: DPALSParameters

    def run(self, federation: Federation) -> Model:
        facts = self.facts
        shared = self.started(federation.sum("means"))
        weights = shared.pop("weights")
        for _ in federation.rounds(self.parameters.rounds):
            shared = self.updated(shared, federation.sum("solve", **shared, weights=weights), weights > 0)
            federation.show(**shared)
        federation.ask("finish", None, **shared)
        return Model("dpals", facts.scale, facts.item_ids, form_of(facts, **shared))

    def started(self, total: Total) -> dict[str, np.ndarray]:
        """Item biases by empirical Bayes, factors along released popularity, bias and public features, and weights."""
        facts, k = self.facts, self.parameters.factors
        A, S = (np.asarray(total[name], dtype=np.float64) for name in ("errors", "counts"))
        b = np.clip(item_biases(A, S / COUNT_WEIGHT, total.noise, total.noise / COUNT_WEIGHT), -2, 2)
        counts = np.maximum(S, max(total.noise, 1e-3))
        stream = derive(facts.seed, "start", "items")
        Q = START * directions(np.log(counts), b, facts.catalogue.features(), k, stream)
        weights = (counts / counts.mean()) ** -self.parameters.item_weights
        weights[np.argsort(-S, kind="stable")[self.parameters.head :]] = 0
        return {name: x.astype(np.float32) for name, x in (("biases", b), ("factors", Q), ("weights", weights))}

    def updated(self, shared: dict[str, np.ndarray], total: Total, head: np.ndarray) -> dict[str, np.ndarray]:
        """Biases and factors of the head that explain what was left better; those of the tail stay."""
        facts, parameters = self.facts, self.parameters
        prior = np.array([BIAS / ONE**2, *[FACTOR] * parameters.factors])
        weight = min(1.0, math.sqrt(parameters.budget * facts.users / max(facts.ratings, 1)))
        moment = total["moment"] / np.float32(TARGETS)
        found = solved(total["gram"], moment, prior, weight * LEFT, total.noise / TARGETS) * head[:, None]
        b = np.clip(shared["biases"] + ONE * found[:, 0], -4, 4)
        return {"biases": b.astype(np.float32), "factors": (shared["factors"] + found[:, 1:]).astype(np.float32)}


SHARED = Schema(biases=Floats("items"), factors=Floats("items", "factors"))


class DPALSParty(Party):
    """A silo, or a cohort of devices with one row each; a user without ratings adds exactly 0 to every sum."""

    parameters: DPALSParameters

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(errors=Floats("items"), counts=Floats("items")),
        what="per item, the sum of its users' weighted deviations from their own means and of their weights",
    )
    def means(self) -> Release:
        ratings = self.ratings
        v = from_middle(ratings.values, self.facts.scale)
        own = np.bincount(ratings.users, weights=v, minlength=ratings.n_users) / (ratings.counts + OWN)
        return self.gate.sum(
            ratings, {"errors": v - own[ratings.users], "counts": np.full(ratings.n_ratings, COUNT_WEIGHT)}
        )

    @step(
        Kind.SUM,
        takes=Schema(**SHARED.fields, weights=Floats("items")),
        gives=Schema(gram=Floats("items", "pairs"), moment=Floats("items", "extended")),
        what="per item, the weighted sums over its users of products of their factors, and of what is left of their "
        "ratings times their factors",
    )
    def solve(self, weights: np.ndarray, **shared: np.ndarray) -> Release:
        with np.errstate(all="ignore"):
            ratings, form = self.ratings, form_of(self.facts, **shared)
            states = form.fold_in(ratings.indptr, ratings.items, ratings.values)
            expected = form.base[ratings.items] + predict_pairs(states, form.items, ratings.users, ratings.items)
            left = (np.clip(ratings.values, form.low, form.high) - expected) / (self.facts.scale.span / 4)
            x = np.concatenate([np.full((ratings.n_users, 1), ONE), states[:, 1:]], axis=1)
            return self.gate.sum(ratings, weights[ratings.items], TARGETS * left, x)

    @step(Kind.PUBLIC, takes=SHARED, what="the word that the shared model has arrived")
    def finish(self, **shared: np.ndarray) -> Release:
        self.home.update({name: array.copy() for name, array in shared.items()})
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        form = form_of(self.facts, **{name: self._latest(name, shared) for name in SHARED.fields})
        return Fitted(form, form.fold_in(self.ratings.indptr, self.ratings.items, self.ratings.values))


def form_of(facts: Facts, biases: np.ndarray, factors: np.ndarray) -> Linear:
    """The shared model: a user's state is their level and factors, in quarters of the scale."""
    scale, m = facts.scale, len(biases)
    unit = np.float32(scale.span / 4)
    base = np.float32(scale.low + scale.span / 2) + unit * biases
    items = unit * np.concatenate([np.ones((m, 1), dtype=np.float32), factors], axis=1)
    precision = np.diag(unit**2 * LEFT / np.array([LEVEL, *[TASTE] * factors.shape[1]])).astype(np.float32)
    return Linear(scale.low, scale.high, base, items, np.zeros(len(precision), dtype=np.float32), precision)


def specs(parameters: DPALSParameters, context: Context) -> Sequence[Spec]:
    """Item means and counts, and the statistics of every round; forecasts are for |Ω|/n ratings of each user.

    Guarantee
    ---------
    A user adds a vector of norm 1 to `means` (`Normalised`), and one of norm √B·Γ·√(Γ² + (w·y_max)²) at most to each
    `solve`, products and targets together (`Weighted`), w being `TARGETS`; an empty record adds exactly 0. That is the
    sensitivity per user under zero-out. What the two are computed from is the user's own record and released values.
    """
    facts, share, query = context.facts, parameters.means_share, parameters.query
    each = max(facts.ratings / facts.users, 1.0)
    mean_weight, weight = 1 / math.sqrt(each * (1 + COUNT_WEIGHT**2)), min(1.0, math.sqrt(parameters.budget / each))
    raters = facts.ratings / facts.items
    return [
        Spec("means", Normalised(("errors", "counts")), share=share, signal=raters * mean_weight * COUNT_WEIGHT),
        Spec("solve", query, releases=parameters.rounds, share=1 - share, signal=raters * weight * ONE),
    ]


def published(parameters: DPALSParameters, context: Context) -> float | None:
    """The published accounting, which charges the rounds alone: with `means` for free they get the whole budget."""
    return None if context.target is None else math.sqrt(1 - parameters.means_share) / context.mu


SIDES = Sides(DPALSCoordinator, DPALSParty, specs)
DPALS = Method(
    name="dpals",
    title="Private alternating least squares",
    what=(
        "Users solve for their own factors at home, and add bounded statistics of their ratings and factors to one "
        "noised sum a round, from which items' factors are solved (Chien et al., 2021)."
    ),
    parameters=DPALSParameters,
    sides={Setting.HORIZONTAL: SIDES, Setting.DEVICE: SIDES},
    feedback=RATED,
    claim=published,
)
