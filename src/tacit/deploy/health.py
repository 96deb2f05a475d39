"""A service's health over HTTP, for monitoring: `GET /health` and `GET /status`.

It listens on this machine only unless its owner says otherwise, reads a request line and headers but never a body, and
serves nothing from disk. A slow client is disconnected after two seconds and delays no other.
"""

from __future__ import annotations

import json
import re
import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import SHUT_RDWR, socket
from time import monotonic
from typing import Any

from tacit.deploy.service_status import State, Status
from tacit.errors import UsageError

#: Seconds that a client has for its whole request, and how many are served at a time; more are disconnected.
PATIENCE, MOST = 2.0, 32
#: What this machine calls itself, with any port.
_OWN = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)


class Health:
    """A service's health on `host` and `port`; port 0 takes a free one, which `port` then names."""

    def __init__(self, status: Status, host: str = "127.0.0.1", port: int = 0) -> None:
        self.status, self.host, self.port = status, host, port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        return f"http://{self.host}:{self.port}/health"

    def start(self) -> None:
        """Answer from now on, in a thread."""
        if self._server is not None:
            return
        try:
            self._server = _Server((self.host, self.port), self.status)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(
                f"The health page cannot be served on {self.host}:{self.port}: {why}; name another port, or 0."
            ) from None
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()
            self._server.disconnect(everyone=True)
        self._server = self._thread = None


def verdict(table: dict[str, Any]) -> tuple[HTTPStatus, dict[str, Any]]:
    """What /health answers for a status: 200 while the service lives and was not stopped by a failure or refusal."""
    well = table["alive"] is not False and table["state"] not in (State.FAILED, State.REFUSED)
    answer = {"status": "ok" if well else "failing", **{name: table[name] for name in ("role", "state", "version")}}
    return HTTPStatus.OK if well else HTTPStatus.SERVICE_UNAVAILABLE, answer


class _Server(ThreadingHTTPServer):
    """One thread per client, a bounded number of them, each for a bounded time."""

    daemon_threads = True
    request_queue_size = MOST
    allow_reuse_port = False  # never take over another service's port

    def __init__(self, address: tuple[str, int], status: Status) -> None:
        self.status = status
        self._clients: dict[socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without a look-up of this machine's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            full = len(self._clients) >= MOST
            if not full:
                self._clients[request] = monotonic() + PATIENCE
        if full:
            self.shutdown_request(request)
        else:
            super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        self.disconnect()

    def disconnect(self, everyone: bool = False) -> None:
        """End connections whose time is over; their threads then end by themselves."""
        with self._lock:
            for client in [client for client, until in self._clients.items() if everyone or monotonic() > until]:
                try:
                    client.shutdown(SHUT_RDWR)
                except OSError:  # already disconnected
                    del self._clients[client]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client may disconnect."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = PATIENCE

    def do_GET(self) -> None:
        if not self._addressed():
            self.send_error(HTTPStatus.MISDIRECTED_REQUEST)
        elif self.path == "/health":
            self._answer(*verdict(self.server.status.now()))
        elif self.path == "/status":
            self._answer(HTTPStatus.OK, self.server.status.now())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _addressed(self) -> bool:
        """Whether the request names this machine; a web page whose name was pointed here (DNS rebinding) does not."""
        return all(_OWN.fullmatch(named.strip()) for named in self.headers.get_all("Host", []))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """A refusal that repeats nothing of the request."""
        self._answer(HTTPStatus(code), {"error": HTTPStatus(code).phrase})

    def version_string(self) -> str:
        return "tacit"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are not logged."""

    def _answer(self, code: HTTPStatus, table: dict[str, Any]) -> None:
        content = (json.dumps(table, ensure_ascii=False, allow_nan=False) + "\n").encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
