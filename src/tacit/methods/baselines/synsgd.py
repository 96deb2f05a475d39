"""`synsgd`: silos send one noisy item gradient at every step, and the coordinator descends (P0, §5.3: HFL-synSGD).

It is SGDMF with one local step, and users' factors that follow at home, a step at a time.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from tacit.methods.context import Context
from tacit.methods.method import RATED, Method
from tacit.methods.sgdmf import ON_SILOS
from tacit.methods.sgdmf.horizontal import proposition_3
from tacit.methods.sgdmf.parameters import SiloParameters
from tacit.partition import Setting


class SynchronousParameters(SiloParameters):
    """Parameters of `synsgd`: those of SGDMF on horizontal silos, with one local step and, by default, 1,000 rounds."""

    method: ClassVar[str] = "synsgd"

    rounds: int = Field(default=1000, ge=1, le=100_000)
    users: Literal["together", "pretrained"] | None = None

    local_steps: ClassVar[int] = 1
    summed: ClassVar[bool] = True

    @property
    def steps(self) -> int:
        """T."""
        return self.rounds

    def resolved(self, context: Context) -> SynchronousParameters:
        """Users' factors are fitted "together" by default."""
        chosen = self if self.users is not None else self.model_copy(update={"users": "together"})
        return super(SynchronousParameters, chosen).resolved(context)


SYNCHRONOUS = Method(
    name="synsgd",
    title="Noisy gradients, averaged at every step",
    what=(
        "Every silo sends one noisy gradient of the item factors at every step, and the coordinator descends. "
        "It is SGDMF with one local step: more messages, and users' factors follow at home."
    ),
    parameters=SynchronousParameters,
    sides={Setting.HORIZONTAL: ON_SILOS[Setting.HORIZONTAL]},
    feedback=RATED,
    claim=proposition_3,
)
