"""`gradient-clipping`: SGDMF with every rating's gradient clipped to norm C, as DP-SGD does, instead of the factors.

Abadi et al. 2016, as compared with embedding clipping in P0, §4.3. Nothing bounds the factors but their steps. The
guarantee is that of SGDMF with C in the place of 2R^1.5: see `tacit.boundary.gradients.ClippedGradient`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from tacit.boundary.gradients import ClippedGradient
from tacit.boundary.query import Query
from tacit.data.ratings import Feedback, Ratings, Scale
from tacit.federation import Facts
from tacit.guarantee import Unit
from tacit.methods.base import Method, Sides
from tacit.methods.sgdmf.gradient import At
from tacit.methods.sgdmf.horizontal import HorizontalCoordinator, HorizontalSilo
from tacit.methods.sgdmf.parameters import Move, SGDMFParameters, sampled_unit
from tacit.methods.sgdmf.schedule import schedule
from tacit.methods.sgdmf.vertical import VerticalCoordinator, VerticalSilo
from tacit.model import Form, Linear
from tacit.partition import Setting

#: How far noise may carry a factor's entry that nothing brings back; docs/explanation/sgdmf-private-rates.md.
FREE_DRIFT = 0.5


class GradientClippingParameters(SGDMFParameters):
    """Parameters of `gradient-clipping`: those of SGDMF, and

    Parameters
    ----------
    threshold : C, the norm that one rating's gradient is clipped to
    projected : whether the factors are kept short as well, by Π after every step; the noise is C's all the same
    """

    method: ClassVar[str] = "gradient-clipping"

    threshold: float = Field(default=10.0, gt=0)
    projected: bool = False

    @property
    def drift(self) -> float:
        """Less where no projection brings a factor back."""
        return super().drift if self.projected else FREE_DRIFT

    def gradient(
        self, ratings: Ratings, facts: Facts, blocks: Sequence[str], *, users_are_public: bool, at: At = None
    ) -> Query:
        return ClippedGradient(
            ratings,
            self.eta,
            self.trim,
            blocks,
            threshold=self.threshold,
            users_are_public=users_are_public,
            sampled=sampled_unit(facts.unit, users_are_public),
            at=at,
        )

    def sensitivity(self, span: float, unit: Unit, blocks: Sequence[str], *, users_are_public: bool) -> float:
        return self._bound(ClippedGradient, self.threshold, unit, blocks, users_are_public)

    def project(self, received: np.ndarray, span: float) -> np.ndarray:
        """A copy, where nothing is projected: the clip holds whatever the factors are."""
        return super().project(received, span) if self.projected else received.copy()

    def form(self, scale: Scale, items: np.ndarray) -> Form:
        """Factors that nothing bounds, and predictions cut to the scale."""
        return Linear.factors(items, scale)

    def mover(self, span: float, noise: float, stream: np.random.Generator) -> Move:
        if self.projected:
            return super().mover(span, noise, stream)

        def move(x: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
            x *= np.float32(1 - decay)
            x -= np.float32(rate) * gradient
            return x

        return move


GRADIENT_CLIPPING = Method(
    name="gradient-clipping",
    title="Federated matrix factorization with gradient clipping",
    what=(
        "As SGDMF, but each rating's gradient is clipped to a length, as DP-SGD does it, and the factors "
        "themselves are not kept short."
    ),
    parameters=GradientClippingParameters,
    sides={
        Setting.HORIZONTAL: Sides(HorizontalCoordinator, HorizontalSilo),
        Setting.VERTICAL: Sides(VerticalCoordinator, VerticalSilo),
    },
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
    schedule=schedule,
)
