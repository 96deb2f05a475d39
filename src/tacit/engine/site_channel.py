"""A site's channel: takes the coordinator's messages one at a time, and pushes each reply until it is taken.

While one message is handled, only the newest of those that arrive is stored: the coordinator sends one at a time, so an
older one is no longer waited for. The same message again gets the same reply.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.wire import Value
from tacit.engine.cells import COORDINATOR, Cell, Credentials
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import Address, failure_content, open_message, sign_message
from tacit.errors import BadMessage, PeerFailed, TacitError

#: What the coordinator can send.
TOPICS = ("offer", "align", "begin", "ask", "end")
#: The reply to a message for an earlier start of this service.
ANOTHER = b"another start"
#: Seconds between two hellos, and before a reply that was not taken is pushed again.
BEAT, AGAIN = 2.0, 0.2


@dataclass(frozen=True)
class Handlers:
    """What a site does with messages.

    Attributes
    ----------
    handle : topic, run and content in, the reply's content out; an error becomes the reply, without its reasons
    refused : called with why a message was not taken
    replied : called once a reply was taken
    """

    handle: Callable[[str, str, dict[str, Any]], Mapping[str, Value]]
    refused: Callable[[TacitError], None]
    replied: Callable[[], None]


class SiteChannel:
    """One site's end of the connection.

    Parameters
    ----------
    name : the site's
    host, port, credentials : where the coordinator is, and what opens the connection
    key : the site's own signing key
    coordinator : the coordinator's public signing key, from the kit
    handlers : what to do with messages
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        credentials: Credentials | None,
        key: Ed25519PrivateKey,
        coordinator: Ed25519PublicKey,
        handlers: Handlers,
    ) -> None:
        self.name, self.start = name, secrets.token_hex(8)
        self._key, self._coordinator, self._handlers = key, coordinator, handlers
        self._cell = Cell(name, host, port, credentials, self.receive)
        self._news = threading.Condition()
        self._next: tuple[str, str, dict[str, Any], float] | None = None
        self._current = ""  # the id of the message that is being handled
        self._done: tuple[str, Mapping[str, Value]] = ("", {})
        self._stopping = False

    def open(self) -> None:
        """Connect, and reconnect whenever the connection is lost."""
        self._cell.start()
        threading.Thread(target=self._work, name="tacit-site", daemon=True).start()

    def close(self) -> None:
        with self._news:
            self._stopping = True
            self._news.notify_all()
        self._cell.stop()

    @property
    def refused(self) -> str | None:
        """Why the coordinator refused this site's certificate at the latest connection; None if it did not."""
        return self._cell.refused

    def send(self, topic: str, content: Mapping[str, Value], timeout: float = 10.0, run: str = "") -> bytes | None:
        """Push one message; the coordinator's reply, or None if it is not there."""
        message = sign_message(Address(self.name, COORDINATOR, topic, run), content, self._key)
        return self._cell.send(COORDINATOR, topic, message, timeout)

    def receive(self, sender: str, topic: str, body: bytes) -> bytes:
        """Verify a message and store it for `handle`; the acknowledgement."""
        try:
            if sender != COORDINATOR or topic not in TOPICS:
                raise BadMessage(f"{sender} may not send this message here.")
            run, content = open_message(body, self._coordinator, COORDINATOR, self.name, topic)
        except TacitError as error:
            self._handlers.refused(error)
            raise
        start = content.pop("start", None)
        if type(start) is not str or start != self.start:
            return ANOTHER
        with self._news:
            if str(content.get("about")) != self._current:
                self._next = topic, run, content, monotonic()
                self._news.notify_all()
        return TAKEN

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._next is not None or self._stopping)
                if self._stopping or self._next is None:
                    return
                (topic, run, content, arrived), self._next = self._next, None
                id = self._current = str(content.pop("about", ""))
            seconds = content.get("seconds")  # what is not a number is refused with the rest of the message
            late = topic == "ask" and isinstance(seconds, (int, float)) and monotonic() - arrived > seconds
            if not late and self._done[0] != id:
                self._done = id, handled(self._handlers, self.name, topic, run, content)
            with self._news:
                self._current = ""  # the same request from here on may mean that the reply was lost
            if not late and self._push(id, run, self._done[1]):
                self._handlers.replied()

    def _push(self, id: str, run: str, content: Mapping[str, Value]) -> bool:
        """Push until it is taken, or a newer message comes; whether it was taken."""
        while self.send("reply", {"about": id, **content}, 120.0, run) != TAKEN:
            with self._news:
                if self._news.wait_for(lambda: self._next is not None or self._stopping, AGAIN):
                    return False
        return True


def handled(handlers: Handlers, name: str, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
    """The reply to a message; an error is one too."""
    try:
        return dict(handlers.handle(topic, run, content))
    except TacitError as error:
        return failure_content(error, reveal=False)
    except Exception as error:  # whatever it is, the coordinator must not wait for ever
        failure = PeerFailed(f"{name} failed with an unexpected error: {type(error).__name__}.")
        handlers.refused(failure)
        return failure_content(failure, reveal=True)
