"""`gradient-clipping`: SGDMF with every rating's gradient clipped to norm C, as DP-SGD does, instead of the factors.

Abadi et al. 2016, as compared with embedding clipping in P0, §4.3. Nothing bounds the factors but their steps. The
guarantee is that of SGDMF with C in the place of 2R^1.5: see `tacit.boundary.clipped_gradients.ClippedGradient`.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pydantic import Field

from tacit.data.ratings import Feedback
from tacit.methods.method import Method, Sides
from tacit.methods.sgdmf import horizontal, vertical
from tacit.methods.sgdmf.parameters import LocalStepParameters
from tacit.methods.sgdmf.update_rule import CLIPPED
from tacit.partition import Setting


class GradientClippingParameters(LocalStepParameters):
    """Parameters of `gradient-clipping`: those of SGDMF on silos, and

    Parameters
    ----------
    threshold : C, the norm that one rating's gradient is clipped to
    projected : whether the factors are kept short as well, by Π after every step; the noise is C's all the same
    """

    method: ClassVar[str] = "gradient-clipping"

    threshold: float = Field(default=10.0, gt=0)
    projected: bool = False


class ClippedCoordinator(horizontal.HorizontalCoordinator):
    rule = CLIPPED


class ClippedSilo(horizontal.HorizontalSilo):
    rule = CLIPPED


class ClippedVerticalCoordinator(vertical.VerticalCoordinator):
    rule = CLIPPED


class ClippedVerticalSilo(vertical.VerticalSilo):
    rule = CLIPPED


GRADIENT_CLIPPING = Method(
    name="gradient-clipping",
    title="Federated matrix factorization with gradient clipping",
    what=(
        "As SGDMF, but each rating's gradient is clipped to a length, as DP-SGD does it, and the factors "
        "themselves are not kept short."
    ),
    parameters=GradientClippingParameters,
    sides={
        Setting.HORIZONTAL: Sides(ClippedCoordinator, ClippedSilo, partial(horizontal.specs, rule=CLIPPED)),
        Setting.VERTICAL: Sides(ClippedVerticalCoordinator, ClippedVerticalSilo, partial(vertical.specs, rule=CLIPPED)),
    },
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
    claim=lambda parameters, context: (
        horizontal.proposition_3(parameters, context, CLIPPED) if context.setting is Setting.HORIZONTAL else None
    ),
)
