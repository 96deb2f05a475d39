"""How factors move: what a step asks for, how large it is, and Π after it. Variants of SGDMF replace the rule.

A step multiplies a sum of gradients over sampled ratings by c = γ_t/(η·|Ω|), from public quantities, never from data.
Without noise the largest useful c is set by curvature; with noise, by how far the noise of all steps together may carry
a factor. How the constants were found: docs/explanation/sgdmf-private-rates.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tacit.boundary.clipped_gradients import EmbeddingGradient
from tacit.boundary.query import Blocks, Query, Unbounded, UnboundedAnswer
from tacit.boundary.wire import Array
from tacit.data.public_facts import PublicFacts
from tacit.data.ratings import Ratings, Scale
from tacit.federation import Facts
from tacit.guarantee import Relation, Unit
from tacit.kernels.embed import descend_and_embed, embed
from tacit.kernels.squared_error import factor_gradients
from tacit.methods.context import Context
from tacit.methods.factors import linear_decay
from tacit.model import Form, NonNegative

#: How far the noise of all steps may carry a factor's entry, in parts of √(R/p), where Π brings it back; and in the κ
#: last steps of a vertical run, which start from good item factors.
DRIFT, LAST_DRIFT = 3.0, 0.25
#: The same of factors that start from released biases, which noise could only spoil.
BIASED_DRIFT = 0.02
#: The last rate as a part of the first.
LAST = 0.02


class UpdateRule:
    """Embedding clipping (P0, §4.2): gradients at Π(U), Π(V), which Π bounds, and steps that end in Π."""

    def query(
        self, parameters: Any, context: Context, blocks: Sequence[str], *, users_are_public: bool, at_home: bool = False
    ) -> Query:
        """What one step asks. Without privacy and trimming it need bound nothing, and is faster.

        `at_home` means that a block comes from what the silo stores, and not from the chain's own state.
        """
        if context.unit is None and parameters.trim is None and not at_home and len(blocks) == 2:
            return FactorGradient(context.facts.scale, parameters.eta)
        return EmbeddingGradient(
            context.facts.scale,
            parameters.eta,
            parameters.trim,
            tuple(blocks),
            users_are_public=users_are_public,
            sampled=sampled_unit(context.unit, users_are_public),
        )

    def drift(self, parameters: Any) -> float:
        """How far the noise of all steps may carry a factor's entry, in parts of √(R/p)."""
        return BIASED_DRIFT if parameters.from_biases else DRIFT

    def project(self, parameters: Any, received: np.ndarray, span: float) -> np.ndarray:
        """Factors from a peer, as steps start from them: Π."""
        return embed(received, span)

    def step(self, steps: Steps, x: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
        """x ← Π((1 − decay)·x − rate·gradient), in place."""
        return descend_and_embed(x, gradient, rate, steps.facts.scale.span, decay)

    def form(self, scale: Scale, items: np.ndarray) -> Form:
        """The model's form over item factors; Π keeps what it predicts on the scale."""
        return NonNegative(scale.low, scale.high, items)


def sampled_unit(unit: Unit | None, users_are_public: bool) -> Unit:
    """What a step's sample is of: samples of users amplify no rating (see tacit.boundary.clipped_gradients)."""
    return Unit.RATING if unit is Unit.RATING and users_are_public else Unit.USER


@dataclass(frozen=True)
class Steps:
    """All steps of a run: their sizes, taken by the parameters' rule.

    Parameters
    ----------
    count : how many steps there are
    noise : σ on each cell of an answer; 0 for none
    mixed : how many parties' noise a cell carries in the end
    limit : the drift that is allowed; default the rule's
    stream : for a rule that adds noise to what is already noised
    """

    parameters: Any
    facts: Facts
    count: int
    noise: float = 0.0
    mixed: int = 1
    limit: float | None = None
    stream: np.random.Generator | None = None

    def __call__(self, x: np.ndarray, gradient: np.ndarray, step: int, weight: float = 1.0) -> np.ndarray:
        """One step of factors, in place: γ_t/(η·|Ω|)/weight times a sum of gradients, and the weight decay."""
        now = min(step, self.count - 1)
        rate, decay = self.rates[now] / weight, self.decays[now]
        rule: UpdateRule = self.parameters.rule
        return rule.step(self, x, gradient, rate, decay)

    @cached_property
    def rates(self) -> list[float]:
        """γ_t/(η·|Ω|): what one sampled rating's gradient is multiplied by."""
        ratings = self.parameters.eta * max(1, self.facts.ratings)
        rates: list[float] = (self.first * linear_decay(self.count, LAST) / ratings).tolist()
        return rates

    @cached_property
    def decays(self) -> list[float]:
        """The part of every row that a step takes away."""
        decays = self.parameters.regularization * linear_decay(self.count, LAST)
        capped: list[float] = np.minimum(1.0, decays).tolist()
        return capped

    @cached_property
    def first(self) -> float:
        """γ as given, or the smaller of what curvature and noise allow."""
        if self.parameters.rate is not None:
            return float(self.parameters.rate)
        curved = curvature_limited_rate(self.facts, self.parameters.eta)
        return min(curved, self._drift_limited_rate()) if self.noise > 0 else curved

    def _drift_limited_rate(self) -> float:
        """The γ at which the noise of all steps would move an entry by drift·√(R/p).

        A cell moves by c·√s·σ·√steps if all steps are of size c and nothing holds it, since averaging s parties leaves
        √s of each one's noise once their gradients are added up.
        """
        drift = self.parameters.rule.drift(self.parameters) if self.limit is None else self.limit
        entry = math.sqrt(self.facts.scale.span / self.parameters.factors)
        c = drift * entry / (self.noise * math.sqrt(self.mixed * self.count))
        return float(c * self.parameters.eta * max(1, self.facts.ratings))


def curvature_limited_rate(facts: Facts, sampling: float) -> float:
    """γ = 4·min(η·n, m)/R.

    A sampled user's factors move by γ/(η·|Ω|) times a sum over their |Ω|/n ratings, of curvature ≤ 2R each; so the
    average user's step is stable for γ < η·n/R, and the average item's for γ < m/R. The first steps are larger than
    that, the last ones far smaller: embedding clipping bounds the first, and their noise is what finds good factors.
    The 4 was chosen on synthetic data and public sets; docs/results/foundation.md says how.
    """
    return 4.0 * min(sampling * facts.users, facts.items) / facts.scale.span


def typical_signal(parameters: Any, facts: PublicFacts, rows: int, parties: int = 1) -> float:
    """The size of one cell of one step's gradient, over all silos: ratings used per row times what one adds.

    Used are those of sampled users, trimmed, or sampled ratings. One adds to a cell, typically, an error of R/4 times a
    factor's entry as they start.
    """
    each, span = facts.ratings / facts.users / parties, facts.scale.span
    used = each if parameters.trim is None else min(each, parameters.trim)
    total = parameters.eta * facts.users * parties * used
    return float(total / rows * 2 * span / 4 * math.sqrt(0.6 * span / parameters.factors))


@dataclass(frozen=True)
class FactorGradient(Query):
    """Both blocks' gradient sums at (U, V) over a Poisson sample of users, without a sensitivity (P0, §3.1)."""

    scale: Scale
    sampling: float = 1.0

    def sensitivity(self, unit: Unit, relation: Relation) -> float:
        return math.inf

    def over(self, ratings: Ratings, at: Blocks | None = None, present: Array | None = None) -> UnboundedAnswer:
        def answer(state: Blocks, stream: np.random.Generator) -> dict[str, np.ndarray]:
            rows = np.flatnonzero(stream.random(ratings.n_users) < self.sampling)
            columns, U, V = (ratings.indptr, ratings.items, ratings.values), state["users"], state["items"]
            by_user, by_item = factor_gradients(*columns, self.scale.low, rows, U, V)
            return {"users": by_user, "items": by_item}

        return Unbounded().over(answer)
