"""`feature-slopes`: a rating is an item's mean plus the item's slopes times the user's state. Three private sums.

    r̂_uj = base_j + v_j·z_u,   z_u ~ N(0, I) before anything is known of a user

1. "means": how far items lie from their users' means. A ridge regression over the catalogue's features makes `base`.
2. "tastes": moments of the users' states over a few directions of the features, which become the prior of z.
3. "slopes": per item, residuals times its users' states, which is how it differs from others with its features.

Guarantee: a user's part of a sum depends on no other user's ratings and is cut to norm C: Δ = C, and 2C per rating.
"""

import math

import numpy as np
from pydantic import Field

from tacit.boundary import Release
from tacit.boundary.clipped_sums import Clipped, Normalised
from tacit.boundary.least_squares import Weighted, packed, unpacked
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.data.ratings import Feedback, Scale
from tacit.federation import Facts, Federation, Floats, Party, Schema, Total, step
from tacit.methods import Method, Parameters, Sides
from tacit.methods.context import Context
from tacit.model import Fitted, Linear, Model
from tacit.partition import Setting

SPREAD, OFFSET, COUNT = 0.8, 0.4, 0.7  # in quarters of the scale: a rating's and an item's deviation; a count's weight
MODEL = Schema(base=Floats("items"), slopes=Floats("items", "states"))
MEANS = Schema(errors=Floats("items"), counts=Floats("items"))
TASTES = Schema(mean=Floats("states"), second=Floats("pairs"))
SLOPES = Schema(moment=Floats("items", "statistics"))


class SlopesParameters(Parameters):
    """directions : of the features, in which tastes differ."""

    directions: int = Field(default=6, ge=0, le=50)

    @property
    def dimensions(self) -> dict[str, int]:
        k = 1 + self.directions
        return {"states": k, "pairs": k * (k + 1) // 2, "statistics": 1 + k}


def form(base: np.ndarray, slopes: np.ndarray, scale: Scale) -> Linear:
    """The model. `Linear` has ratings of variance 1, so states N(0, I) get a rating's variance as precision."""
    one = np.eye(slopes.shape[1], dtype=np.float32)
    return Linear(scale.low, scale.high, base, slopes, mean=0 * one[0], precision=(SPREAD * scale.span / 4) ** 2 * one)


class SlopesCoordinator:
    """Three sums, each asked for with what the one before gave. All else is post-processing, which costs nothing."""

    def __init__(self, parameters: SlopesParameters, facts: Facts) -> None:
        self.parameters, self.facts, self.quarter = parameters, facts, facts.scale.span / 4

    def run(self, federation: Federation) -> Model:
        scale, F = self.facts.scale, self.directions()
        for _ in federation.rounds(1):
            S, offset = offsets(F, federation.sum("means"))
            b, V = scale.low + self.quarter * (2 + offset), 0.3 * self.quarter * F
            b, V = self.with_prior(b, V, federation.sum("tastes", **sent(b, V)))
            b, V = self.with_own(b, V, S * math.hypot(SPREAD, COUNT), federation.sum("slopes", **sent(b, V)))
            federation.show(**sent(b, V))  # every party gets it, and fits its users' states at home
        return Model("feature-slopes", scale, self.facts.item_ids, form(**sent(b, V), scale=scale))

    def directions(self) -> np.ndarray:
        """1, and the leading directions of the features with variance 1 over items; (m, k), 0 beyond what there is."""
        X, k = self.facts.catalogue.features().astype(np.float64), self.parameters.directions
        U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
        D = (U * (s > 1e-6))[:, :k] * math.sqrt(len(X))
        return np.pad(np.insert(D, 0, 1, axis=1), [(0, 0), (0, k - D.shape[1])])

    def with_prior(self, b: np.ndarray, V: np.ndarray, total: Total) -> tuple[np.ndarray, np.ndarray]:
        """The same model in coordinates in which states are N(0, I) over users."""
        mean, second = total["mean"] / self.facts.users, unpacked(total["second"][None])[0] / self.facts.users
        values, vectors = np.linalg.eigh(second - np.outer(mean, mean))
        noise = total.noise * math.sqrt(2 * len(mean)) / self.facts.users  # about the largest eigenvalue of noise alone
        return b + V @ mean, V @ (vectors * np.sqrt(np.maximum(values - noise, 1e-3)))

    def with_own(self, b: np.ndarray, V: np.ndarray, T: np.ndarray, total: Total) -> tuple[np.ndarray, np.ndarray]:
        """The same with each item's own part, from moment = T·part + noise, shrunk; 0 if all may be noise."""
        M, weight = total["moment"].astype(np.float64), math.sqrt(self.facts.users / self.facts.ratings)
        v = (total.noise**2 + weight * (SPREAD * self.quarter) ** 2 * T)[:, None] + 1e-12
        τ2 = np.maximum(0, ((M**2 - v).sum(axis=0) - math.sqrt(8) * np.linalg.norm(v)) / max(1e-12, (T**2).sum()))
        part = τ2 * T[:, None] * M / (τ2 * T[:, None] ** 2 + v)
        return b + part[:, 0], V + part[:, 1:]


class SlopesParty(Party):
    """A silo, or a cohort of devices. Steps bring data; which query asks for it stands in `specs`."""

    @step(Kind.SUM, takes=Schema(), gives=MEANS, what="per item, its users' scaled deviations from their own means")
    def means(self) -> Release:
        r, scale = self.ratings, self.facts.scale
        levels = Linear.levels(np.zeros(self.member.items), scale, 5.0).fold_in(r.indptr, r.items, r.values)
        errors = (np.clip(r.values, scale.low, scale.high) - levels[r.users, 0]) / (scale.span / 4)
        return self.gate.sum(r, {"errors": errors, "counts": np.full(r.n_ratings, COUNT)})

    @step(Kind.SUM, takes=MODEL, gives=TASTES, what="sums of its users' states and of their products, clipped")
    def tastes(self, base: np.ndarray, slopes: np.ndarray) -> Release:
        z = self.at_home(base, slopes).states
        return self.gate.sum({"mean": z, "second": packed(z)}, self.ratings.counts)

    @step(Kind.SUM, takes=MODEL, gives=SLOPES, what="per item, sums of residuals times its users' states, clipped")
    def slopes(self, base: np.ndarray, slopes: np.ndarray) -> Release:
        r, at = self.ratings, self.at_home(base, slopes)
        left, z = r.values - at.predict(r.users, r.items), np.insert(at.states, 0, 1, axis=1)
        return self.gate.sum(r, r.counts[r.users] ** -0.5, left, z)

    def at_home(self, base: np.ndarray, slopes: np.ndarray) -> Fitted:
        r, model = self.ratings, form(base, slopes, self.facts.scale)
        return Fitted(model, model.fold_in(r.indptr, r.items, r.values))


def sent(base: np.ndarray, slopes: np.ndarray) -> dict[str, np.ndarray]:
    return {"base": base.astype(np.float32), "slopes": slopes.astype(np.float32)}


def offsets(F: np.ndarray, means: Total) -> tuple[np.ndarray, np.ndarray]:
    """S, and from errors = S·offset + noise each item's offset: F·β by ridge regression, and the item's own, shrunk."""
    S, A = means["counts"].astype(np.float64) / COUNT, means["errors"]
    S = np.maximum(0, S.mean() + max(0, 1 - (means.noise / COUNT) ** 2 / max(S.var(), 1e-12)) * (S - S.mean()))
    v = means.noise**2 + 0.02 * S + 1e-12
    β = np.linalg.solve((F.T * (S**2 / v)) @ F + np.eye(F.shape[1]), F.T @ (S * A / v))
    return S, F @ β + OFFSET**2 * S * (A - S * (F @ β)) / (OFFSET**2 * S**2 + v)


def specs(p: SlopesParameters, context: Context) -> list[Spec]:
    """What is asked, once each. A smaller share of the budget means more noise; signals forecast the size of a cell."""
    facts, norm, residual = context.facts, math.sqrt(2 + p.directions), context.facts.scale.span / 2
    weight = math.sqrt(facts.users * facts.ratings) / facts.items  # of an item, if everybody has as many ratings
    return [
        Spec("means", Normalised(("errors", "counts")), share=0.5, signal=0.7 * weight),
        Spec("tastes", Clipped(("mean", "second"), limit=2.0), share=0.2, signal=0.1 * facts.users),
        Spec("slopes", Weighted(1.0, norm, residual, blocks=("moment",)), share=0.3, signal=0.1 * residual * weight),
    ]


FEATURE_SLOPES = Method(
    name="feature-slopes",
    title="Item means and slopes over features",
    what="Item means, tastes over the catalogue's features and item slopes, from three sums over all users.",
    parameters=SlopesParameters,
    sides=dict.fromkeys((Setting.HORIZONTAL, Setting.DEVICE), Sides(SlopesCoordinator, SlopesParty, specs)),
    feedback=frozenset({Feedback.EXPLICIT}),
)
