"""The coordinator of `auto`: noised sums one after the other, and what is learned of each at no cost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from tacit.federation import Federation, Total
from tacit.guarantee import Unit
from tacit.methods.auto.choices import pair_factors
from tacit.methods.auto.corrections import corrected, strongest
from tacit.methods.auto.features import principal
from tacit.methods.auto.means import Means, item_means, water_filling
from tacit.methods.auto.parameters import OWN_TASTES
from tacit.methods.auto.priors import mean_map, profile_map, reliability, spread_map
from tacit.methods.auto.shared import Shared, basis_features, unit_of
from tacit.methods.auto.specs import COUNTED, PRODUCTS, RESIDUAL_COUNTED, ROUNDS
from tacit.methods.counts import COMPONENTS, Measured, posterior_counts
from tacit.methods.item_features import described
from tacit.methods.method import Coordinator
from tacit.model import Model

#: How much tastes vary a priori: levels, with popularity, with the item's mean, and along public features.
LEVEL, POPULAR, GOOD, FEATURES = 0.45, 0.25, 0.25, 0.35
#: What is assumed of users' mean ratings and of how much more than 1 their ratings vary, and how far that may be off.
TYPICAL = np.array([0.4, 0.0])
DOUBT = 0.3
#: Slopes per unit of an item's true correction, over those of tastes that are known so well.
CURVATURE = 1.0
#: The part of a rating's variance that tastes and item means leave.
UNEXPLAINED = 0.72


@dataclass
class State:
    """All that is known so far, from noised sums and public facts; in units of `unit_of`.

    Attributes
    ----------
    level, variance : of users' mean ratings, and of a user's ratings around their own mean
    ratings, weight : how many ratings a user has, and how much one of them weighs in the first sum
    together : the noise of a sum over all parties, over that of one answer
    measured, d, popularity : noised weights of items so far; posterior means of them and of their logarithms, (m,)
    precision, moment : of all measurements of item means so far, (m,)
    means : posterior item means
    spread, prior : C's map of tastes (k, k), and B of `Tastes`
    """

    level: float = 0.0
    together: float = 1.0
    variance: float = 1.0
    ratings: float = 1.0
    weight: float = 1.0
    measured: list[Measured] = field(default_factory=list)
    d: np.ndarray = field(default_factory=lambda: np.zeros(0))
    popularity: np.ndarray = field(default_factory=lambda: np.zeros(0))
    precision: np.ndarray = field(default_factory=lambda: np.zeros(0))
    moment: np.ndarray = field(default_factory=lambda: np.zeros(0))
    means: Means | None = None
    spread: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    prior: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    @property
    def noise(self) -> float:
        return UNEXPLAINED * self.variance


class AutoCoordinator(Coordinator):
    """A, then C, B and D, then E, as far as the budget's rule has them."""

    def run(self, federation: Federation) -> Model:
        shares, facts = self.parameters.shares, self.facts
        self.features, self.described = basis_features(facts.catalogue), described(facts.catalogue)
        self.directions = principal(self.features, self.parameters.directions)
        k = OWN_TASTES + self.parameters.directions
        now = State(spread=np.eye(k), prior=np.zeros((k + 2, k)))
        for _ in federation.rounds(1):
            if "summary" in shares:
                self.summary(federation.sum("summary"), now)
            total = federation.sum("means")
            now.together = total.noise / federation.noise("means") if total.noise else 1.0
            self.first_means(total, now)
            shared = self.shown(now)
            federation.show(**shared.payload)
        for t in federation.rounds(ROUNDS if "residuals" in shares else 0):
            if "tastes" in shares:
                self.tastes(federation.sum("tastes", **self.plain(now)), now)
            if "prior" in shares and t == 0:
                self.expect(federation, now)
            a = self.item_weights(now.together * federation.noise("residuals"), now)
            total = federation.sum("residuals", **self.plain(now), weights=a.astype(np.float32))
            self.residuals(total, a, now)
            shared = self.shown(now)
            federation.show(**shared.payload)
        for _ in federation.rounds(ROUNDS if "factors" in shares else 0):
            shared = self.correct(federation, shared, now)
            federation.show(**shared.payload)
        for _ in federation.rounds(1 if "together" in shares else 0):
            shared = replace(shared, pairs=pair_factors(federation, now.popularity))
            federation.show(**shared.payload)
        federation.ask("finish", None, **shared.payload)
        form = replace(shared, **shared.payload).form(facts, self.features, self.parameters.objective == "liked")
        return Model("auto", facts.scale, facts.item_ids, form)

    # -- A: levels, item means and counts ---------------------------------------------------------------------

    def summary(self, total: Total, now: State) -> None:
        """Users' mean level, and how much a user's ratings vary."""
        n, sd = self.facts.users, max(total.noise / self.facts.users, 1e-6)
        seen = total["summary"].astype(np.float64) / n
        level, excess = (seen / sd**2 + TYPICAL / DOUBT**2) / (1 / sd**2 + 1 / DOUBT**2)
        now.level, now.variance = float(np.clip(level, -2, 2)), float(np.clip(1 + excess, 0.2, 3.0))

    def first_means(self, total: Total, now: State) -> None:
        """Counts and item means, from deviations of ratings from their users' means."""
        errors, counted = (total[name].astype(np.float64) for name in ("errors", "weights"))
        n, m, unit, s = self.facts.users, self.facts.items, unit_of(self.facts.scale), COUNTED
        noise = max(total.noise, 1e-6)
        if self.facts.unit is Unit.RATING:  # sums are of whole ratings here, in ratings
            errors, counted, noise = errors / unit, counted / unit, noise / unit
        now.measured = [Measured(counted / s, np.ones(m), noise / s)]
        now.d, now.popularity = posterior_counts(now.measured, self.facts.components(COMPONENTS))
        total_weight = max(float(counted.sum()) / s, 0.1 * now.d.sum(), 1e-3)
        if self.facts.unit is Unit.RATING:
            now.ratings, now.weight = total_weight / n, 1.0
        else:
            root = total_weight / n * np.sqrt(now.variance + s**2)  # the mean of √n_u
            now.ratings = max(1.3 * root**2, 1.0)
            now.weight = 1 / np.sqrt(now.ratings * (now.variance + s**2))
        d = np.maximum(now.d, 0.3 * noise / s)
        y, v = errors / d, np.square(noise / d) + 0.9 * now.variance * now.weight / now.d
        if self.facts.unit is Unit.RATING:
            now.level, y = float(errors.sum() / total_weight), y - errors.sum() / total_weight
        now.precision, now.moment = 1 / v, (y + now.level) / v
        self.regress(now, tilted=False)

    def regress(self, now: State, tilted: bool) -> None:
        y = now.moment / now.precision
        found = item_means(y - now.level, 1 / now.precision, self.described, now.popularity, tilted)
        now.means = replace(found, mean=np.clip(found.mean + now.level, -2, 2))

    # -- what parties get -------------------------------------------------------------------------------------

    def shown(self, now: State) -> Shared:
        """The model so far: tastes along a constant, popularity, item means, and directions of public features."""
        assert now.means is not None
        p, base = now.popularity, now.means.mean
        d = self.features.shape[1]
        columns = np.zeros((3 + d, len(now.spread)))
        columns[0, 0] = LEVEL
        for place, x, size in ((1, p, POPULAR), (2, base, GOOD)):
            deviation = max(float(x.std()), 1e-6)
            columns[place, place] = size / deviation
            columns[0, place] = -size * x.mean() / deviation
        columns[3:, OWN_TASTES:] = FEATURES * self.directions
        columns[0, OWN_TASTES:] = -FEATURES * self.features.mean(axis=0) @ self.directions
        q, k = self.parameters.corrections, len(now.spread)
        return Shared(
            base=base,
            popularity=p,
            metric=columns @ now.spread,
            prior=now.prior,
            noise=np.array([now.noise]),
            corrections=np.zeros((len(base), q)),
            axes=np.zeros((q, k)),
            pairs=np.zeros((self.parameters.head or 0, 0)),
        )

    def plain(self, now: State) -> dict[str, np.ndarray]:
        """What parties need for tastes, before there are corrections."""
        return replace(self.shown(now), corrections=None, axes=None, pairs=None).payload

    # -- C and B: what is expected of tastes ------------------------------------------------------------------

    def tastes(self, total: Total, now: State) -> None:
        """C: tastes vary more in some directions than in others."""
        change = spread_map(total["pairs"], total.noise, self.facts.users)
        back = np.linalg.inv(change)
        now.spread, now.prior = now.spread @ change, now.prior @ back
        now.prior[2:] = back @ now.prior[2:]

    def expect(self, federation: Federation, now: State) -> None:
        """B: the mean of tastes by how much and what a user rates."""
        V, share, sizes = self.shown(now).factors(self.features), now.d / now.d.sum(), self.parameters.dimensions
        along = strongest(V, share, sizes["expected"])
        profile = profile_map(V, share, now.ratings, sizes["profiled"] - 2)
        asked = {"directions": along.astype(np.float32), "profile": profile.astype(np.float32)}
        total = federation.sum("prior", **self.plain(now), **asked)
        known = np.diag(along.T @ reliability(V, share, now.ratings, now.noise) @ along)
        found = mean_map(total["cross"], total["pairs"], known, total.noise, PRODUCTS, self.facts.users)
        now.prior = profile @ found @ along.T

    # -- D: residual item means -------------------------------------------------------------------------------

    def counts(self, now: State) -> np.ndarray:
        """About how many ratings each item has."""
        return now.d / now.d.sum() * self.facts.users * now.ratings

    def item_weights(self, noise: float, now: State) -> np.ndarray:
        assert now.means is not None
        a = water_filling(self.counts(now), now.means.variance, noise, 1.1 * now.noise, self.facts.users)
        return a / max(float(a.max()), 1e-30)

    def residuals(self, total: Total, a: np.ndarray, now: State) -> None:
        """Another measurement of every item's mean that got weight, and of its count."""
        assert now.means is not None
        errors, counted = (total[name].astype(np.float64) for name in ("errors", "weights"))
        noise, s = max(total.noise, 1e-6), RESIDUAL_COUNTED
        x = a * now.d
        ratio = max(float(x @ counted) / s / max(float(x @ x), 1e-30), 1e-9)
        now.measured.append(Measured(counted / s, ratio * a, noise / s))
        now.d, now.popularity = posterior_counts(now.measured, self.facts.components(COMPONENTS))
        sums, some = ratio * a * now.d, a > 0
        y = errors[some] / sums[some]
        v = np.square(noise / sums[some]) + now.noise * a[some] * ratio * now.weight / sums[some]
        now.precision[some] += 1 / v
        now.moment[some] += (now.means.mean[some] + y) / v
        self.regress(now, tilted=True)

    # -- E: item factors --------------------------------------------------------------------------------------

    def correct(self, federation: Federation, shared: Shared, now: State) -> Shared:
        """Item factors along the strongest directions of taste."""
        n, share, N = self.facts.users, now.d / now.d.sum(), self.counts(now)
        V = shared.factors(self.features)
        assert shared.axes is not None
        along = shared.axes.T if shared.axes.any() else strongest(V, share, self.parameters.corrections)
        known = np.clip(np.diag(along.T @ reliability(V, share, now.ratings, now.noise) @ along), 0.05, 1.0)
        noise, prior = max(now.together * federation.noise("factors"), 1e-6), np.full(len(N), 0.01)
        a = water_filling(N, prior, noise / np.sqrt(known.mean()), now.noise, n)
        a /= max(float(a.max()), 1e-30)
        sent = replace(shared, pairs=None).payload
        total = federation.sum("factors", **sent, weights=a.astype(np.float32), directions=along.astype(np.float32))
        noise = max(total.noise, 1e-6)
        length = np.sqrt(max(float((a**2 * N).sum()) / n * now.noise * known.sum(), 1e-30))  # of a contribution
        curvature = CURVATURE * (a * N / length)[:, None] * known
        own = (a**2 * N / length**2)[:, None] * now.noise * known
        found = corrected(total["slopes"].astype(np.float64), curvature, noise**2 + own, now.popularity)
        return replace(shared, corrections=shared.corrections + found, axes=along.T)
