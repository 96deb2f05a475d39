"""A thin layer over NVIDIA FLARE's cell network: named cells that send bytes to each other under mutual TLS.

FLARE checks that a cell's name is the common name of its certificate, and not a message's sender: a message whose
sender is not the cell at the other end of the connection is dropped. So is a payload in FLARE's object format, which
could name classes to load, before it is decoded, and whatever is not on our channel, or not between the coordinator and
this cell. A message larger than one frame travels in parts; its size limit depends on sender and topic and is checked
at its first part, and each sender has one unfinished message at most.
FLARE's jobs, its job store, its administrators and its streamed logs are not used (docs/decisions/0018).
"""

from __future__ import annotations

import errno
import resource
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tacit.errors import PeerFailed, UsageError

#: The coordinator's cell, and the name in its certificate.
HUB = "server"
COORDINATOR = "coordinator"
CHANNEL = "tacit"
#: Bytes of the largest message.
LARGEST = 2**30
#: Seconds until a message counts as lost, plus its bytes at so many a second.
SOON, SLOWEST = 3.0, 2**17
#: Seconds for the coordinator's cell to listen.
LISTENING = 10.0

#: The header of a part: the message's id, the part's offset, and the message's size.
PART_OF = "tacit-part"
#: The reply to a part that is not the last; between processes an empty reply would arrive as none at all.
GO_ON = b"go on"

#: Called with sender, topic and body; what it returns is the reply.
Receive = Callable[[str, str, bytes], bytes]


@dataclass(frozen=True)
class Bounds:
    """What others may send to the coordinator's cell.

    Attributes
    ----------
    most : by sender and topic, the bytes of the largest message
    admit : given a certificate (PEM), why its connection is refused; None admits it
    """

    most: Callable[[str, str], int] = lambda _sender, _topic: LARGEST
    admit: Callable[[bytes], str | None] = lambda _certificate: None


@dataclass(frozen=True)
class Credentials:
    """Where a cell's certificates and key are."""

    ca: Path
    certificate: Path
    key: Path


def check_installed() -> None:
    """Raise UsageError where the package for messages between sites is missing."""
    if find_spec("nvflare") is None:
        raise UsageError("Services between sites need one more package; install it: pip install 'tacit[deploy]'")


def raise_descriptor_limit() -> None:
    """Let this process open as many files and connections as the system allows; the usual 1,024 are soon used up."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2**16 if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):  # a system that allows less than it says
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def check_port_free(host: str, port: int) -> None:
    """Raise where another program listens already, or where this machine cannot listen at all."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PeerFailed(
                f"The coordinator cannot listen at port {port}: {error.strerror}; is another one running there?"
            ) from None
        raise PeerFailed(
            f"The coordinator cannot listen at {host}:{port}: {error.strerror}; if sites reach this machine by a name "
            "or an address that is not its own, add --listen 0.0.0.0."
        ) from None


class Cell:
    """One end of the network.

    Parameters
    ----------
    name : the coordinator's is `COORDINATOR`, which listens; all others connect to it, and reconnect
    host, port : where the coordinator listens
    credentials : for mutual TLS; None for an unencrypted connection, which the operator chose
    receive : called for each message, in a thread
    bounds : what others may send
    """

    def __init__(
        self,
        name: str,
        host: str,
        port: int,
        credentials: Credentials | None,
        receive: Receive,
        bounds: Bounds = Bounds(),
    ) -> None:
        check_installed()
        from nvflare.fuel.f3.cellnet import defs
        from nvflare.fuel.f3.cellnet.core_cell import CoreCell
        from nvflare.fuel.f3.cellnet.utils import make_reply
        from nvflare.fuel.f3.message import Message

        from tacit.engine.transport import GUARD, PART, SCHEME, Guard

        self.name, self._receive, self._place = name, receive, (host, port)
        self._own = HUB if name == COORDINATOR else name
        self._message, self._reply, self._headers, self._codes = (
            Message,
            make_reply,
            defs.MessageHeaderKey,
            defs.ReturnCode,
        )
        self._bye, self._neighbour = (defs.CellChannel.CELLNET, defs.CellChannelTopic.Bye), defs.MessagePropKey.ENDPOINT
        side = "server" if name == COORDINATOR else "client"
        self._most, self._guard, self._part = bounds.most, Guard(bounds.admit), PART
        self._unfinished: dict[str, tuple[str, str, int, bytearray]] = {}  # by sender: id, topic, size, parts
        self._lock = threading.Lock()
        paths: dict[str, Any] = {GUARD: self._guard}
        if credentials is not None:
            paths |= {
                "ca_cert": str(credentials.ca),
                f"{side}_cert": str(credentials.certificate),
                f"{side}_key": str(credentials.key),
            }
        address = f"{SCHEME}://{host}:{port}"
        known = {HUB: COORDINATOR}
        self._cell = CoreCell(self._own, address, credentials is not None, paths, auth_identity_map=known)
        self._cell.add_incoming_filter("*", "*", self._unwanted)
        self._cell.register_request_cb(CHANNEL, "*", self._received)

    def start(self) -> None:
        """Connect, or listen on a port of its own: FLARE would share one with another coordinator.

        Stopping a listener before it listens would hang, so this waits until it does.
        """
        raise_descriptor_limit()
        if self._own == HUB:
            check_port_free(*self._place)
        self._cell.start()
        deadline = monotonic() + LISTENING
        while self._own == HUB:
            with suppress(OSError), socket.create_connection(self._place, timeout=1.0):
                return
            if monotonic() > deadline:
                raise PeerFailed(
                    f"The coordinator does not listen at {self._place[0]}:{self._place[1]}, though it "
                    "should; does another program block it? See its log."
                )
            sleep(0.02)

    def stop(self) -> None:
        """Leave the network, and remove what FLARE stores of a cell: another of that name may come."""
        from nvflare.fuel.f3.stats_pool import StatsPoolManager

        self._cell.stop()
        cells, pools = self._cell.ALL_CELLS, StatsPoolManager.pools
        cells.pop(self._own, None)
        for name in [name for name in pools if name.endswith(f"@{self._own}") or not cells]:
            del pools[name]

    def send(self, to: str, topic: str, body: bytes, timeout: float) -> bytes | None:
        """Send bytes to another cell; its reply, or None where they did not arrive in time."""
        target = HUB if to == COORDINATOR else to
        if not self._cell.is_cell_connected(target):
            return None
        deadline = monotonic() + min(timeout, SOON + len(body) / SLOWEST)
        if len(body) <= self._part:
            return self._sent(target, topic, {}, body, deadline)
        id, view, reply = secrets.token_hex(8), memoryview(body), None
        for at in range(0, len(body), self._part):
            part = bytes(view[at : at + self._part])
            reply = self._sent(target, topic, {PART_OF: [id, at, len(body)]}, part, deadline)
            if reply is None:
                return None
        return reply

    @property
    def refused(self) -> str | None:
        """Why the coordinator refused this cell's certificate at the latest connection; None if it did not."""
        return self._guard.refused

    def _unwanted(self, message: Any) -> Any:
        """A reply that drops a message which is not allowed; None accepts it."""
        headers = self._headers
        sender, target = message.get_header(headers.ORIGIN), message.get_header(headers.DESTINATION)
        kind = message.get_header(headers.CHANNEL), message.get_header(headers.TOPIC)
        plain = message.get_header(headers.PAYLOAD_ENCODING) in (None, "bytes", "none")
        fine = plain and (kind[0] == CHANNEL or kind == self._bye) and target == self._own
        genuine = sender == getattr(message.get_prop(self._neighbour), "name", None)
        if fine and genuine and (self._own == HUB or sender == HUB) and message.get_header(headers.CONN_URL) is None:
            return None
        return self._reply(self._codes.INVALID_REQUEST)

    def _sent(self, target: str, topic: str, headers: dict[str, Any], body: bytes, deadline: float) -> bytes | None:
        """The reply to one frame; None where it did not arrive in time."""
        patience = min(deadline - monotonic(), SOON + len(body) / SLOWEST)
        if patience <= 0:
            return None
        message = self._message(headers, body)
        try:
            reply = self._cell.send_request(CHANNEL, topic, target, message, timeout=patience, optional=True)
        except RuntimeError:  # this cell was stopped meanwhile
            return None
        fine = reply is not None and reply.get_header(self._headers.RETURN_CODE) == self._codes.OK
        return bytes(reply.payload) if fine and isinstance(reply.payload, (bytes, bytearray, memoryview)) else None

    def _received(self, message: Any) -> Any:
        sender, body = message.get_header(self._headers.ORIGIN), message.payload
        name, topic = COORDINATOR if sender == HUB else str(sender), str(message.get_header(self._headers.TOPIC))
        whole = None
        if isinstance(body, (bytes, bytearray, memoryview)):
            whole = self._joined(name, topic, body, message.get_header(PART_OF))
        if whole is None:
            return self._reply(self._codes.INVALID_REQUEST)
        if not isinstance(whole, bytes):
            return self._reply(self._codes.OK, body=GO_ON)
        return self._reply(self._codes.OK, body=self._receive(name, topic, whole))

    def _joined(self, sender: str, topic: str, body: bytes | bytearray | memoryview, part: Any) -> Any:
        """The whole message as bytes, True while parts of it are missing, or None where it is refused."""
        most = min(LARGEST, self._most(sender, topic))
        if part is None:
            return bytes(body) if len(body) <= most else None
        if not isinstance(part, list) or [type(word) for word in part] != [str, int, int]:
            return None
        id, at, size = part
        with self._lock:
            known = self._unfinished.pop(sender, None)
            if at == 0:
                known = (id, topic, size, bytearray())
            if known is None or known[:3] != (id, topic, size) or at != len(known[3]):
                return None
            if not 0 < len(body) <= size - at or size > most:
                return None
            known[3].extend(body)
            if len(known[3]) == size:
                return bytes(known[3])
            self._unfinished[sender] = known
            return True
