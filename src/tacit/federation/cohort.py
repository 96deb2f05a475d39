"""Who takes part: drop-outs injected in a simulation.

Each party and round drops out independently with the run's probability, at a random exchange, and is back in the next
round. In a cohort every device drops out for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.boundary.wire import Array
from tacit.federation.facts import Facts
from tacit.rng import derive


@dataclass(frozen=True, eq=False)
class Attendance:
    """Who hears a request, and whose answer arrives.

    `hears` and `arrives` map a silo's name to a bool, and a cohort's to one bool per device; a name that is not there
    is present.
    """

    hears: Mapping[str, Array]
    arrives: Mapping[str, Array]

    @classmethod
    def full(cls) -> Attendance:
        return cls({}, {})

    @classmethod
    def draw(cls, facts: Facts, dropout: float, round: int, call: int) -> Attendance:
        """Independent drop-outs for one exchange: half before the request is heard, half before the answer arrives."""
        if dropout == 0:
            return cls.full()
        hears, arrives = {}, {}
        for member in facts.roster:
            stream = derive(facts.seed, member.name, round, "drop-out", call)
            gone = stream.random(max(1, member.devices)) < dropout
            early = stream.random(max(1, member.devices)) < 0.5
            hears[member.name], arrives[member.name] = ~(gone & early), ~gone
        return cls(hears, arrives)

    def listeners(self, name: str, devices: int) -> int:
        """How many devices, or whether the one silo, hear the request."""
        heard = self.hears.get(name)
        return max(1, devices) if heard is None else int(np.count_nonzero(heard))

    def survivors(self, name: str) -> Array | None:
        """For each device, or for the one silo, whether its answer arrives; None means all."""
        return self.arrives.get(name)
