"""How many bytes crossed, and whose they were."""

from __future__ import annotations

from collections import Counter


class Meter:
    """Real bytes of the wire format, by party and direction; a cohort's message counts once per device."""

    def __init__(self) -> None:
        self.up: Counter[str] = Counter()
        self.down: Counter[str] = Counter()

    def sent_down(self, party: str, size: int) -> None:
        """Count bytes from the coordinator to a party, those of all copies."""
        self.down[party] += size

    def sent_up(self, party: str, size: int) -> None:
        """Count bytes from a party to the coordinator, those of all copies."""
        self.up[party] += size

    @property
    def bytes_up(self) -> int:
        return self.up.total()

    @property
    def bytes_down(self) -> int:
        return self.down.total()
