"""`dp-sgld`: stochastic gradient Langevin dynamics with the noise of differential privacy (Liu, Wang, Smola 2015).

A sample from the posterior exp(−Σ(r − u·v)²/(2s²)) needs noise of variance h on a step of size h; privacy needs noise
of variance (c·σ)² on the same step, c being what a gradient is multiplied by. Whichever is larger is added.

Guarantee
---------
That of SGDMF: a Gaussian per step, all of them composed. It is never counted as an exact draw from the posterior, which
would need a chain that has mixed (against Liu, Wang, Smola 2015, §3). The noise added beyond that of privacy is a
function of noised values and fresh coins, and costs nothing.
"""

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from tacit.kernels.embed import descend_and_embed
from tacit.methods.method import RATED, Method
from tacit.methods.sgdmf import ON_SILOS
from tacit.methods.sgdmf.horizontal import proposition_3
from tacit.methods.sgdmf.parameters import LocalStepParameters
from tacit.methods.sgdmf.update_rule import Steps, UpdateRule


class LangevinRule(UpdateRule):
    """x ← Π((1 − decay)·x − c·g + N(0, max(0, h − (c·σ)²))), h = 4·s²·η·c.

    A sampled gradient sum g estimates 2s²·η times that of the log-posterior, and Langevin takes h/2 of the latter.
    """

    def step(self, steps: Steps, x: np.ndarray, gradient: np.ndarray, rate: float, decay: float) -> np.ndarray:
        span, parameters = steps.facts.scale.span, steps.parameters
        langevin = 4 * (parameters.spread * span) ** 2 * parameters.eta * rate
        missing = math.sqrt(max(0.0, langevin - (rate * steps.noise) ** 2))
        if missing > 0:
            assert steps.stream is not None
            normal = steps.stream.standard_normal(x.shape, dtype=np.float32)
            gradient = gradient + normal * np.float32(missing / rate)
        return descend_and_embed(x, gradient, rate, span, decay)


class SGLDParameters(LocalStepParameters):
    """Parameters of `dp-sgld`: those of SGDMF on silos, and

    Parameters
    ----------
    spread : s, the standard deviation of ratings around what factors predict, in parts of the scale's span
    """

    method: ClassVar[str] = "dp-sgld"
    rule: ClassVar[UpdateRule] = LangevinRule()

    spread: float = Field(default=0.25, gt=0, le=10)


SGLD = Method(
    name="dp-sgld",
    title="Private Langevin dynamics",
    what=(
        "As SGDMF, with enough noise on each step to draw factors from a posterior instead of finding the best ones; "
        "where privacy needs more noise than that, its noise serves."
    ),
    parameters=SGLDParameters,
    sides=ON_SILOS,
    feedback=RATED,
    claim=proposition_3,
)
