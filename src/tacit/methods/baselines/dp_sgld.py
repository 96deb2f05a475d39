"""`dp-sgld`: stochastic gradient Langevin dynamics with the noise of differential privacy (Liu, Wang, Smola 2015).

A sample from the posterior exp(−Σ(r − u·v)²/(2s²)) needs noise of variance h on a step of size h; privacy needs noise
of variance (c·σ)² on the same step, c being what a gradient is multiplied by. Whichever is larger is added.

Guarantee
---------
That of SGDMF: a Gaussian per step, all of them composed. It is never counted as an exact draw from the posterior, which
would need a chain that has mixed (against Liu, Wang, Smola 2015, §3). What noise is added beyond that of privacy is a
function of noised values and fresh coins, and costs nothing.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from pydantic import Field

from tacit.data.ratings import Feedback
from tacit.methods.method import Method, Sides
from tacit.methods.sgdmf import horizontal, vertical
from tacit.methods.sgdmf.parameters import LocalStepParameters
from tacit.methods.sgdmf.update_rule import LANGEVIN
from tacit.partition import Setting


class SGLDParameters(LocalStepParameters):
    """Parameters of `dp-sgld`: those of SGDMF on silos, and

    Parameters
    ----------
    spread : s, how far ratings are taken to lie from what factors say, in parts of the scale's span
    """

    method: ClassVar[str] = "dp-sgld"

    spread: float = Field(default=0.25, gt=0, le=10)


class LangevinCoordinator(horizontal.HorizontalCoordinator):
    rule = LANGEVIN


class LangevinSilo(horizontal.HorizontalSilo):
    rule = LANGEVIN


class LangevinVerticalSilo(vertical.VerticalSilo):
    rule = LANGEVIN


SGLD = Method(
    name="dp-sgld",
    title="Private Langevin dynamics",
    what=(
        "As SGDMF, with enough noise on each step to draw factors from a posterior instead of finding the best ones; "
        "where privacy needs more noise than that, its noise serves."
    ),
    parameters=SGLDParameters,
    sides={
        Setting.HORIZONTAL: Sides(LangevinCoordinator, LangevinSilo, partial(horizontal.specs, rule=LANGEVIN)),
        Setting.VERTICAL: Sides(
            vertical.VerticalCoordinator, LangevinVerticalSilo, partial(vertical.specs, rule=LANGEVIN)
        ),
    },
    feedback=frozenset({Feedback.EXPLICIT, Feedback.COUNT}),
    claim=lambda parameters, context: (
        horizontal.proposition_3(parameters, context, LANGEVIN) if context.setting is Setting.HORIZONTAL else None
    ),
)
