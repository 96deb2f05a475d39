"""How many bytes crossed, and whose they were."""

from __future__ import annotations

from collections import Counter


class Meter:
    """Real bytes of the wire format, by party and direction; a cohort's message counts once per device."""

    def __init__(self) -> None:
        self.up: Counter[str] = Counter()
        self.down: Counter[str] = Counter()

    def sent_down(self, party: str, size: int, copies: int = 1) -> int:
        """Count a message from the coordinator to a party; returns the bytes in all copies."""
        self.down[party] += size * copies
        return size * copies

    def sent_up(self, party: str, size: int, copies: int = 1) -> int:
        """Count a message from a party to the coordinator; returns the bytes in all copies."""
        self.up[party] += size * copies
        return size * copies

    @property
    def bytes_up(self) -> int:
        return self.up.total()

    @property
    def bytes_down(self) -> int:
        return self.down.total()
