"""The coordinator's desk: pushes messages to services elsewhere, and waits for what they reply.

A message is pushed and acknowledged; the reply comes back as a message of its own, so nobody holds a line open while a
party computes. What is lost on the way is sent again: the desk pushes again when a service has started anew, a service
pushes its reply until it is taken. Every message has an id, so that nothing is done twice. A service that starts anew
in the middle of a run is first told again what it was told before, in its order; so every message also says for which
start of the service it is meant, and another one, which may be on the line before it has said hello, does not take it.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.boundary.wire import Value, reading
from tacit.engine.cells import COORDINATOR, Cell
from tacit.engine.envelope import Address, read_failure, sign_message
from tacit.errors import BadMessage, TacitError

#: What a service says to a message that was pushed to it: that it will be seen to.
TAKEN = b"taken"
#: Seconds: how long a push may take at most, how long one that was late and did not come back is waited for once
#: more, and how long to wait before a push that did not get there is tried again.
PUSH, GRACE, AGAIN = 120.0, 5.0, 0.2
#: Seconds without a word after which a service is away; it says hello every two.
SILENCE = 7.0

#: What is said, given the seconds that are left for it.
Content = Callable[[float], Mapping[str, Value]]


@dataclass
class ServiceState:
    """What the desk knows of one service."""

    start: str = ""  # which start of the service said hello last
    heard: float = 0.0  # when it said something last
    late: bool = False  # whether it let a deadline pass and has not been heard of since
    told: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by start, which ids it has replied to
    waiting: str = ""  # the id whose reply is waited for
    until: float = 0.0  # when it is not waited for any more
    reply: dict[str, Any] | None = None


class CoordinatorChannel:
    """Where one run's messages go out and replies come in.

    Parameters
    ----------
    cell : the coordinator's
    key : the coordinator's signing key
    run : the run's name, in every message
    """

    def __init__(self, cell: Cell, key: Ed25519PrivateKey, run: str) -> None:
        self._cell, self._key, self._run = cell, key, run
        self._news = threading.Condition()
        self._peers: dict[str, ServiceState] = defaultdict(ServiceState)
        self._first: list[tuple[str, str, Mapping[str, Content]]] = []
        self._closed = False

    def close(self) -> None:
        """Wait for nobody any more: whoever is waited for is late from now on."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def hello(self, name: str, start: str) -> None:
        """A service is there: for the first time, still, or anew."""
        with self._news:
            peer = self._peers[name]
            peer.start, peer.heard, peer.late = start, monotonic(), False
            self._news.notify_all()

    def know(self, other: CoordinatorChannel) -> None:
        """Whoever said hello at another desk is known at this one."""
        for name, peer in other._peers.items():
            if peer.start:
                self.hello(name, peer.start)

    def gone(self, name: str) -> None:
        """A service is not let in, or not any more; what it was asked is not waited for."""
        with self._news:
            if (peer := self._peers.get(name)) is not None:
                peer.start, peer.late = "", True
                self._news.notify_all()

    def replied(self, name: str, about: str, content: dict[str, Any]) -> None:
        """A reply arrived; one that nobody waits for is dropped."""
        with self._news:
            peer = self._peers[name]
            peer.heard = monotonic()
            if about and peer.waiting == about and peer.reply is None:
                peer.reply = content
                if "error" not in content:  # what was refused does not count as told
                    peer.told[peer.start].add(about)
                self._news.notify_all()

    def present(self, within: float = SILENCE) -> dict[str, bool]:
        """By name of those that ever said hello, whether they were heard of lately."""
        with self._news:
            return {name: monotonic() - peer.heard < within for name, peer in self._peers.items() if peer.start}

    def start_of(self, name: str) -> str:
        """Which start of a service said hello last; empty where none did, or it is not let in any more."""
        with self._news:
            return self._peers[name].start if name in self._peers else ""

    def patience(self, name: str) -> float:
        """How many seconds a service is still waited for; 0 where nothing is asked of it."""
        with self._news:
            return max(0.0, self._peers[name].until - monotonic()) if name in self._peers else 0.0

    def wait_for(self, names: tuple[str, ...], seconds: float) -> tuple[str, ...]:
        """Until all of them have said hello; who has not in time."""
        with self._news:
            self._news.wait_for(lambda: self._closed or all(self._peers[name].start for name in names), seconds)
            return tuple(name for name in names if not self._peers[name].start)

    def first(self, topic: str, about: str, content: Mapping[str, Content]) -> None:
        """From now on a service that starts anew is told this before anything else, behind what else comes first."""
        self._first.append((topic, about, content))

    def settle(self, name: str, topic: str, about: str, content: Content, seconds: float) -> Any:
        """Say something to a service until it replies: its reply, the error that it tells of, or None if it is late."""
        with self._news:
            peer = self._peers[name]
            was_late = peer.late
            deadline = peer.until = monotonic() + min(GRACE if was_late else seconds, seconds)
        try:
            reply = self._settled(name, topic, about, content, deadline)
        finally:
            peer.until = 0.0
        if reply is not None:
            return _failure(reply, name) or reply
        with self._news:
            peer.start, peer.late = "" if was_late else peer.start, True  # the second time: until it says hello
        return None

    # -- inside ------------------------------------------------------------------------------------------------------

    def _settled(self, name: str, topic: str, about: str, content: Content, deadline: float) -> dict[str, Any] | None:
        """The reply of a service that is told again and again; None if there was none by the deadline."""
        while (left := deadline - monotonic()) > 0 and not self._closed:
            start = self._started(name, left)
            if start is None:
                return None
            if not self._introduced(name, start, about, deadline):
                continue
            reply = self._pushed(name, start, topic, about, content, deadline)
            if reply is not None:
                return reply
        return None

    def _introduced(self, name: str, start: str, about: str, deadline: float) -> bool:
        """Whether this start of the service knows all that comes first; it is told what it does not know."""
        for topic, id, contents in self._first:
            if id == about:
                return True
            if name not in contents or id in self._peers[name].told[start]:
                continue
            reply = self._pushed(name, start, topic, id, contents[name], deadline)
            if reply is None or _failure(reply, name) is not None:
                with self._news:
                    self._news.wait(AGAIN)
                return False
        return True

    def _pushed(
        self, name: str, start: str, topic: str, about: str, content: Content, deadline: float
    ) -> dict[str, Any] | None:
        """One push, and the reply to it; None if it did not get there, or the service started anew meanwhile."""
        peer = self._peers[name]
        with self._news:
            peer.waiting, peer.reply = about, None
        try:
            left = max(0.1, deadline - monotonic())
            place = Address(COORDINATOR, name, topic, self._run)
            message = sign_message(place, {"about": about, "start": start, **content(left)}, self._key)
            if self._cell.send(name, topic, message, min(PUSH, left)) != TAKEN:
                with self._news:
                    if peer.reply is None:
                        self._news.wait(AGAIN)
                    return peer.reply
            with self._news:
                left = max(0.0, deadline - monotonic())
                self._news.wait_for(lambda: peer.reply is not None or peer.start != start or self._closed, left)
                return peer.reply
        finally:
            with self._news:
                peer.waiting, peer.reply = "", None

    def _started(self, name: str, seconds: float) -> str | None:
        """Which start of the service is there; None if none came in time, or it is not let in any more."""
        peer = self._peers[name]
        with self._news:
            self._news.wait_for(lambda: bool(peer.start) or peer.late or self._closed, max(0.0, seconds))
            return peer.start or None


def _failure(reply: Mapping[str, Any], name: str) -> TacitError | None:
    """The error that a reply tells of; one that cannot be read is an error too."""
    try:
        with reading(name):
            return read_failure(reply, name)
    except BadMessage as error:
        return error
