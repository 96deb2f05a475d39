"""A site's window: takes the coordinator's messages one at a time, and pushes what is replied until it is taken.

While one message is seen to, only the newest of those that arrive is kept: the coordinator says one thing at a time, so
an older one that nobody waits for any more is dropped instead of being done late. The same message again gets the same
reply.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.wire import Value
from tacit.engine.cells import COORDINATOR, Cell, Credentials
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import Address, failure_content, open_message, sign_message
from tacit.errors import BadMessage, PeerFailed, TacitError

#: What the coordinator can say.
TOPICS = ("offer", "align", "begin", "ask", "end")
#: What is said to a message that was meant for this service before it was started anew.
ANOTHER = b"another start"
#: Seconds between two hellos, and before a reply that was not taken is pushed again.
BEAT, AGAIN = 2.0, 0.2

#: Sees to one message: topic, run and content in, the reply's content out.
Handle = Callable[[str, str, dict[str, Any]], Mapping[str, Value]]


class SiteChannel:
    """One site's end of the line.

    Parameters
    ----------
    name : the site's
    host, port, credentials : where the coordinator is, and what opens the channel to it
    key : the site's own signing key
    coordinator : the coordinator's public signing key, from the kit
    handle : sees to a message; an error that it raises becomes the reply, without its reasons
    refuse : told of a message that was not taken, and why
    after : told of a topic once what was replied has been taken
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        credentials: Credentials | None,
        key: Ed25519PrivateKey,
        coordinator: Ed25519PublicKey,
        handle: Handle,
        refuse: Callable[[TacitError], None],
        after: Callable[[str], None],
    ) -> None:
        self.name, self.start = name, secrets.token_hex(8)
        self._key, self._coordinator, self._handle = key, coordinator, handle
        self._refuse, self._after = refuse, after
        self._cell = Cell(name, host, port, credentials, self._receive)
        self._news = threading.Condition()
        self._slot: tuple[str, str, dict[str, Any], float] | None = None
        self._doing = ""  # the id of what is being seen to
        self._done: tuple[str, Mapping[str, Value]] = ("", {})
        self._stopping = False

    def open(self) -> None:
        """Connect, and go on connecting whenever the line is lost."""
        self._cell.start()
        threading.Thread(target=self._work, name="tacit-site", daemon=True).start()

    def close(self) -> None:
        with self._news:
            self._stopping = True
            self._news.notify_all()
        self._cell.stop()

    @property
    def refused(self) -> str | None:
        """Why the coordinator refused this site's certificate when it connected last; None if it did not."""
        return self._cell.refused

    def say(self, topic: str, content: Mapping[str, Value], timeout: float = 10.0, run: str = "") -> bytes | None:
        """Push one message of the site's own; what the coordinator says to it, or None if it is not there."""
        message = sign_message(Address(self.name, COORDINATOR, topic, run), content, self._key)
        return self._cell.send(COORDINATOR, topic, message, timeout)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _receive(self, sender: str, topic: str, body: bytes) -> bytes:
        try:
            if sender != COORDINATOR or topic not in TOPICS:
                raise BadMessage(f"{sender} has nothing to say here.")
            run, content = open_message(body, self._coordinator, COORDINATOR, self.name, topic)
        except TacitError as error:
            self._refuse(error)
            raise
        start = content.pop("start", None)
        if type(start) is not str or start != self.start:
            return ANOTHER
        about = str(content.get("about"))
        with self._news:
            if about != self._doing:
                self._slot = topic, run, content, monotonic()
                self._news.notify_all()
        return TAKEN

    def _work(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._slot is not None or self._stopping)
                if self._stopping or self._slot is None:
                    return
                (topic, run, content, arrived), self._slot = self._slot, None
                about = self._doing = str(content.pop("about", ""))
            seconds = content.get("seconds")  # what is no number is refused with the rest of the message
            late = topic == "ask" and isinstance(seconds, (int, float)) and monotonic() - arrived > seconds
            if not late and self._done[0] != about:
                self._done = about, self._seen_to(topic, run, content)
            with self._news:
                self._doing = ""  # whoever asks again from here on may have missed the reply
            if not late and self._push(about, run, self._done[1]):
                self._after(topic)

    def _seen_to(self, topic: str, run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        try:
            return dict(self._handle(topic, run, content))
        except TacitError as error:
            return failure_content(error, tell=False)
        except Exception as error:  # whatever it is, the coordinator must not wait for ever
            failure = PeerFailed(f"{self.name} failed by a mistake in its program: {type(error).__name__}.")
            self._refuse(failure)
            return failure_content(failure, tell=True)

    def _push(self, about: str, run: str, content: Mapping[str, Value]) -> bool:
        """Until it is taken, or something newer is asked for; whether it was taken."""
        while self.say("reply", {"about": about, **content}, 120.0, run) != TAKEN:
            with self._news:
                if self._news.wait_for(lambda: self._slot is not None or self._stopping, AGAIN):
                    return False
        return True
