"""FLARE's gRPC driver with bounds on what a peer can make the coordinator hold.

A connection has `HANDSHAKE` seconds for TLS. Then a stream is refused before its first frame is read if its certificate
is not a valid invitation's: Python's gRPC takes neither a revocation list nor a callback, so TLS itself checks only the
federation's authority. The reason is the stream's status, which the site shows. After that, gRPC refuses a frame above
`FRAME` bytes by its length prefix, before the rest is read; `cells` sends larger messages in parts.

There is no limit of connections per address, for which gRPC has no option; a firewall can have one
(docs/how-to/deploy.md).
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
#: The name of a cell's `Guard` among its connection's parameters.
GUARD = "tacit_guard"
#: Seconds until TLS is done and the first stream can begin.
HANDSHAKE = 10.0
#: Bytes of one part of a message, and of the largest frame that the coordinator and a site read.
PART = 2**22
FRAME = PART + 2**18
LARGEST_FRAME = 2**30 + 2**20


@dataclass
class Guard:
    """Checks of a cell's driver.

    Attributes
    ----------
    admit : given a peer's certificate (PEM), why it is refused, or None
    refused : why the coordinator refused this cell's own certificate, if it did
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
        if not certificates:  # unencrypted, as the operator chose: the hello has the certificate
            return
        try:
            code, why = grpc.StatusCode.UNAUTHENTICATED, guard.admit(certificates[0])
        except Exception:  # a problem of this machine
            code, why = grpc.StatusCode.UNAVAILABLE, "The coordinator cannot answer now; try later."
        if why is not None:
            context, conn.context = conn.context, None  # FLARE would end it with another status
            context.abort(code, why)


def _noting(read_loop: Callable[[Any], None], guard: Guard) -> Callable[[Any], None]:
    """FLARE's loop over the coordinator's frames, which drops the status that ended it."""

    def read(received: Any) -> None:
        read_loop(received)
        with suppress(Exception):
            refused = received.done() and received.code() is grpc.StatusCode.UNAUTHENTICATED
            guard.refused = received.details() if refused else None

    return read


if SCHEME not in driver_mgr.drivers:
    driver_mgr.register(Driver)
