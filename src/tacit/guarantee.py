"""What a release promises: an object, never a float."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Unit(StrEnum):
    """What one guarantee covers as a whole."""

    USER = "user"
    RATING = "rating"


class Relation(StrEnum):
    """Which two data sets must look alike."""

    ZERO_OUT = "zero-out"  # the unit's record is emptied; the roster is public
    ADD_REMOVE = "add/remove"
    REPLACE = "replace"


class Trust(StrEnum):
    """Whom the unit trusts to add the noise."""

    LOCAL = "local"
    SILO = "silo"
    DISTRIBUTED = "distributed"
    SHUFFLED = "shuffled"
    CENTRAL = "central"
    NONE = "none"


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ)-differential privacy of one unit under one relation, against a stated observer.

    `simulated`: the noise was seeded, so anyone who holds the run file can recompute it. `per_silo`: a person with
    records in several silos is protected in each separately. `claimed_epsilon`: what a paper's own formulas state for
    the same noise, where a run requested them; ε is what holds.
    """

    epsilon: float
    delta: float
    unit: Unit
    relation: Relation
    trust: Trust
    against: str
    simulated: bool = False
    per_silo: bool = False
    claimed_epsilon: float | None = None

    def __str__(self) -> str:
        unit = f"per {self.unit}" + (" and silo" if self.per_silo else "")
        rounded_up = math.ceil(self.epsilon * 100 - 1e-9) / 100
        text = f"({rounded_up:.2f}, {_up(self.delta)})-DP · {unit} · {self.relation} · against {self.against}"
        if self.claimed_epsilon is not None:
            text += f" · the paper's formulas claim ε = {self.claimed_epsilon:g}"
        return text + (" · SIMULATED (seeded)" if self.simulated else "")

    def to_json(self) -> dict[str, Any]:
        """The summary's `guarantee`."""
        claim = {} if self.claimed_epsilon is None else {"claimed_epsilon": self.claimed_epsilon}
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": str(self.unit),
            "relation": str(self.relation),
            "model": str(self.trust),
            "against": self.against,
            "simulated": self.simulated,
            **claim,
        }


def _up(delta: float) -> str:
    """δ to two digits, rounded up.

    >>> _up(1e-6), _up(4.0027e-07), _up(2.5e-05)
    ('1e-06', '4.1e-07', '2.5e-05')
    """
    if not 0 < delta < 1:
        return f"{delta:g}"
    grain = 10.0 ** (math.floor(math.log10(delta)) - 1)
    return f"{math.ceil(delta / grain - 1e-9) * grain:.2g}"


@dataclass(frozen=True, repr=False)
class NoGuarantee:
    """The guarantee of a run without a mechanism: none. It is falsy.

    Attributes
    ----------
    hidden : what an aggregation hides, and from whom; sums of few users can still reveal one user's data
    """

    hidden: str = ""

    def __str__(self) -> str:
        return f"NON-PRIVATE · {self.hidden}" if self.hidden else "NON-PRIVATE"

    __repr__ = __str__

    def __bool__(self) -> bool:
        return False

    def to_json(self) -> None:
        return None


NON_PRIVATE = NoGuarantee()
