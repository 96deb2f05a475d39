"""`am-dpsgd`: alternating minimisation by DP gradient steps whose weights adapt to how often items are rated.

    r̂_uj = middle + level_u + b_j + p_u·q_j

Users solve for level_u and p_u exactly, at home, given the items' y_j = (b_j, q_j). Items take gradient steps on sums
over users, in which a user's ratings of rare items weigh more than those of popular ones:

    w_uj = d_j^−α / √(Σ_{i∈u} d_i^−2α)              d: counts, released and charged before
    g_u  = (w_uj·e_uj·x_u)_j,  x_u = (1, p_u)       e: errors;  clipped as a whole to ℓ2 norm C
    y_j ← y_j + η_j·(Σ_u g_uj + noise − λ·(y_j − start_j))

The start of b is what the method `bias` would estimate from the same release; λ shrinks towards it. Users solve anew
for every step, which costs nothing. The model is the mean of the later steps' items. Everything that the coordinator
uses besides the two kinds of noised sums is public.

Krichene, Jain, Song, Sundararajan, Thakurta, Zhang: Multi-Task Differential Privacy Under Distribution Skew. ICML 2023.
There ratings' gradients are clipped one by one, to γ with Σ_j w² ≤ β, for √β·γ; here a user's are clipped together,
which bounds the same sum and wastes less of the bound, and b has a start.

Guarantee
---------
Per user, zero-out: an empty record adds exactly 0 to every sum. The counts' release has sensitivity 1 (`Normalised`). A
step's sum has sensitivity C: the user's terms fall in different rows, since there is one rating per user and item, and
their norm √(Σ_j (w·e·‖x‖)²)·‖x/‖x‖‖ is cut to C whatever w, e and x are (`Weighted` with B = C², Γ = y_max = 1). x_u
depends on the user's own record and on released items; the weights on the user's own items and on noised counts. All
T + 1 plain Gaussians compose. Per rating it is refused: one rating moves level, p_u and all w_u·, and with them
everything that its user adds, so nothing cheaper than the whole record replaced could be promised.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised, bounded_rows
from tacit.boundary.least_squares import Weighted
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.data.ratings import Scale
from tacit.errors import PrivacyRefused
from tacit.federation import Federation, Floats, Party, Schema, Total, step
from tacit.guarantee import Unit
from tacit.methods.bias import BiasParameters, contribution, estimated
from tacit.methods.context import Context
from tacit.methods.counts import Measured, posterior_counts
from tacit.methods.method import RATED, Coordinator, Method, Parameters, Sides
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting
from tacit.rng import derive

#: A level's and a factor's prior precision, in ratings, at home.
LEVEL, TASTE = 8.0, 1.0
#: λ of biases and of factors, in standard deviations of all steps' noise together.
BIASES_HELD, FACTORS_HELD = 3.0, 8.0
#: A factor's curvature in parts of a bias's.
FACTORS_CURVED = 0.5
#: Steps, and factors, for each unit of how far an item's sum stands out of the noise; and the most of both.
STEPS, FACTORS = 4.0, 1 / 12
MOST_STEPS, MOST_FACTORS = 150, 8
#: The first factors' standard deviation, in quarters of the scale.
SPREAD = 0.03
#: Counts below this part of their mean weigh like it.
RAREST = 0.1
#: The part of the steps that are not in the mean.
EARLY = 0.25
#: No bias or factor is larger, whoever sent it.
LARGEST = 16.0
#: As `bias` has it: the weight of the fact that an item was rated, and the shrinkage of a user's mean.
START = BiasParameters()


class AMParameters(Parameters):
    """Parameters of `am-dpsgd`; errors are in quarters of the scale.

    Parameters
    ----------
    factors : k, beside the biases; by default 0 to 8, the more the further an item's sums stand out of the noise
    rounds : T, gradient steps, before each of which users solve anew; by default 5 to 150, by the same rule
    rate : η, a step in parts of what an item's curvature allows
    clip : C, the largest norm of what one user adds to a step
    skew : α, by which weights fall with an item's count; 0 weighs all alike
    counts_share : part of the budget for the counts, and for the biases that come with them
    """

    factors: int | None = Field(default=None, ge=0, le=256)
    rounds: int | None = Field(default=None, ge=1, le=10_000)
    rate: float = Field(default=0.2, gt=0, le=1)
    clip: float = Field(default=0.85, gt=0, le=1e6)
    skew: float = Field(default=0.35, ge=0, le=1)
    counts_share: float = Field(default=0.1, gt=0, lt=1)

    @property
    def dimensions(self) -> dict[str, int]:
        return {"columns": 1 + (self.factors or 0)}

    def resolved(self, context: Context) -> "AMParameters":
        if context.unit is Unit.RATING:
            raise PrivacyRefused(
                "am-dpsgd fits users' factors and weights at home, and one rating moves everything that its user adds: "
                'per rating it could promise no less than per user; use unit = "user".'
            )
        facts, update = context.facts, {}
        signal = min(context.mu * math.sqrt(facts.ratings * facts.users) / facts.items, 1e6)
        if self.factors is None:
            update["factors"] = min(int(FACTORS * signal), MOST_FACTORS)
        if self.rounds is None:
            update["rounds"] = min(max(round(STEPS * signal), 5), MOST_STEPS)
        return self.model_copy(update=update)


def form_of(scale: Scale, items: np.ndarray) -> Linear:
    """middle + level + b_j + p·q_j, with (b, q) and the user's (level, p) in quarters of the scale; (b, q) is cut."""
    quarter, k = scale.span / 4, items.shape[1] - 1
    items = np.clip(items, -LARGEST, LARGEST)
    base = (scale.low + scale.span / 2 + quarter * items[:, 0]).astype(np.float32)
    columns = quarter * np.concatenate([np.ones((len(items), 1)), items[:, 1:]], axis=1).astype(np.float32)
    precision = quarter**2 * np.diag([LEVEL] + k * [TASTE]).astype(np.float32)
    return Linear(scale.low, scale.high, base, columns, np.zeros(1 + k, dtype=np.float32), precision)


class AMCoordinator(Coordinator):
    """Counts and a start, then T steps."""

    parameters: AMParameters

    def run(self, federation: Federation) -> Model:
        facts, T = self.facts, self.parameters.rounds or 1
        counted = federation.sum("count")
        y = mean = start = self._start(counted)
        d = self._counts(counted)
        weights = (d**-self.parameters.skew).astype(np.float32)
        for t in federation.rounds(T):
            total = federation.sum_unless_void("descend", items=y, weights=weights)
            if total is not None:
                y = (y + self._move(total, y, start, d)).astype(np.float32)
            mean = y if t <= T * EARLY else mean + (y - mean) / np.float32(t + 1 - int(T * EARLY))
            federation.show(items=mean)
        federation.ask("finish", items=mean)
        return Model("am-dpsgd", facts.scale, facts.item_ids, form_of(facts.scale, mean))

    def _start(self, counted: Total) -> np.ndarray:
        """The biases of `bias`, and small random factors; (m, 1 + k) float32."""
        facts, shape = self.facts, (self.facts.items, self.parameters.factors or 0)
        b = 4 / facts.scale.span * estimated(counted.blocks, counted.noise, START, facts)
        q = SPREAD * derive(facts.seed, "start", "items").standard_normal(shape)
        return np.concatenate([b[:, None], q], axis=1).astype(np.float32)

    def _counts(self, counted: Total) -> np.ndarray:
        """Each item's count from noised ones alone, each rating weighing less the more its user has; (m,)."""
        y, noise = counted["weights"].astype(np.float64) / START.count_weight, counted.noise / START.count_weight
        d = posterior_counts([Measured(y, np.ones_like(y), noise)], np.zeros((len(y), 0)))[0]
        return np.maximum(d, RAREST * d.mean())

    def _move(self, total: Total, y: np.ndarray, start: np.ndarray, d: np.ndarray) -> np.ndarray:
        """η_j·(gradient − λ·(y − start)), with η_j = η over the curvature that is expected of an item's sum.

        Weights of all users' ratings together are about √(N·n), and an item's part of them goes with d^(1−α).
        """
        facts, p, k = self.facts, self.parameters, y.shape[1] - 1
        weight = d ** (1 - p.skew)
        weight *= math.sqrt(facts.ratings * facts.users) / weight.sum()
        curved = weight[:, None] * np.array([1.0] + k * [FACTORS_CURVED])
        held = total.noise / math.sqrt(p.rounds or 1) * np.array([BIASES_HELD] + k * [FACTORS_HELD])
        origin = np.concatenate([start[:, :1], np.zeros_like(start[:, 1:])], axis=1)
        move: np.ndarray = p.rate * (total["moment"] - held * (y - origin)) / (curved + held + 1e-9)
        return move


ITEMS = Schema(items=Floats("items", "columns"))


class AMParty(Party):
    """A silo, or a cohort of devices with one row each."""

    parameters: AMParameters

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(errors=Floats("items"), weights=Floats("items")),
        what="per item, the sum of its users' weighted deviations from their own means and of their weights",
    )
    def count(self) -> Release:
        return self.gate.sum(*contribution(self.ratings, START, self.facts))

    @step(
        Kind.SUM,
        takes=Schema(items=Floats("items", "columns"), weights=Floats("items")),
        gives=Schema(moment=Floats("items", "columns")),
        what="the gradient of the items' biases and factors, each user's part weighted by released counts and clipped",
    )
    def descend(self, items: np.ndarray, weights: np.ndarray) -> Release:
        return self.gate.sum(*self._gradient(items, weights))

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that the items' biases and factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = items.copy()
        self.gate.store_private("states", self._states(form_of(self.facts.scale, items)))
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        form = form_of(self.facts.scale, self._latest("items", shared))
        return Fitted(form, self._states(form) if shared else self.home["states"])

    def _states(self, form: Linear) -> np.ndarray:
        """Every user's level and factors, from their own ratings alone; (n, 1 + k)."""
        return form.fold_in(self.ratings.indptr, self.ratings.items, self.ratings.values)

    def _gradient(self, items: np.ndarray, weights: np.ndarray) -> tuple[Any, ...]:
        """The data of a step's query: w·e·‖x‖ of every rating, which is clipped by user, and x/‖x‖ of every user."""
        from tacit.kernels.predict import predict_pairs

        ratings, scale = self.ratings, self.facts.scale
        form = form_of(scale, items)
        z = self._states(form)
        x = np.concatenate([np.ones((len(z), 1)), z[:, 1:]], axis=1)
        lengths = np.linalg.norm(x, axis=1)
        w = bounded_rows(ratings.indptr, weights[ratings.items][None], 1.0, exactly=True)[0]
        predicted = form.base[ratings.items] + predict_pairs(z, form.items, ratings.users, ratings.items)
        errors = (np.clip(ratings.values, scale.low, scale.high) - predicted) * (4 / scale.span)
        return ratings, w * errors * lengths[ratings.users], np.ones(len(w)), x / lengths[:, None]


def specs(parameters: AMParameters, context: Context) -> Sequence[Spec]:
    """Counts and start once, then T sums; forecast for |Ω|/n ratings of each user and errors of a quarter."""
    facts, share, C = context.facts, parameters.counts_share, parameters.clip
    each = math.sqrt(facts.ratings * facts.users) / facts.items  # an item's weights, of users who send norm 1
    gradient = Weighted(C**2, 1.0, 1.0, ("moment",))
    return [
        Spec("count", Normalised(("errors", "weights")), share=share, signal=each * START.count_weight),
        Spec("descend", gradient, releases=parameters.rounds or 1, share=1 - share, signal=each * C / 2),
    ]


SIDES = Sides(AMCoordinator, AMParty, specs)
AM_DPSGD = Method(
    name="am-dpsgd",
    title="Alternating minimisation by private gradient steps with adaptive weights",
    what=(
        "Users solve for their own level and factors at home; items take gradient steps on noised sums in which each "
        "user's part is clipped and rare items weigh more, by counts that were released with noise before."
    ),
    parameters=AMParameters,
    sides={Setting.HORIZONTAL: SIDES, Setting.DEVICE: SIDES},
    feedback=RATED,
)
