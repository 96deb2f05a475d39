"""How a step bounds what it asks and how factors move at the answer: what the variants of SGDMF replace.

`EMBEDDED` is the paper's: factors are kept non-negative and short by Π, which bounds every gradient (P0, §4.2).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tacit.boundary.clipped_gradients import ClippedGradient, EmbeddingGradient
from tacit.boundary.query import Query
from tacit.data.ratings import Scale
from tacit.guarantee import Unit
from tacit.kernels.embed import descend_and_embed, embed
from tacit.methods.context import Context
from tacit.methods.sgdmf.unbounded_gradient import FactorGradient
from tacit.model import Form, Linear, NonNegative

#: One step of factors, in place: (x, gradient, rate, decay).
Move = Callable[[np.ndarray, np.ndarray, float, float], np.ndarray]

#: How far noise may carry a factor's entry, in parts of √(R/p), where Π brings it back, and where nothing does.
#: Found on synthetic worlds: docs/explanation/sgdmf-private-rates.md.
DRIFT, FREE_DRIFT = 3.0, 0.5


class Rule:
    """Embedding clipping: gradients at Π(U), Π(V), and steps that end in Π."""

    def query(
        self, parameters: Any, context: Context, blocks: Sequence[str], *, users_are_public: bool, at_home: bool = False
    ) -> Query:
        """What one step asks. Without privacy and trimming it need bound nothing, and is faster.

        `at_home` says that a block comes from what the silo keeps, and not from the chain's own state.
        """
        if context.unit is None and parameters.trim is None and not at_home and len(blocks) == 2:
            return FactorGradient(context.facts.scale, parameters.eta)
        sampled = sampled_unit(context.unit, users_are_public)
        return EmbeddingGradient(
            context.facts.scale,
            parameters.eta,
            parameters.trim,
            tuple(blocks),
            users_are_public=users_are_public,
            sampled=sampled,
        )

    def drift(self, parameters: Any) -> float:
        """How far the noise of all steps may carry a factor's entry, in parts of √(R/p)."""
        return DRIFT

    def project(self, parameters: Any, received: np.ndarray, span: float) -> np.ndarray:
        """Factors from a peer, as steps start from them: Π."""
        return embed(received, span)

    def mover(self, parameters: Any, span: float, noise: float, stream: np.random.Generator) -> Move:
        """How factors move at a noised gradient: x ← Π((1 − decay)·x − rate·gradient), in place.

        `noise` is the σ that the gradient carries; `stream` is for a rule that adds noise of its own.
        """
        return lambda x, gradient, rate, decay: descend_and_embed(x, gradient, rate, span, decay)

    def form(self, scale: Scale, items: np.ndarray) -> Form:
        """The model's form over item factors; Π keeps what it predicts on the scale."""
        return NonNegative(scale.low, scale.high, items)


class ClippingRule(Rule):
    """Gradient clipping: each rating's gradient is cut to norm C, as DP-SGD does it (Abadi et al. 2016; P0, §4.3)."""

    def query(
        self, parameters: Any, context: Context, blocks: Sequence[str], *, users_are_public: bool, at_home: bool = False
    ) -> Query:
        return ClippedGradient(
            context.facts.scale,
            parameters.eta,
            parameters.trim,
            tuple(blocks),
            threshold=parameters.threshold,
            users_are_public=users_are_public,
            sampled=sampled_unit(context.unit, users_are_public),
        )

    def drift(self, parameters: Any) -> float:
        return DRIFT if parameters.projected else FREE_DRIFT

    def project(self, parameters: Any, received: np.ndarray, span: float) -> np.ndarray:
        """A copy, where nothing is projected: the clip holds whatever the factors are."""
        return super().project(parameters, received, span) if parameters.projected else received.copy()

    def mover(self, parameters: Any, span: float, noise: float, stream: np.random.Generator) -> Move:
        if parameters.projected:
            return super().mover(parameters, span, noise, stream)

        def move(x: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
            x *= np.float32(1 - decay)
            x -= np.float32(rate) * gradient
            return x

        return move

    def form(self, scale: Scale, items: np.ndarray) -> Form:
        """Factors that nothing bounds, and predictions cut to the scale."""
        return Linear.factors(items, scale)


class LangevinRule(Rule):
    """Langevin dynamics: enough noise on each step to draw from a posterior; that of privacy counts towards it.

    A sample from the posterior exp(−Σ(r − u·v)²/(2s²)) needs noise of variance h on a step of size h; privacy needs
    noise of variance (c·σ)² on the same step, c being what a gradient is multiplied by. Whichever is larger is added.
    """

    def mover(self, parameters: Any, span: float, noise: float, stream: np.random.Generator) -> Move:
        """x ← Π((1 − decay)·x − c·g + N(0, max(0, h − (c·σ)²))), h = 4·s²·η·c.

        A sampled gradient sum g estimates 2s²·η times that of the log-posterior, and Langevin takes h/2 of the latter.
        """

        def move(x: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
            langevin = 4 * (parameters.spread * span) ** 2 * parameters.eta * rate
            missing = math.sqrt(max(0.0, langevin - (rate * noise) ** 2))
            if missing > 0:
                gradient = gradient + stream.standard_normal(x.shape, dtype=np.float32) * np.float32(missing / rate)
            return descend_and_embed(x, gradient, rate, span, decay)

        return move


EMBEDDED, CLIPPED, LANGEVIN = Rule(), ClippingRule(), LangevinRule()


def sampled_unit(unit: Unit | None, users_are_public: bool) -> Unit:
    """What a step's sample is of: samples of users amplify no rating (see tacit.boundary.clipped_gradients)."""
    return Unit.RATING if unit is Unit.RATING and users_are_public else Unit.USER
