"""`ease`: how items occur together, from one sum over users, ranks what a user has not seen (EASE, Steck 2019).

With x_u ∈ {0, 1}^K, which of K items user u rated, and G = Σ_u x_u·x_uᵀ, the weights between items that predict every
item from the others best, in least squares with ridge λ and no weight of an item on itself, have a closed form:

    P = (G + λI + δ·diag(G))⁻¹,   B_ij = −P_ij/P_jj,   B_jj = 0,   score_u = x_u·B

δ = q/(1 − q) is what hiding each of a user's items with probability q, and predicting it, comes to (Steck 2020).

K is the head of the catalogue, the items that most users rated by the first sum. Items outside it follow by counts.

With [privacy] both sums carry noise, and all that a user adds has length 1: counts are weighted by 1/√(items of the
user), and each user sends x·xᵀ/c, c the number of ones in x. The inverse of a noised G would be noise. Instead the
eigenpairs that stand above the noise are kept and shrunk, and rank together with popularity and with tastes for public
features, which users fit at home (`methods.co_occurrence`, `model.co_occurrence`). Where pairs cannot outweigh their
noise, by public quantities, all of the budget goes to counts.

References: Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data"; Steck 2020, "Autoencoders that don't
overfit towards the Identity".
"""

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Normalised
from tacit.boundary.co_occurrence import ItemCounts, PairCounts, PairShares
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.federation import Federation, Floats, Party, Schema, step
from tacit.kernels.pairs import pack_pairs, unpack_pairs
from tacit.methods.co_occurrence import head_of, head_size, shrunken_factors
from tacit.methods.context import Context
from tacit.methods.counts import COMPONENTS, Measured, posterior_counts
from tacit.methods.item_features import choice_features
from tacit.methods.method import Coordinator, Forecast, Method, Parameters, Sides
from tacit.model import CoOccurrence, Fitted, ItemItem, Model
from tacit.model.forms import Form
from tacit.partition import Setting

#: Items of the head without privacy: a silo sends 8 million cells at 4,000; a device half a million at 1,000.
SILO_HEAD, DEVICE_HEAD = 4_000, 1_000
#: λ in parts of the root of the head's mean count: 87 on Last.fm, 155 on ML-100K, 330 on ML-1M.
RIDGE = 20.0
#: The part of the budget that pairs get; counts get the rest.
PAIRS = 0.6


class EaseParameters(Parameters):
    """Parameters of `ease`.

    Parameters
    ----------
    head : K, of how many of the most popular items pairs are counted; by default 4,000, or 1,000 on devices, and with
        privacy as many as outweigh their noise, which may be none
    regularization : λ, without privacy; by default 20·√(mean count of the head)
    denoising : δ, without privacy
    """

    head: int | None = Field(default=None, ge=0, le=20_000)
    regularization: float | None = Field(default=None, gt=0)
    denoising: float = Field(default=0.5, ge=0)

    @property
    def dimensions(self) -> dict[str, int]:
        k = self.head or 0
        return {**super().dimensions, "head": k, "head pairs": k * (k + 1) // 2}

    def resolved(self, context: Context) -> "EaseParameters":
        """A head that is no larger than the catalogue."""
        head = self.head
        if head is None and context.target is not None:
            head = head_size(context, PAIRS)
        elif head is None:
            head = DEVICE_HEAD if context.setting is Setting.DEVICE else SILO_HEAD
        return super().resolved(context).model_copy(update={"head": min(head, context.facts.items)})


class EaseCoordinator(Coordinator):
    """Counts, then pairs of the items that these put first; one closed form."""

    parameters: EaseParameters

    def run(self, federation: Federation) -> Model:
        form = self.closed_form(federation) if self.facts.unit is None else self.above_noise(federation)
        return Model("ease", self.facts.scale, self.facts.item_ids, form)

    def closed_form(self, federation: Federation) -> ItemItem:
        """B from sums without noise."""
        for _ in federation.rounds(1):
            counts = federation.sum("counts")["counts"].astype(np.float32)
            P = inverse(federation.sum("pairs", counts=counts)["pairs"], self.parameters)
        federation.ask("finish_weights", counts=counts, inverse=P)
        return weighted(counts, P, self.parameters.head or 0)

    def above_noise(self, federation: Federation) -> CoOccurrence:
        """Counts by empirical Bayes, and the eigenpairs of the noised sum that stand above its noise."""
        k = self.parameters.head or 0
        factors = np.zeros((k, 0), dtype=np.float32)
        for _ in federation.rounds(1):
            noised = federation.sum("counts")
            measured = Measured(noised["counts"], np.ones(self.facts.items), noised.noise)
            popularity = posterior_counts([measured], self.facts.components(COMPONENTS))[1].astype(np.float32)
            if k:
                pairs = federation.sum("pairs", counts=popularity)
                factors = shrunken_factors(pairs["pairs"], pairs.noise).astype(np.float32)
        federation.ask("finish_low_rank", popularity=popularity, factors=factors)
        return CoOccurrence.of(popularity, choice_features(self.facts), head_of(popularity, k), factors)


class EaseParty(Party):
    """A silo, or a cohort of devices: which items its users rated goes into two sums."""

    parameters: EaseParameters

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(counts=Floats("items")),
        what="how many users rated each item; with privacy, a user counts the less the more they rated",
    )
    def counts(self) -> Release:
        if self.facts.unit is None:
            return self.gate.sum(self.ratings)
        return self.gate.sum(self.ratings, {"counts": np.ones(self.ratings.n_ratings)})

    @step(
        Kind.SUM,
        takes=Schema(counts=Floats("items")),
        gives=Schema(pairs=Floats("head pairs")),
        what=(
            "how many users rated both of two items, for all pairs of the most popular ones; with privacy, a user's "
            "pairs count the less the more there are"
        ),
    )
    def pairs(self, counts: np.ndarray) -> Release:
        return self.gate.sum(self.ratings, head_of(counts, self.parameters.head or 0))

    @step(
        Kind.PUBLIC,
        takes=Schema(counts=Floats("items"), inverse=Floats("head pairs")),
        what="the word that the weights between items have arrived",
    )
    def finish_weights(self, counts: np.ndarray, inverse: np.ndarray) -> Release:
        self.home.update(counts=counts, inverse=inverse)
        return self.gate.public("done")

    @step(
        Kind.PUBLIC,
        takes=Schema(popularity=Floats("items"), factors=Floats("head", "any")),
        what="the word that the items' counts and factors have arrived",
    )
    def finish_low_rank(self, popularity: np.ndarray, factors: np.ndarray) -> Release:
        self.home.update(popularity=popularity, factors=factors)
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        k = self.parameters.head or 0
        form: Form
        if self.facts.unit is None:
            form = weighted(self._latest("counts", shared), self._latest("inverse", shared), k)
        else:
            popularity, factors = (self._latest(name, shared) for name in ("popularity", "factors"))
            form = CoOccurrence.of(popularity, choice_features(self.facts), head_of(popularity, k), factors)
        return Fitted(form, form.fold_in(self.ratings.indptr, self.ratings.items, self.ratings.values))


def inverse(pairs: np.ndarray, parameters: EaseParameters) -> np.ndarray:
    """P = (G + λI + δ·diag(G))⁻¹ from the upper triangle of G, by Cholesky; its own upper triangle, float32."""
    from scipy.linalg.lapack import dpotrf, dpotri

    size = parameters.head or 0
    G = unpack_pairs(np.asarray(pairs, dtype=np.float64), size)
    if not size:
        return pack_pairs(G)
    G[np.diag_indices(size)] += ridge(G.diagonal(), parameters)
    root, _ = dpotrf(G.T, lower=1, overwrite_a=1)  # the transpose is in Fortran's order, as LAPACK wants it
    P, _ = dpotri(root, lower=1, overwrite_c=1)
    return pack_pairs(P.T)


def ridge(counts: np.ndarray, parameters: EaseParameters) -> np.ndarray:
    """λ + δ·diag(G), from the diagonal of G, how many users rated each item of the head; (K,) float64."""
    own = parameters.regularization or RIDGE * math.sqrt(max(float(counts.mean()), 1.0))
    return own + parameters.denoising * counts


def weighted(counts: np.ndarray, inverse: np.ndarray, size: int) -> ItemItem:
    """The form that ranks by B of the upper triangle of P; the same at the coordinator and at every party."""
    return between_items(counts, unpack_pairs(inverse, size))


def between_items(counts: np.ndarray, P: np.ndarray) -> ItemItem:
    """The form that ranks by B of P, (K, K), which is overwritten; `counts` (m,) say what the head is."""
    size = len(P)
    head = head_of(counts, size)
    P /= -P.diagonal()
    P[np.diag_indices(size)] = 0
    inside = np.zeros(len(counts), dtype=np.float32)
    inside[head] = 1 + np.arange(size)
    outside = counts[inside == 0].max(initial=0) + 1
    base = np.where(inside > 0, 1e-6 * counts / max(float(counts.max(initial=0)), 1.0), counts / outside - 1)
    return ItemItem(inside, P.astype(np.float32, copy=False), base.astype(np.float32))


def specs(parameters: EaseParameters, context: Context) -> Sequence[Spec]:
    """Counts and pairs, once each; with privacy the two share the budget, unless there are no pairs."""
    facts, k = context.facts, parameters.head or 0
    rated = facts.ratings / facts.items
    if context.target is None:
        return [Spec("counts", ItemCounts(), signal=rated), Spec("pairs", PairCounts(), signal=rated)]
    each = math.sqrt(max(facts.ratings / facts.users, 1.0))
    counts = Spec("counts", Normalised(("counts",)), share=1 - PAIRS if k else 1.0, signal=rated / each)
    return [counts, Spec("pairs", PairShares(), share=PAIRS, signal=facts.users / k)] if k else [counts]


def forecast(parameters: EaseParameters, context: Context) -> Forecast:
    """One round, and the model to everyone; how many factors stand above the noise is not known before."""
    return Forecast(rounds=1, public=("finish" if context.target is None else "finish_low_rank",))


SIDES = Sides(EaseCoordinator, EaseParty, specs, forecast=forecast)
EASE = Method(
    name="ease",
    title="Items that occur together",
    what=(
        "Which items users rated together, from one sum over users, ranks the items that a user has not rated. With "
        "privacy, what stands above the noise does, with popularity and, where there are public item features, tastes."
    ),
    parameters=EaseParameters,
    sides={Setting.HORIZONTAL: SIDES, Setting.DEVICE: SIDES},
)
