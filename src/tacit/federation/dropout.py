"""Drop-outs, injected in a simulation.

Each party and round drops out independently with the run's probability, at a random exchange, and is back in the next
round. In a cohort every device drops out independently.
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
    """Who receives a request, whose answer arrives: by name a bool, or one per device; who is missing takes part."""

    receives: Mapping[str, Array]
    arrives: Mapping[str, Array]

    @classmethod
    def full(cls) -> Attendance:
        return cls({}, {})

    @classmethod
    def draw(cls, facts: Facts, dropout: float, round: int, call: int) -> Attendance:
        """Independent drop-outs for one exchange: half before the request, half before the answer arrives."""
        if dropout == 0:
            return cls.full()
        receives, arrives = {}, {}
        for member in facts.roster:
            stream = derive(facts.seed, member.name, round, "drop-out", call)
            gone = stream.random(max(1, member.devices)) < dropout
            early = stream.random(max(1, member.devices)) < 0.5
            receives[member.name], arrives[member.name] = ~(gone & early), ~gone
        return cls(receives, arrives)

    @classmethod
    def over(cls, facts: Facts, dropout: float, round: int, call: int, exchanges: int) -> list[Attendance]:
        """Independent drop-outs over several exchanges about one sum: a party that leaves at one stays away."""
        if dropout == 0:
            return [cls.full()] * exchanges
        receives: list[dict[str, Array]] = [{} for _ in range(exchanges)]
        arrives: list[dict[str, Array]] = [{} for _ in range(exchanges)]
        for member in facts.roster:
            stream = derive(facts.seed, member.name, round, "drop-out", call)
            last = int(stream.integers(exchanges)) if stream.random() < dropout else exchanges
            early = bool(stream.random() < 0.5)
            for exchange in range(exchanges):
                receives[exchange][member.name] = np.array([exchange < last or (exchange == last and not early)])
                arrives[exchange][member.name] = np.array([exchange < last])
        return [cls(*pair) for pair in zip(receives, arrives, strict=True)]

    def receivers(self, name: str, devices: int) -> int:
        """How many devices receive the request; 0 or 1 for a silo."""
        received = self.receives.get(name)
        return max(1, devices) if received is None else int(np.count_nonzero(received))

    def survivors(self, name: str) -> Array | None:
        """For each device, or the silo, whether its answer arrives; None means all."""
        return self.arrives.get(name)
