"""A proxy's board, as a state machine without I/O: the coordinator's messages to all devices of a run.

A message is on the board once, under its digest, and every device that it is for reads the same bytes. One message of
each topic is there at a time, in the order of `TOPICS`: a new one takes away those of its own topic and of later ones.
So a device that was started in mid-run reads what it missed, in order, and nothing that is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, field

from tacit.errors import BadMessage, PeerFailed

#: What can be on the board, in the order in which a run needs it.
TOPICS = ("offer", "begin", "ask", "end")
#: To whom messages on the board are addressed.
EVERYBODY = "devices"


class UnknownNotice(PeerFailed):
    """No message with this digest is on the board: the proxy keeps none over a restart."""


class NoAnswer(PeerFailed):
    """The coordinator did not answer a device's letter in time."""


@dataclass
class Notice:
    """One message and the devices that may read it. `number` grows from message to message."""

    number: int
    topic: str
    message: bytes
    digest: str
    devices: set[str] = field(default_factory=set)


class Board:
    """The messages of one run.

    Parameters
    ----------
    first : the number before the first message's; it must grow from start to start, as a clock does
    """

    def __init__(self, first: int) -> None:
        self.first = self._last = first
        self._notices: dict[str, Notice] = {}

    def post(self, topic: str, message: bytes) -> Notice:
        """Put a message on the board, for nobody yet; one that is there already stays as it is."""
        if topic not in TOPICS or not message:
            raise BadMessage("This is no message for the board; nothing was posted.")
        digest = hashlib.sha256(message).hexdigest()
        held = self._notices.get(topic)
        if held is not None and held.digest == digest:
            return held
        self._last += 1
        earlier = TOPICS[: TOPICS.index(topic)]
        self._notices = {name: one for name, one in self._notices.items() if name in earlier}
        self._notices[topic] = notice = Notice(self._last, topic, message, digest)
        return notice

    def address(self, digest: str, devices: Collection[str]) -> None:
        """Let these devices read a message too."""
        notice = next((one for one in self._notices.values() if one.digest == digest), None)
        if notice is None:
            raise UnknownNotice("No such message is on the board; the proxy may have been started again.")
        notice.devices.update(devices)

    def after(self, device: str, number: int) -> Notice | None:
        """The first message for a device after the one of this number; None while there is none."""
        mine = [one for one in self._notices.values() if one.number > number and device in one.devices]
        return min(mine, key=lambda one: one.number, default=None)
