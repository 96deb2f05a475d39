"""`gd-dr`: every device reports one bit of its projected item gradient a round, under local DP (P0, §6.3).

Private-GD-DR of Shin, Kim, Shin and Xiao 2018 (IEEE TKDE 30(9)): gradient descent with dimension reduction. Users'
factors stay at home and are fitted there; item factors follow an estimate of the mean gradient. See
tacit.boundary.projected for what is reported and why it is private.
"""

import math
from collections.abc import Sequence

import numpy as np
from pydantic import Field

from tacit.boundary import Gate, Release
from tacit.boundary.projected import OneBit, ProjectedBit, estimated, spread
from tacit.boundary.release import Kind
from tacit.boundary.spec import Spec
from tacit.data.public_facts import PublicFacts
from tacit.federation import Facts, Federation, Floats, Integer, Party, Schema, step
from tacit.federation.messages import Ints
from tacit.kernels.embed import embed
from tacit.methods.context import Context
from tacit.methods.factors import FactorParameters, fitted_users, linear_decay, nonnegative, start_factors
from tacit.methods.method import RATED, Coordinator, Method, Sides
from tacit.model import Fitted, Model
from tacit.partition import Setting, Share
from tacit.rng import derive

#: How far the noise of all rounds may carry an entry of a factor, in parts of √(R/p); found on synthetic worlds.
DRIFT = 0.2
#: The last step's size as a part of the first.
LAST = 0.02
#: How far starts vary, found likewise: rows that start nearly alike leave devices levels to fit.
UNEVEN = 0.1
#: The most rows that a projection has by default; more would be a matrix of gigabytes.
MOST_ROWS = 1000
#: Steps in which a device fits its own factors to the final item factors; they cost nothing.
FINAL_STEPS = 100

ITEMS = Schema(items=Floats("items", "factors"))


class ReducedParameters(FactorParameters):
    """Parameters of `gd-dr`.

    Parameters
    ----------
    factors : p, columns of both factor blocks
    rounds : T; a device reports once in each
    projection : q, rows of the random projection; half as many as there are items, and at most 1,000, by default
    rate : the first step's size for the gradient of one rating; default a rule from public quantities
    pretraining : steps of each device on its own factors before it reports first
    local_steps : the same before every later report
    """

    rounds: int = Field(default=10, ge=1, le=100_000)
    projection: int | None = Field(default=None, ge=1, le=100_000)
    rate: float | None = Field(default=None, gt=0)
    pretraining: int = Field(default=30, ge=1, le=10_000)
    local_steps: int = Field(default=10, ge=1, le=10_000)

    def shape(self, items: int) -> tuple[int, int]:
        """(q, p), the shape of a projected gradient."""
        return self.projection or min(MOST_ROWS, math.ceil(items / 2)), self.factors

    def bound(self, facts: Facts | PublicFacts) -> float:
        """B = 2·(R/4)·√(R/p)·√(|Ω|/n)/√q: what is reported of a coordinate is clipped to ±B.

        It is the size of |Ω|/n terms Φ[a, j]·2e·u_f of random signs, with an error e of a quarter of the scale, and a
        factor u_f of a row of full length. From public numbers alone; about one number in six is longer.
        """
        span, (q, p) = facts.scale.span, self.shape(facts.items)
        return 2 * span / 4 * math.sqrt(span / p * facts.ratings / (facts.users * q))


def projection_signs(facts: Facts, rows: int) -> np.ndarray:
    """√q·Φ, (q, m) int8: public, from the run's seed, and the same in every round."""
    return derive(facts.seed, "projection").integers(0, 2, (rows, facts.items), dtype=np.int8) * np.int8(2) - np.int8(1)


def even_start(facts: Facts, rows: int, factors: int, *purpose: str) -> np.ndarray:
    """`start_factors`, drawn together to a tenth around their mean a with factors·a² = 0.6·R; float32."""
    a = np.float32(math.sqrt(0.6 * facts.scale.span / factors))
    return a + np.float32(UNEVEN) * (start_factors(facts, rows, factors, *purpose) - a)


class ReducedCoordinator(Coordinator):
    """V ← Π(V − c_t·n·Φᵀ·mean), T times, `mean` being estimated from one bit of every device."""

    @property
    def shape(self) -> tuple[int, int]:
        """(q, p)."""
        shape: tuple[int, int] = self.parameters.shape(self.facts.items)
        return shape

    def run(self, federation: Federation) -> Model:
        facts, T, z = self.facts, self.parameters.rounds, federation.noise("report")
        one_bit = OneBit(1 / z if z else math.inf, self.parameters.bound(facts))
        rates = self.first(one_bit) * linear_decay(T, LAST)
        phi = projection_signs(facts, self.shape[0]).astype(np.float32) / np.float32(math.sqrt(self.shape[0]))
        V = even_start(facts, facts.items, self.parameters.factors, "items")
        for t in federation.rounds(T):
            reports = federation.reports("report", items=V, t=t)
            mean = estimated(reports["coordinate"], reports["bit"], self.shape, one_bit).astype(np.float32)
            V = embed(V - np.float32(rates[t] * facts.users) * (phi.T @ mean), facts.scale.span)
            federation.show(items=V)
        federation.ask("finish", items=V)
        return Model("gd-dr", facts.scale, facts.item_ids, nonnegative(facts, V))

    def first(self, one_bit: OneBit) -> float:
        """c as given, or the smaller of what curvature and noise allow.

        An item has |Ω|/m ratings of curvature ≤ 2R, of which SGDMF's rule uses c = 4m/(R·|Ω|); ΦᵀΦ stretches up to
        (1 + √(m/q))² times. The noise of T steps of size c moves an entry by c·n·spread·√T, here DRIFT·√(R/p).
        """
        if self.parameters.rate is not None:
            return float(self.parameters.rate)
        facts, span, (q, p) = self.facts, self.facts.scale.span, self.shape
        curved = 4 * facts.items / (span * max(1, facts.ratings)) / (1 + math.sqrt(facts.items / q)) ** 2
        noise = facts.users * spread(self.shape, one_bit, facts.users) * math.sqrt(self.parameters.rounds)
        return min(curved, DRIFT * math.sqrt(span / p) / noise)


class ReducedCohort(Party):
    """Devices that fit their own factors at home and report one bit about one coordinate a round, all in one block."""

    parameters: ReducedParameters

    def __init__(self, share: Share, parameters: ReducedParameters, facts: Facts, gate: Gate) -> None:
        super().__init__(share, parameters, facts, gate)
        start = even_start(facts, self.member.users, parameters.factors, "users", share.name)
        self.gate.store_private("users", self.home.get("users", start))
        self._signs = projection_signs(facts, parameters.shape(facts.items)[0])

    @step(
        Kind.REPORT,
        takes=Schema(items=Floats("items", "factors"), t=Integer(0, 100_000)),
        gives=Schema(coordinate=Ints("any"), bit=Ints("any")),
        what="one randomised bit about one random coordinate of the device's projected item gradient",
    )
    def report(self, items: np.ndarray, t: int) -> Release:
        here = self.gate.present
        rows = np.arange(self.member.users) if here is None else np.flatnonzero(here)
        V = embed(items, self.facts.scale.span)
        steps = self.parameters.local_steps if t else self.parameters.pretraining
        users = self.gate.store_private("users", self._fitted(V, rows, steps))
        return self.gate.report(self.ratings, users, V, self._signs)

    @step(Kind.PUBLIC, takes=ITEMS, what="confirmation that the final item factors have arrived")
    def finish(self, items: np.ndarray) -> Release:
        self.home["items"] = V = embed(items, self.facts.scale.span)
        self.gate.store_private("users", self._fitted(V, np.arange(self.member.users), FINAL_STEPS))
        return self.gate.public("done")

    def at_home(self, **shared: np.ndarray) -> Fitted:
        return Fitted(nonnegative(self.facts, self._latest("items", shared)), self.home["users"])

    def _fitted(self, V: np.ndarray, rows: np.ndarray, steps: int) -> np.ndarray:
        return fitted_users(self.ratings, self.home["users"], V, rows, steps)


def specs(parameters: ReducedParameters, context: Context) -> Sequence[Spec]:
    """T reports of every device; a rating is part of a record, so that both units cost the same.

    Forecast: a coordinate of the summed gradient, in units in which its noise is √n/ε₀; that is 2B·√(q·p), as long as
    ε₀ is not much above 1.
    """
    facts, span, (q, p) = context.facts, context.facts.scale.span, parameters.shape(context.facts.items)
    cell, bound = facts.ratings / facts.items * 2 * span / 4 * math.sqrt(0.6 * span / p), parameters.bound(facts)
    signal = math.sqrt(facts.items / q) * cell / (2 * bound * math.sqrt(q * p))
    return [Spec("report", ProjectedBit((q, p), bound), releases=parameters.rounds, signal=signal)]


REDUCED = Method(
    name="gd-dr",
    title="One randomised bit of a projected gradient from every device",
    what=(
        "Every device fits its own factors at home and, in each round, reports one randomised bit about one random "
        "coordinate of its item gradient, which a random projection has made short. The coordinator estimates the mean "
        "gradient from all bits and descends. Each report protects its device by itself."
    ),
    parameters=ReducedParameters,
    sides={Setting.DEVICE: Sides(ReducedCoordinator, ReducedCohort, specs)},
    feedback=RATED,
)
