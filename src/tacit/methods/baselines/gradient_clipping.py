"""`gradient-clipping`: SGDMF with every rating's gradient clipped to norm C, as DP-SGD does, instead of the factors.

Abadi et al. 2016, as compared with embedding clipping in P0, §4.3. Nothing bounds the factors but their steps. The
guarantee is that of SGDMF with C in the place of 2R^1.5: see `tacit.boundary.clipped_gradients.ClippedGradient`.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from tacit.boundary.clipped_gradients import ClippedGradient
from tacit.boundary.query import Query
from tacit.data.ratings import Scale
from tacit.methods.context import Context
from tacit.methods.method import RATED, Method
from tacit.methods.sgdmf import ON_SILOS
from tacit.methods.sgdmf.horizontal import proposition_3
from tacit.methods.sgdmf.parameters import LocalStepParameters
from tacit.methods.sgdmf.update_rule import DRIFT, Steps, UpdateRule, sampled_unit
from tacit.model import Form, Linear

#: How far noise may carry a factor's entry, in parts of √(R/p), where nothing brings it back.
FREE_DRIFT = 0.5


class ClippingRule(UpdateRule):
    """Each rating's gradient is clipped to norm C; x ← (1 − decay)·x − rate·g̃, without Π unless `projected`."""

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

    def step(self, steps: Steps, x: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
        if steps.parameters.projected:
            return super().step(steps, x, gradient, rate, decay)
        x *= np.float32(1 - decay)
        x -= np.float32(rate) * gradient
        return x

    def form(self, scale: Scale, items: np.ndarray) -> Form:
        """Factors that nothing bounds, and predictions cut to the scale."""
        return Linear.factors(items, scale)


class GradientClippingParameters(LocalStepParameters):
    """Parameters of `gradient-clipping`: those of SGDMF on silos, and

    Parameters
    ----------
    threshold : C, the norm that one rating's gradient is clipped to
    projected : whether the factors are kept short as well, by Π after every step; the noise is C's all the same
    """

    method: ClassVar[str] = "gradient-clipping"
    rule: ClassVar[UpdateRule] = ClippingRule()

    threshold: float = Field(default=10.0, gt=0)
    projected: bool = False


GRADIENT_CLIPPING = Method(
    name="gradient-clipping",
    title="Federated matrix factorization with gradient clipping",
    what=(
        "As SGDMF, but each rating's gradient is clipped to a length, as DP-SGD does it, and the factors "
        "themselves are not kept short."
    ),
    parameters=GradientClippingParameters,
    sides=ON_SILOS,
    feedback=RATED,
    claim=proposition_3,
)
