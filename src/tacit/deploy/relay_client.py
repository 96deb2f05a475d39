"""Both ends of the messages that a proxy carries: the coordinator's, and a device's in place of a site's channel.

A device needs the standard library for it. All messages are signed and verified as between sites; the proxy reads the
public ones and can hold them back.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.wire import Value, decode, reading
from tacit.deploy.proxy_client import Absent, Line
from tacit.engine.board import EVERYBODY, TOPICS, NoAnswer, UnknownNotice
from tacit.engine.cells import COORDINATOR, LARGEST, Credentials
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import Address, open_message, sign_message
from tacit.engine.site_channel import Handlers, handled
from tacit.errors import BadMessage, TacitError

#: Seconds before another try, and for which a list of certificates is used.
AGAIN, FRESH = 0.2, 2.0


class CoordinatorRelay:
    """The coordinator's end: posts messages on the board, and answers devices' letters one at a time.

    Parameters
    ----------
    connect : makes a line to the proxy
    fingerprints : by name, the certificates that are valid now
    receive : sender, topic and body of a letter in, the answer out
    most : by sender and topic, the bytes of the largest letter that is read
    """

    def __init__(
        self,
        connect: Callable[[], Line],
        fingerprints: Callable[[], Mapping[str, str]],
        receive: Callable[[str, str, bytes], bytes],
        most: Callable[[str, str], int],
    ) -> None:
        self._post_line, self._letter_line = connect(), connect()
        self._fingerprints, self._receive, self._most = fingerprints, receive, most
        self._valid: tuple[float, Mapping[str, str]] = (float("-inf"), {})
        self._notices: dict[str, tuple[bytes, set[str]]] = {}  # by topic, what is on the board, and for whom
        self._lock, self._stopping, self._board = threading.Lock(), threading.Event(), ""

    def open(self) -> None:
        threading.Thread(target=self._work, name="tacit-letters", daemon=True).start()

    def close(self) -> None:
        self._stopping.set()
        self._post_line.close()

    def post(self, name: str, topic: str, message: bytes) -> bool:
        """Put a message on the board, if it is not there, and let one device read it; whether it is there."""
        if topic not in TOPICS:
            raise BadMessage(f'A device behind a proxy takes no part in "{topic}".')
        with self._lock:
            new = topic not in self._notices or self._notices[topic][0] != message
            if new:
                earlier = TOPICS[: TOPICS.index(topic)]
                self._notices = {held: self._notices[held] for held in earlier if held in self._notices}
                self._notices[topic] = message, set()
            self._notices[topic][1].add(name)
            try:
                if new:
                    self._post_line.request("POST", f"/notices/{topic}", message)
                try:
                    self._address(message, [name])
                except UnknownNotice:
                    self._post_all()
            except TacitError:  # the channel tries again
                return False
            return True

    def _post_all(self) -> None:
        """Post everything that belongs on the board, in order; what is there already stays."""
        for topic, (message, names) in self._notices.items():
            self._post_line.request("POST", f"/notices/{topic}", message)
            self._address(message, sorted(names))

    def _address(self, message: bytes, names: list[str]) -> None:
        if monotonic() > self._valid[0] + FRESH:
            self._valid = monotonic(), self._fingerprints()
        valid = self._valid[1]
        table = {"digest": hashlib.sha256(message).hexdigest(), "devices": [valid[n] for n in names if n in valid]}
        self._post_line.request("POST", "/notices", json.dumps(table).encode())

    def _work(self) -> None:
        answer = b""
        while not self._stopping.is_set():
            try:
                raw, answer = self._letter_line.request("POST", "/letters", answer, most=LARGEST), b""
                answer = self._answered(raw)
            except TacitError:
                self._stopping.wait(AGAIN)
        self._letter_line.close()

    def _answered(self, raw: bytes) -> bytes:
        """The answer to one letter, after its number; empty where there was none."""
        with reading("proxy"):
            found: dict[str, Any] = decode(raw)
            board, number = str(found["board"]), found.get("number")
        if board != self._board:  # the proxy was started again, and its board is empty
            with self._lock:
                self._post_all()
                self._board = board
        if number is None:
            return b""
        with reading("proxy"):
            head = int(number).to_bytes(8, "little")
            sender, topic, body = str(found["sender"]), str(found["topic"]), found["body"].tobytes()
        if len(body) > self._most(sender, topic):
            return head
        with suppress(TacitError):  # its sender is not who it says; it gets no answer but an empty one
            return head + self._receive(sender, topic, body)
        return head


class DeviceChannel:
    """A device's end, with what a service needs of a `SiteChannel`: reads the board, and writes letters.

    Messages are taken in the board's order, each once; a reply is sent again, the same bytes, until it is taken.
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        credentials: Credentials,
        key: Ed25519PrivateKey,
        coordinator: Ed25519PublicKey,
        handlers: Handlers,
    ) -> None:
        self.name, self.start = name, secrets.token_hex(8)
        self._key, self._coordinator, self._handlers = key, coordinator, handlers
        self._board, self._letters = Line(host, port, credentials), Line(host, port, credentials)
        self._number, self._done = 0, [""]  # of the latest message; digests of those of this run
        self._admitted, self._stopping = threading.Event(), threading.Event()
        self.refused: str | None = None

    def open(self) -> None:
        threading.Thread(target=self._work, name="tacit-device", daemon=True).start()

    def close(self) -> None:
        self._stopping.set()
        self._admitted.set()
        self._letters.close()

    def send(self, topic: str, content: Mapping[str, Value], timeout: float = 10.0, run: str = "") -> bytes | None:
        """Send one letter; the coordinator's answer, or None if it or the proxy is not there (`timeout` is its own)."""
        message = sign_message(Address(self.name, COORDINATOR, topic, run), content, self._key)
        return self._sent(topic, message)

    def _sent(self, topic: str, message: bytes) -> bytes | None:
        try:
            answer = self._letters.request("POST", f"/letters/{topic}", message, most=2**16)
        except (Absent, NoAnswer):
            return None
        if topic == "hello":  # only now does the coordinator expect replies of this start
            self._admitted.set()
        return answer

    def _work(self) -> None:
        self._admitted.wait()
        while not self._stopping.is_set():
            try:
                self._take()
            except Absent:
                self._stopping.wait(AGAIN)
            except TacitError as error:
                self._handlers.refused(error)
                self._stopping.wait(AGAIN)
        self._board.close()

    def _take(self) -> None:
        """Handle the next message on the board, and push the reply."""
        raw = self._board.request("GET", f"/notices?after={self._number}", most=LARGEST)
        if not raw or self._stopping.is_set():
            return
        with reading("proxy"):
            found: dict[str, Any] = decode(raw)
            number, topic, message = int(found["number"]), str(found["topic"]), found["body"].tobytes()
        digest = hashlib.sha256(message).hexdigest()
        if number <= self._number or topic not in TOPICS:
            raise BadMessage("The proxy's board is not in order; its message was not read.")
        self._number = number
        if digest in self._done:  # the proxy was started again
            return
        run, content = open_message(message, self._coordinator, COORDINATOR, EVERYBODY, topic)
        id, _session = str(content.pop("about", "")), content.pop("start", "")
        reply = {"about": id, **handled(self._handlers, self.name, topic, run, content)}
        if self._push(sign_message(Address(self.name, COORDINATOR, "reply", run), reply, self._key)):
            self._done = [digest] if topic == "offer" else [*self._done, digest]
            self._handlers.replied()

    def _push(self, message: bytes) -> bool:
        """Send the same bytes until they are taken; whether they were before this device stops."""
        while not self._stopping.is_set():
            if self._sent("reply", message) == TAKEN:
                return True
            self._stopping.wait(AGAIN)
        return False
