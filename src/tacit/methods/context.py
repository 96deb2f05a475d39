"""All that is public before a run: what a method's specs and the defaults of its parameters may rest on."""

import math
from dataclasses import dataclass
from functools import cached_property

from tacit.boundary import gdp
from tacit.data.public_facts import PublicFacts
from tacit.guarantee import Unit
from tacit.partition import Setting


@dataclass(frozen=True)
class Target:
    """The guarantee that is asked for."""

    epsilon: float
    delta: float
    unit: Unit

    @cached_property
    def mu(self) -> float:
        """The μ of the Gaussian differential privacy that (ε, δ) allows."""
        return gdp.mu(self.epsilon, self.delta)


@dataclass(frozen=True)
class Context:
    """Where a plan is made.

    Attributes
    ----------
    facts : n, the catalogue's shape, the scale and |Ω|: declared, or without privacy counted
    setting, parties : the run's; devices of a cohort are counted one by one
    target : what is promised; None for NON-PRIVATE
    noises : how many noises there are in a sum over all parties: one if they share it, else one of each party
    """

    facts: PublicFacts
    setting: Setting
    parties: int
    target: Target | None = None
    noises: int = 1

    @property
    def unit(self) -> Unit | None:
        """What the run protects; None for NON-PRIVATE."""
        return None if self.target is None else self.target.unit

    @property
    def mu(self) -> float:
        """How much may be learned of one unit; infinite for NON-PRIVATE."""
        return math.inf if self.target is None else self.target.mu

    @property
    def sum_mu(self) -> float:
        """`mu` over √noises: the μ that a sum over all parties would have with one noise as large as theirs together.

        It says how much can be learned from a sum, and nothing about what is promised.
        """
        return self.mu / math.sqrt(self.noises)
