"""FLARE's gRPC driver with bounds on what a peer can make the coordinator hold.

Before TLS is done a connection has `HANDSHAKE` seconds. After it, a stream is refused before its first frame is read if
its certificate is not a valid invitation's: Python's gRPC takes neither a revocation list nor a callback that verifies
certificates, so TLS itself knows only the federation's authority. The sentence that says why is the stream's status,
which the site shows. After that, gRPC refuses a frame above `FRAME` bytes by its length prefix, before the rest is
read; `cells` sends larger messages in parts.

There is no limit of connections per address: gRPC accepts them in its own threads and has no such option. A firewall
can have one (docs/how-to/deploy.md).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from nvflare.fuel.f3.communicator import driver_mgr
from nvflare.fuel.f3.drivers.grpc_driver import GrpcDriver

SCHEME = "tacit"
#: The name of a cell's `Guard` among its connection's parameters, which stay on this machine.
GUARD = "tacit_guard"
#: Seconds until TLS is done and the first stream can begin.
HANDSHAKE = 10.0
#: Bytes of one part of a message, of the largest frame that the coordinator reads, and of the largest that a site does.
PART = 2**22
FRAME = PART + 2**18
LARGEST_FRAME = 2**30 + 2**20


@dataclass
class Guard:
    """What a cell's driver asks before it reads, and what it was told.

    Attributes
    ----------
    admit : given a peer's certificate (PEM), a sentence that says why it is refused, or None
    refused : what the coordinator said when it refused this cell's own certificate
    """

    admit: Callable[[bytes], str | None] = field(default=lambda _certificate: None)
    refused: str | None = None


class Driver(GrpcDriver):
    """One end of a gRPC connection."""

    @staticmethod
    def supported_transports() -> list[str]:
        return [SCHEME]

    def listen(self, connector: Any) -> None:
        self.options = [
            ("grpc.max_receive_message_length", FRAME),
            ("grpc.max_send_message_length", LARGEST_FRAME),
            ("grpc.server_handshake_timeout_ms", int(1000 * HANDSHAKE)),
        ]
        super().listen(connector)

    def connect(self, connector: Any) -> None:
        self.options = [
            ("grpc.max_receive_message_length", LARGEST_FRAME),
            ("grpc.max_send_message_length", LARGEST_FRAME),
        ]
        super().connect(connector)

    def add_connection(self, conn: Any) -> None:
        """Called for every stream, before its first frame is read."""
        guard = conn.connector.params[GUARD]
        if conn.context is not None:
            self._admitted(conn, guard)
        else:
            conn.read_loop = _noting(conn.read_loop, guard)
        super().add_connection(conn)

    def _admitted(self, conn: Any, guard: Guard) -> None:
        certificates = conn.context.auth_context().get("x509_pem_cert")
        if not certificates:  # a connection in the clear, which was asked for: a hello shows the certificate
            return
        try:
            code, why = grpc.StatusCode.UNAUTHENTICATED, guard.admit(certificates[0])
        except Exception:  # this machine's own trouble
            code, why = grpc.StatusCode.UNAVAILABLE, "The coordinator cannot see to this now; try later."
        if why is not None:
            context, conn.context = conn.context, None  # FLARE would end it with another status
            context.abort(code, why)


def _noting(read_loop: Callable[[Any], None], guard: Guard) -> Callable[[Any], None]:
    """FLARE's loop over what the coordinator sends, which forgets with which status that ended."""

    def read(received: Any) -> None:
        read_loop(received)
        with suppress(Exception):
            refused = received.done() and received.code() is grpc.StatusCode.UNAUTHENTICATED
            guard.refused = received.details() if refused else None

    return read


if SCHEME not in driver_mgr.drivers:
    driver_mgr.register(Driver)
