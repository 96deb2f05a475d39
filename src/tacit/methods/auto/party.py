"""A party of `auto`: every user fits their taste at home, and sends bounded contributions to sums."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tacit.boundary import Release
from tacit.boundary.least_squares import packed
from tacit.boundary.release import Kind
from tacit.federation import Floats, Schema, step
from tacit.guarantee import Unit
from tacit.kernels.tastes import explained, slopes, users_of
from tacit.methods.auto.choices import Choices
from tacit.methods.auto.parameters import AutoParameters
from tacit.methods.auto.shared import CORRECTED, FINAL, TASTES, Shared, basis_features, unit_of
from tacit.methods.auto.specs import COUNTED, PRODUCTS, RESIDUAL_COUNTED
from tacit.model import Fitted
from tacit.model.tastes import profiles, tastes

#: How many ratings' worth of the scale's middle a user's own mean starts with.
SHRINKAGE = 3.0


class AutoParty(Choices):
    """A silo, or a cohort of devices with one row each.

    What a user adds to a sum is computed from their own ratings and from what was released before, and bounded by the
    step's query; a user without ratings adds 0.
    """

    parameters: AutoParameters

    @property
    def dimensions(self) -> dict[str, int]:
        return {**super().dimensions, "basis": 3 + self._features.shape[1]}

    @cached_property
    def _features(self) -> np.ndarray:
        return basis_features(self.facts.catalogue)

    @cached_property
    def _ratings(self) -> np.ndarray:
        """Ratings in quarters of the span around the middle of the scale: −2 … 2; (nnz,) float64."""
        scale = self.facts.scale
        values = np.clip(self.ratings.values.astype(np.float64), scale.low, scale.high)
        return (values - scale.low - scale.span / 2) / unit_of(scale)

    # -- steps ------------------------------------------------------------------------------------------------

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(summary=Floats(2)),
        what="the sum of users' own mean ratings and of how much their ratings vary",
    )
    def summary(self) -> Release:
        means = self._own_means()
        n, users = self.ratings.counts, users_of(self.ratings.indptr)
        squares = np.bincount(users, weights=np.square(self._ratings - means[users]), minlength=len(n))
        varies = (squares + SHRINKAGE) / (n + SHRINKAGE)
        return self.gate.sum({"summary": np.column_stack([means, varies - 1])}, n)

    @step(
        Kind.SUM,
        takes=Schema(),
        gives=Schema(errors=Floats("items"), weights=Floats("items")),
        what=(
            "per item, the sum of its users' weighted deviations from their own means and of their weights; where the "
            "unit is a rating, of its ratings' deviations from the middle of the scale and of how many there are"
        ),
    )
    def means(self) -> Release:
        if self.facts.unit is Unit.RATING:
            return self.gate.sum(self.ratings)
        errors = self._ratings - self._own_means()[users_of(self.ratings.indptr)]
        return self.gate.sum(self.ratings, {"errors": errors, "weights": np.full(len(errors), COUNTED)})

    @step(
        Kind.SUM,
        takes=Schema(
            **TASTES.fields,
            directions=Floats("tastes", "expected"),
            profile=Floats("profile", "profiled"),
        ),
        gives=Schema(cross=Floats("expected", "profiled"), pairs=Floats("profile pairs")),
        what="how users' tastes go with how much and what they rate",
    )
    def prior(self, directions: np.ndarray, profile: np.ndarray, **shared: np.ndarray) -> Release:
        """E[z]·fᵀ and f·fᵀ, with the profiles f = [1, log(1 + n_u), mean factors]·profile."""
        with np.errstate(all="ignore"):
            mine = Shared(**shared)
            V = mine.factors(self._features)
            z = self._posteriors(mine, V)[0] @ directions.astype(np.float64)
            f = profiles(self.ratings.indptr, self.ratings.items, V) @ profile.astype(np.float64)
            cross = z[:, :, None] * f[:, None, :]
            return self.gate.sum({"cross": cross, "pairs": PRODUCTS * packed(f)}, self.ratings.counts)

    @step(
        Kind.SUM,
        takes=TASTES,
        gives=Schema(pairs=Floats("pairs")),
        what="how much users' tastes vary in each direction, more or less than was assumed",
    )
    def tastes(self, **shared: np.ndarray) -> Release:
        """E[(z − Bᵀf)(z − Bᵀf)ᵀ] − I under each user's own posterior."""
        with np.errstate(all="ignore"):
            mine = Shared(**shared)
            k = mine.metric.shape[1]
            z, expected, spread = self._posteriors(mine, mine.factors(self._features), np.eye(k))
            a, b = np.triu_indices(k)
            off = np.where(a == b, 1.0, np.sqrt(2))
            pairs = packed(z - expected) + (spread[:, a, b] - (a == b)) * off
            return self.gate.sum({"pairs": pairs}, self.ratings.counts)

    @step(
        Kind.SUM,
        takes=Schema(**TASTES.fields, weights=Floats("items")),
        gives=Schema(errors=Floats("items"), weights=Floats("items")),
        what="per item, the weighted sum of what its users' tastes leave unexplained, and of the weights",
    )
    def residuals(self, weights: np.ndarray, **shared: np.ndarray) -> Release:
        with np.errstate(all="ignore"):
            left, *_ = self._unexplained(Shared(**shared))
            a = weights.astype(np.float64)[self.ratings.items]
            return self.gate.sum(self.ratings, {"errors": a * left, "weights": RESIDUAL_COUNTED * a})

    @step(
        Kind.SUM,
        takes=Schema(
            **CORRECTED.fields,
            weights=Floats("items"),
            directions=Floats("tastes", "corrections"),
        ),
        gives=Schema(slopes=Floats("items", "corrections")),
        what="per item, in which direction its factors would explain its users' ratings better",
    )
    def factors(self, weights: np.ndarray, directions: np.ndarray, **shared: np.ndarray) -> Release:
        """E[(r − base − v·z)·z] under each user's own posterior, along some directions."""
        with np.errstate(all="ignore"):
            along = directions.astype(np.float64)
            left, V, z, spread = self._unexplained(Shared(**shared), along)
            ratings = self.ratings
            found = slopes(ratings.indptr, ratings.items, left, V, z @ along, spread)
            return self.gate.sum(ratings, found * weights.astype(np.float64)[ratings.items, None])

    @step(Kind.PUBLIC, takes=FINAL, what="the word that the shared model has arrived")
    def finish(self, **shared: np.ndarray) -> Release:
        self.home.update(shared)
        return self.gate.public("done")

    # -- at home ----------------------------------------------------------------------------------------------

    def at_home(self, **shared: np.ndarray) -> Fitted:
        latest = Shared(**{name: self._latest(name, shared) for name in FINAL.fields})
        form = latest.form(self.facts, self._features, self.parameters.objective == "liked")
        return Fitted(form, form.fold_in(self.ratings.indptr, self.ratings.items, self.ratings.values))

    def _own_means(self) -> np.ndarray:
        """Each user's mean rating, shrunk towards the middle of the scale; (n,)."""
        n = self.ratings.counts
        sums = np.bincount(users_of(self.ratings.indptr), weights=self._ratings, minlength=len(n))
        return sums / (n + SHRINKAGE)

    def _posteriors(
        self, shared: Shared, V: np.ndarray, directions: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ratings = self.ratings
        left = self._ratings - shared.base.astype(np.float64)[ratings.items]
        return tastes(ratings.indptr, ratings.items, left, V, shared.prior, shared.variance, directions)

    def _unexplained(
        self, shared: Shared, directions: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """r − base − v·z at each user's own posterior mean, (nnz,); V, z, and covariances along `directions`."""
        V, ratings = shared.factors(self._features), self.ratings
        z, _expected, spread = self._posteriors(shared, V, directions)
        predicted = shared.base.astype(np.float64)[ratings.items] + explained(ratings.indptr, ratings.items, V, z)
        return self._ratings - predicted, V, z, spread
