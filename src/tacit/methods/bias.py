"""`bias`: noisy item means from one sum, and user biases fitted at home. The floor of every private model.

Each user centres their ratings by their own mean and sends, for each rated item, (w·e, w·s), scaled so that the whole
contribution has norm 1 (an empty record sends 0). From the noised sums alone the weight that each item got, and how far
its ratings lie from their users' means, are estimated by empirical Bayes; every user then fits their own level at home.

    r̂_uj = level_u + b_j,   b_j = τ²·S_j·(A_j − S_j·b̄)/(τ²·S_j² + v_j) + b̄

Where users are divided, all parties' contributions become one sum and the coordinator estimates b. Where items are, a
silo holds all ratings of its items: it adds noise to the sums of these alone, estimates their b from the noised sums,
and releases only b. A user contributes to every silo then, at norm 1, and has a level in each.

Where the unit is one rating, that would be needlessly noisy: a user's mean and weight move with each rating, so one
rating moves everything the user sends, by up to 2. Then every rating goes into the sum by itself, as (r − middle, s),
without the user's mean or weight, and moves the sum by at most √((R/2)² + s²) (`Deviations`). b_j is then how far an
item lies from the middle of the scale, shrunk towards the mean over all ratings; levels are fitted as before.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.deviations import Deviations
from tacit.boundary.query import Query
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.data.ratings import Ratings
from tacit.federation import Facts, Federation, Floats, Party, Schema, step
from tacit.guarantee import Unit
from tacit.methods.context import Context
from tacit.methods.method import RATED, Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting


class BiasParameters(Parameters):
    """Parameters of `bias`.

    Parameters
    ----------
    count_weight : s, the weight in a contribution of the fact that an item was rated, next to how it was rated
    shrinkage : how many ratings' worth of the middle of the scale a user's own level starts with
    """

    count_weight: float = Field(default=0.7, gt=0, le=10)
    shrinkage: float = Field(default=5.0, ge=0)


class BiasCoordinator(Coordinator):
    """One sum, one model."""

    def run(self, federation: Federation) -> Model:
        for _ in federation.rounds(1):
            total = federation.sum("contribute")
            b = estimated(total.blocks, total.noise, self.parameters, self.facts)
            federation.show(biases=b)
        federation.ask("finish", biases=b)
        return shared_model(b, self.parameters, self.facts)


class VerticalBiasCoordinator(Coordinator):
    """Every silo's biases of its own items, side by side; 0 for those of a silo that does not answer."""

    def run(self, federation: Federation) -> Model:
        b = np.zeros(self.facts.items, dtype=np.float32)
        for _ in federation.rounds(1):
            for party, answer in federation.ask("contribute").items():
                b[self.facts.member(party).columns] = answer["biases"]
            federation.show(biases=b)
        return shared_model(b, self.parameters, self.facts)


class Levels(Party):
    """What both kinds of party do: prepare the data of sums for the unit, and predict from level and bias."""

    parameters: BiasParameters

    def _query_data(self) -> tuple[Any, ...]:
        """The data of the step's query, for the unit of the run."""
        return contribution(self.ratings, self.parameters, self.facts)

    def _levels(self, biases: np.ndarray) -> np.ndarray:
        """Each user's own level; (n,) float32."""
        return levels(self.ratings, biases, self.parameters.shrinkage, self.facts)

    def _predictor(self, b: np.ndarray) -> Fitted:
        return Fitted(Linear.levels(b, self.facts.scale, self.parameters.shrinkage), self._levels(b)[:, None])


class BiasParty(Levels):
    """A silo, or a cohort of devices: contributes once, then fits its users' levels at home."""

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(errors=Floats("items"), weights=Floats("items")),
        what=(
            "per item, the sum of its users' weighted deviations from their own means and of their weights; where the "
            "unit is a rating, of its ratings' deviations from the middle of the scale and of how many there are"
        ),
    )
    def contribute(self) -> Release:
        return self.gate.sum(*self._query_data())

    @step(Kind.PUBLIC, takes=Schema(biases=Floats("items")), what="confirmation that the item biases have arrived")
    def finish(self, biases: np.ndarray) -> Release:
        self.home["biases"] = biases.copy()
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return self._predictor(shared["biases"] if shared else self.home["biases"])


class VerticalBiasParty(Levels):
    """A silo that holds some of the items: a chain of one noisy answer, updated to biases by empirical Bayes."""

    @step(
        Kind.CHAIN,
        takes=Schema(),
        gives=Schema(biases=Floats("items")),
        what="how far each of its items lies from its users' means, or from the scale's middle, by noised sums alone",
    )
    def contribute(self) -> Release:
        noise = self.gate.noise

        def update(state: dict[str, Any], noised: dict[str, np.ndarray], step: int) -> dict[str, Any]:
            return {"biases": estimated(noised, noise, self.parameters, self.facts)}

        return self.gate.chain(*self._query_data(), update=update, release=("biases",))

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return self._predictor(shared["biases"][self.member.columns] if shared else self.home["biases"])


def contribution(ratings: Ratings, parameters: BiasParameters, facts: Facts) -> tuple[Any, ...]:
    """The data of the sum's query: ratings alone where these are the unit, else also deviations from users' means."""
    if facts.unit is Unit.RATING:
        return (ratings,)
    means = levels(ratings, np.zeros(ratings.n_items, dtype=np.float32), parameters.shrinkage, facts)
    channels = {
        "errors": ratings.values - means[ratings.users],
        "weights": np.full(ratings.n_ratings, parameters.count_weight, dtype=np.float32),
    }
    return ratings, channels


def levels(ratings: Ratings, biases: np.ndarray, shrinkage: float, facts: Facts) -> np.ndarray:
    """Each user's own level: the mean of their ratings less the biases, shrunk; (n,) float32."""
    scale, k = facts.scale, shrinkage
    clipped = np.clip(ratings.values, scale.low, scale.high)
    sums = np.bincount(ratings.users, weights=clipped - biases[ratings.items], minlength=ratings.n_users)
    middle = scale.low + scale.span / 2
    with np.errstate(invalid="ignore"):
        found = (sums + k * middle) / (ratings.counts + k)
    return np.where(ratings.counts + k > 0, found, middle).astype(np.float32)


def estimated(sums: Mapping[str, np.ndarray], noise: float, parameters: BiasParameters, facts: Facts) -> np.ndarray:
    """b from noised sums whose every cell carries noise of that standard deviation; (m,) float32.

    Sums of single ratings are in quarters of the scale, the assumed deviation of a rating from its item's mean; no item
    lies further than R/2 from the middle.
    """
    s, span = parameters.count_weight, facts.scale.span
    A, weights = (np.asarray(sums[name], dtype=np.float64) for name in ("errors", "weights"))
    if facts.unit is Unit.RATING:
        quarter = span / 4
        b = quarter * item_biases(A / quarter, weights / s, noise / quarter, noise / s, spread=1.0)
        return np.clip(b, -span / 2, span / 2).astype(np.float32)
    b = item_biases(A, weights / s, noise, noise / s)
    return np.clip(b, -span, span).astype(np.float32)


def item_biases(A: np.ndarray, S: np.ndarray, sigma: float, weight_sigma: float, spread: float = 0.02) -> np.ndarray:
    """b_j from A_j = S_j·b_j + noise and a noised S_j alone, by empirical Bayes, which costs nothing; (m,) float64.

    Parameters
    ----------
    A : (m,) noised sums of weighted deviations, from each user's own mean or from the middle of the scale
    S : (m,) noised sums of weights
    sigma, weight_sigma : standard deviations of the noise on A and on S; 0 where there is none
    spread : how much a single weighted deviation varies, per unit of weight
    """
    mean = A.sum() / max(S.sum(), 1e-9)
    if weight_sigma < 0.02 * float(np.maximum(S, 0).mean()):  # the weights are as good as known
        weights, masses = np.maximum(S, 0)[:, None], np.ones((len(S), 1))
    else:
        grid, masses = weight_posterior(S, weight_sigma)
        weights = grid[None, :]
    best, chosen = np.inf, mean + np.zeros_like(A)
    for tau2 in np.exp(np.linspace(-6, 1, 29)):
        variance = weights**2 * tau2 + spread * weights + sigma**2 + 1e-12
        residual = A[:, None] - weights * mean
        log_likelihood = -0.5 * (np.log(variance) + residual**2 / variance)
        highest = log_likelihood.max(axis=1, keepdims=True)
        joint = masses * np.exp(log_likelihood - highest)
        evidence = np.log(joint.sum(axis=1)) + highest[:, 0]
        if -evidence.sum() < best:
            best = -evidence.sum()
            gain = tau2 * weights / variance
            chosen = mean + (joint * gain * residual).sum(axis=1) / joint.sum(axis=1)
    return chosen


def weight_posterior(S: np.ndarray, sigma: float, points: int = 120, sweeps: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """A grid of true weights, and for each item its posterior over the grid, by non-parametric empirical Bayes.

    The prior over the grid is the one that makes the noised weights most likely (EM); (g,) and (m, g).
    """
    top = max(float(S.max()), sigma, 1e-6)
    grid = np.concatenate(([0.0], np.geomspace(top / 2000, top * 1.05, points - 1)))
    likelihood = np.exp(-0.5 * np.square((S[:, None] - grid[None, :]) / sigma))
    likelihood = np.maximum(likelihood, 1e-300)
    prior = np.full(points, 1 / points)
    for _ in range(sweeps):
        posterior = likelihood * prior
        posterior /= posterior.sum(axis=1, keepdims=True)
        prior = posterior.mean(axis=0)
    posterior = likelihood * prior
    return grid, posterior / posterior.sum(axis=1, keepdims=True)


def shared_model(b: np.ndarray, parameters: BiasParameters, facts: Facts) -> Model:
    """The shared model: b, to which a new user fits a level from their own ratings, as parties do.

    Items are ranked by level + b, not cut to the scale: cut, many would be alike for users who rate high.
    """
    form = replace(Linear.levels(b, facts.scale, parameters.shrinkage), order=b, personal=1.0)
    return Model("bias", facts.scale, facts.item_ids, form)


def specs(parameters: BiasParameters, context: Context) -> Sequence[Spec]:
    """One release of one answer, of every silo where items are divided; forecast for |Ω|/n ratings of each user."""
    facts, silos = context.facts, context.parties if context.setting is Setting.VERTICAL else 1
    s, deviation, each = parameters.count_weight, facts.scale.span / 4, facts.ratings / facts.users / silos
    query: Query = Normalised(("errors", "weights"))
    weight = 1 / math.sqrt(max(each, 1.0) * (deviation**2 + s**2))
    if context.unit is Unit.RATING:
        query, weight = Deviations(facts.scale, s), 1.0
    return [Spec("contribute", query, signal=facts.ratings / facts.items * weight * s)]


SIDES = Sides(BiasCoordinator, BiasParty, specs)
BIAS = Method(
    name="bias",
    title="Item and user biases",
    what=(
        "Every user sends, once, how far their ratings lie from their own mean, scaled to length one; the sum shows "
        "how far each item lies from its users' means. Where items are divided, each silo does so for its own items. "
        "Users fit their own level at home. Where single ratings are protected, each is sent as it is, less the "
        "middle of the scale."
    ),
    parameters=BiasParameters,
    sides={
        Setting.HORIZONTAL: SIDES,
        Setting.DEVICE: SIDES,
        Setting.VERTICAL: Sides(VerticalBiasCoordinator, VerticalBiasParty, specs),
    },
    feedback=RATED,
)
