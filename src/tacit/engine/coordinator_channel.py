"""The coordinator's channel: pushes messages to services, and waits for their replies.

A message is pushed and acknowledged; the reply is a message of its own, so that no connection is held while a party
computes. Lost messages are sent again, and every message has an id, so that nothing is done twice. A service that
restarts in the middle of a run first gets the earlier messages again, in their order; so a message also names the start
of the service that it is for, and another start does not accept it.

Devices behind a proxy get messages that are addressed to all of them: one message, the same bytes for everyone, on a
board where a device that restarts reads the earlier ones again (`tacit.engine.board`).
"""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.boundary.release import Kind
from tacit.boundary.wire import Value, reading
from tacit.engine.board import EVERYBODY
from tacit.engine.cells import COORDINATOR, Cell
from tacit.engine.envelope import Address, TimedRequest, read_answer, read_failure, sign_message
from tacit.errors import BadMessage, TacitError
from tacit.federation.dropout import Attendance
from tacit.federation.messages import MOST_WHY, Answer, Request

#: A service's acknowledgement of a message.
TAKEN = b"taken"
#: Seconds: for one push, for a service that was late and has not come back, and before a failed push is repeated.
PUSH, GRACE, AGAIN = 120.0, 5.0, 0.2
#: Seconds without a message after which a service is absent; it sends a hello every two.
SILENCE = 7.0

#: Replies of one service that came before they were expected: its device read the board first.
MOST_EARLY = 8

#: A message's content, given the seconds that are left for it.
Content = Callable[[float], Mapping[str, Value]]


class Poster(Protocol):
    """The way to a proxy's board."""

    def post(self, name: str, topic: str, message: bytes) -> bool:
        """Put a message on the board, if it is not there, and let one device read it; whether it is there."""


@dataclass
class ServiceState:
    """What the channel knows of one service."""

    start: str = ""  # the start of the service that sent the latest hello
    heard: float = 0.0  # when its latest message came
    late: bool = False  # whether it missed a deadline, and has sent no hello since
    done: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))  # by start, the ids it replied to
    waiting: str = ""  # the id whose reply is expected
    until: float = 0.0  # the deadline of that reply
    reply: dict[str, Any] | None = None
    relayed: bool = False  # whether it is a device that reads the board
    early: dict[str, dict[str, Any]] = field(default_factory=dict)  # by id, replies to what is not expected yet


class CoordinatorChannel:
    """One run's messages and replies.

    Parameters
    ----------
    cell : the coordinator's
    key : the coordinator's signing key
    run : the run's name, in every message
    poster : the way to devices behind a proxy; None where there are none
    """

    def __init__(self, cell: Cell, key: Ed25519PrivateKey, run: str, poster: Poster | None = None) -> None:
        self._cell, self._key, self._run, self._poster = cell, key, run, poster
        self._session = secrets.token_hex(8)
        self._posted: dict[str, tuple[str, bytes]] = {}  # by topic, the id and the bytes of what is on the board
        self._news = threading.Condition()
        self._services: dict[str, ServiceState] = defaultdict(ServiceState)
        self._introduction: list[tuple[str, str, Mapping[str, Content]]] = []
        self._closed = False

    def close(self) -> None:
        """Stop waiting: every expected reply is late from now on."""
        with self._news:
            self._closed = True
            self._news.notify_all()

    def connected(self, name: str, start: str, relayed: bool = False) -> None:
        """A service sent a hello: its first, another one, or the first after a restart."""
        with self._news:
            service = self._services[name]
            if service.start != start:
                service.early.clear()
            service.start, service.heard, service.late, service.relayed = start, monotonic(), False, relayed
            self._news.notify_all()

    def adopt(self, other: CoordinatorChannel) -> None:
        """Know the services that are connected to another channel."""
        for name, service in other._services.items():
            if service.start:
                self.connected(name, service.start, service.relayed)

    def disconnected(self, name: str) -> None:
        """A service is not admitted, or no longer; its reply is not expected."""
        with self._news:
            if (service := self._services.get(name)) is not None:
                service.start, service.late = "", True
                self._news.notify_all()

    def replied(self, name: str, id: str, content: dict[str, Any]) -> None:
        """A reply arrived; one that is not expected is dropped, or a device's stored: it may come before its turn."""
        with self._news:
            service = self._services[name]
            service.heard = monotonic()
            if service.relayed and service.waiting != id:
                service.early[id] = content
                if len(service.early) > MOST_EARLY:
                    del service.early[next(iter(service.early))]
            elif id and service.waiting == id and service.reply is None:
                service.reply = content
                if "error" not in content:  # a refused message does not count as done
                    service.done[service.start].add(id)
                self._news.notify_all()

    def present(self, within: float = SILENCE) -> dict[str, bool]:
        """By name of connected services, whether a message came within so many seconds."""
        with self._news:
            return {name: monotonic() - one.heard < within for name, one in self._services.items() if one.start}

    def start_of(self, name: str) -> str:
        """The start of a service that is connected; empty where there is none."""
        with self._news:
            return self._services[name].start if name in self._services else ""

    def relayed(self, name: str) -> bool:
        """Whether a service is a device behind the proxy."""
        with self._news:
            return name in self._services and self._services[name].relayed

    def seconds_left(self, name: str) -> float:
        """Seconds until a service's reply is late; 0 where none is expected."""
        with self._news:
            return max(0.0, self._services[name].until - monotonic()) if name in self._services else 0.0

    def wait_for(self, names: tuple[str, ...], seconds: float) -> tuple[str, ...]:
        """Wait until all are connected; those that are not in time."""
        with self._news:
            self._news.wait_for(lambda: self._closed or all(self._services[name].start for name in names), seconds)
            return tuple(name for name in names if not self._services[name].start)

    def introduce(self, topic: str, id: str, content: Mapping[str, Content]) -> None:
        """Send this to services that restart from now on, after earlier such messages and before all others."""
        self._introduction.append((topic, id, content))

    def request(self, name: str, topic: str, id: str, content: Content, seconds: float) -> Any:
        """Send a message until the service replies: its reply, the error that it reports, or None if it is late."""
        with self._news:
            service = self._services[name]
            was_late = service.late
            deadline = service.until = monotonic() + min(GRACE if was_late else seconds, seconds)
        try:
            reply = self._repeated(name, topic, id, content, deadline)
        finally:
            service.until = 0.0
        if reply is not None:
            return _failure(reply, name) or reply
        with self._news:  # late a second time: it counts as disconnected until its next hello
            service.start, service.late = "" if was_late else service.start, True
        return None

    def _repeated(self, name: str, topic: str, id: str, content: Content, deadline: float) -> dict[str, Any] | None:
        """Push a message until there is a reply; None if there was none by the deadline."""
        service = self._services[name]
        while (left := deadline - monotonic()) > 0 and not self._closed:
            with self._news:
                self._news.wait_for(lambda: bool(service.start) or service.late or self._closed, left)
                start = service.start
            if not start:
                return None
            if self._introduced(name, start, id, deadline):
                reply = self._pushed(name, start, topic, id, content, deadline)
                if reply is not None:
                    return reply
        return None

    def _introduced(self, name: str, start: str, id: str, deadline: float) -> bool:
        """Whether this start of the service has replied to all that comes first; it is sent what it has not."""
        for topic, earlier, contents in self._introduction:
            if earlier == id:
                return True
            if name not in contents or earlier in self._services[name].done[start]:
                continue
            reply = self._pushed(name, start, topic, earlier, contents[name], deadline)
            if reply is None or _failure(reply, name) is not None:
                with self._news:
                    self._news.wait(AGAIN)
                return False
        return True

    def _pushed(
        self, name: str, start: str, topic: str, id: str, content: Content, deadline: float
    ) -> dict[str, Any] | None:
        """The reply to one push; None if the push was lost, or the service restarted meanwhile."""
        service = self._services[name]
        with self._news:
            service.waiting, service.reply = id, service.early.pop(id, None)
            if service.reply is not None and "error" not in service.reply:
                service.done[start].add(id)
        try:
            left = max(0.1, deadline - monotonic())
            if not self._sent(name, start, topic, id, content, left):
                with self._news:
                    if service.reply is None:
                        self._news.wait(AGAIN)
                    return service.reply
            with self._news:
                left = max(0.0, deadline - monotonic())
                self._news.wait_for(lambda: service.reply is not None or service.start != start or self._closed, left)
                return service.reply
        finally:
            with self._news:
                service.waiting, service.reply = "", None

    def _sent(self, name: str, start: str, topic: str, id: str, content: Content, left: float) -> bool:
        """Send one message to a service, or put it on the board for a device; whether it is there."""
        if self._services[name].relayed and self._poster is not None:
            return self._poster.post(name, topic, self._notice(topic, id, content, left))
        address = Address(COORDINATOR, name, topic, self._run)
        message = sign_message(address, {"about": id, "start": start, **content(left)}, self._key)
        return self._cell.send(name, topic, message, min(PUSH, left)) == TAKEN

    def _notice(self, topic: str, id: str, content: Content, left: float) -> bytes:
        """The message with this id to all devices: the same bytes for each, whoever is asked first."""
        with self._news:
            if self._posted.get(topic, ("",))[0] != id:
                address = Address(COORDINATOR, EVERYBODY, topic, self._run)
                message = sign_message(address, {"about": id, "start": self._session, **content(left)}, self._key)
                self._posted[topic] = id, message
            return self._posted[topic][1]


def _failure(reply: Mapping[str, Any], name: str) -> TacitError | None:
    """The error that a reply reports; a reply that cannot be read is an error too."""
    try:
        with reading(name):
            return read_failure(reply, name)
    except BadMessage as error:
        return error


class Flare:
    """An engine over services: `names` are the parties in order and other roles after them; `timeout` is per step."""

    def __init__(self, channel: CoordinatorChannel, names: Sequence[str], timeout: float) -> None:
        self._channel, self._names, self._timeout = channel, tuple(names), timeout
        self._pool = ThreadPoolExecutor(max(1, len(self._names)), thread_name_prefix="tacit-ask")

    def deliver(self, requests: Mapping[str, Request], attendance: Attendance) -> list[Answer]:
        """Send each party its request; the answers, in roster order."""
        names = [name for name in self._names if name in requests]
        jobs = [self._pool.submit(self._answer, name, requests[name], attendance) for name in names]
        answers = [job.result() for job in jobs]
        failed = next((answer for answer in answers if isinstance(answer, TacitError)), None)
        if failed is not None:
            raise failed
        return [answer for answer in answers if isinstance(answer, Answer)]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, name: str, request: Request, attendance: Attendance) -> Answer | TacitError:
        if not attendance.receivers(name, 0):
            return Answer(name, "lost", Kind.PUBLIC)
        survivors = attendance.survivors(name)
        reply = self._channel.request(
            name, "ask", request.hash, lambda left: TimedRequest(request, left, survivors).content(), self._timeout
        )
        if reply is None:
            return Answer(name, "late", Kind.PUBLIC)
        if isinstance(reply, TacitError):
            return reply
        try:
            with reading(name):
                answer = read_answer(reply)
                if type(answer.party) is not str or answer.party != name:
                    raise BadMessage(f"{name} answered in another name; the answer was damaged or forged.")
                return answer
        except BadMessage as error:  # the federation decides whether this ends the run
            return Answer(name, "bad", Kind.PUBLIC, why=str(error)[:MOST_WHY])
