"""The proxy's service: HTTPS in front of `tacit.secure.shuffler`, for devices and the coordinator of one federation.

    POST   /batches                      the coordinator opens a batch: its terms, and which certificates may send
    GET    /batches/CONTEXT              a device reads the terms
    POST   /batches/CONTEXT/reports      a device's sealed reports, once
    POST   /batches/CONTEXT/shuffled     the coordinator closes the batch and gets it
    DELETE /batches/CONTEXT              the coordinator has it

It carries messages and letters too (`tacit.deploy.relay_service`).
Both ends show certificates of the federation's authority, during the handshake: nothing is read from anyone else. A
device is known by its certificate's SHA-256, which the coordinator lists, so that a revoked kit is on no list. Reports
are in memory only. Neither log nor batch has a device's name, its address, or when anything came from it.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

from aiohttp import web

from tacit.deploy.kit import Kit
from tacit.deploy.logs import ServiceLog
from tacit.deploy.relay_service import Relay
from tacit.engine.board import NoAnswer, UnknownNotice
from tacit.engine.cells import COORDINATOR, check_port_free, raise_descriptor_limit
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused, TacitError
from tacit.secure.shuffler import MOST_LENGTH, MOST_REPORTS, BatchTerms, Closed, Shuffler, TooFew, UnknownBatch

#: Seconds for a handshake, for the body of one request, and for an idle connection.
HANDSHAKE, BODY, IDLE = 10.0, 30.0, 60.0
#: Connections whose handshake is not done, and others: one too many closes the oldest, or the one idle for longest. An
#: open one takes a quarter of a megabyte.
MOST_HALF_OPEN, MOST_OPEN = 512, 2000
#: Bytes of one device's message, and of a list of certificates.
MOST_MESSAGE, MOST_LIST = MOST_REPORTS * MOST_LENGTH, 2**27
#: Refusals and the status that carries each.
STATUS: dict[type[TacitError], int] = {
    UnknownBatch: 404,
    UnknownNotice: 404,
    NoAnswer: 503,
    Closed: 409,
    TooFew: 409,
    PrivacyRefused: 403,
    BadMessage: 400,
}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProxyService:
    """One proxy, until it is stopped.

    Parameters
    ----------
    kit : of the role `proxy`, invited with an address
    folder : for the unpacked kit and the log
    least : the smallest crowd that this proxy forwards
    """

    def __init__(self, kit: Kit, folder: Path, log: ServiceLog, least: int = 1, listen: str | None = None) -> None:
        self._log, self._place = log, (listen or kit.host, kit.port)
        self._shuffler = Shuffler(os.urandom, least)
        self._relay = Relay()
        self._tls = server_context(kit, folder)
        self._half_open: dict[asyncio.Task[None], None] = {}
        self._until: dict[asyncio.BaseTransport, float] = {}
        app = web.Application(client_max_size=MOST_LIST, middlewares=[self._answered])
        one = "/batches/{context}"
        app.add_routes([web.post("/batches", self._open), web.get(one, self._terms), web.delete(one, self._forget)])
        app.add_routes([web.post(f"{one}/reports", self._reports), web.post(f"{one}/shuffled", self._shuffled)])
        app.add_routes([web.post("/notices", self._as_coordinator), web.post("/notices/{topic}", self._as_coordinator)])
        app.add_routes([web.post("/letters", self._as_coordinator), web.post("/letters/{topic}", self._letter)])
        app.add_routes([web.get("/notices", self._notice)])
        quiet = logging.Logger("tacit proxy")
        quiet.addHandler(logging.NullHandler())  # aiohttp's own lines have addresses in them
        self._runner = web.AppRunner(
            app,
            access_log=None,
            logger=quiet,
            keepalive_timeout=IDLE,
            lingering_time=0.0,
            handle_signals=False,
            shutdown_timeout=1.0,  # requests that wait for a message do not hold up the end
        )

    async def serve(self, ready: Callable[[], None]) -> None:
        """Listen and serve until cancelled; `ready` is called once it listens."""
        raise_descriptor_limit()
        check_port_free(*self._place)
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)  # a broken connection is its owner's affair
        await self._runner.setup()
        family = socket.getaddrinfo(*self._place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listener = socket.create_server(self._place, family=family, backlog=1024)
        listener.setblocking(False)
        self._log.info("serving", port=self._place[1])
        ready()
        sweeper = loop.create_task(self._sweep())
        try:
            await self._accept(listener)
        finally:
            sweeper.cancel()
            listener.close()
            await self._runner.cleanup()
            self._log.info("stopping")

    # -- connections ------------------------------------------------------------------------------------------

    async def _accept(self, listener: socket.socket) -> None:
        """Take connections for ever; one whose handshake is slow gives way to newer ones."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _address = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                    raise
                self._drop_oldest()
                await asyncio.sleep(0.01)
                continue
            if len(self._half_open) >= MOST_HALF_OPEN:
                self._drop_oldest()
            task = loop.create_task(self._shake_hands(connection))
            self._half_open[task] = None
            task.add_done_callback(lambda done: self._half_open.pop(done, None))

    async def _shake_hands(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        assert self._runner.server is not None
        try:
            transport, _protocol = await loop.connect_accepted_socket(
                self._runner.server, connection, ssl=self._tls, ssl_handshake_timeout=HANDSHAKE
            )
        except (OSError, asyncio.CancelledError):  # of which errors of TLS are one kind
            connection.close()
            return
        if len(self._until) >= MOST_OPEN:
            self._close(min(self._until, key=self._until.__getitem__))
        self._until[transport] = monotonic() + IDLE

    def _drop_oldest(self) -> None:
        with suppress(StopIteration):
            next(iter(self._half_open)).cancel()

    async def _sweep(self) -> None:
        """Close connections that have been idle for too long."""
        while True:
            await asyncio.sleep(1.0)
            for transport, until in list(self._until.items()):
                if transport.is_closing() or monotonic() > until:
                    self._close(transport)

    def _close(self, transport: asyncio.BaseTransport) -> None:
        del self._until[transport]
        getattr(transport, "abort", transport.close)()

    # -- requests ---------------------------------------------------------------------------------------------

    @web.middleware
    async def _answered(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """A refusal is one sentence; nothing of the request is repeated or logged."""
        if request.transport is not None:
            self._until[request.transport] = monotonic() + IDLE + BODY
        try:
            return await handler(request)
        except TacitError as error:
            if not isinstance(error, NoAnswer | UnknownNotice):  # these are usual, and a line would date a letter
                self._log.warning("refused", error=type(error).__name__)
            status = next((code for kind, code in STATUS.items() if isinstance(error, kind)), 400)
            return web.json_response({"error": type(error).__name__, "why": str(error)}, status=status)
        except (web.HTTPException, TimeoutError, ValueError, UnicodeError) as error:
            self._log.warning("refused", error=type(error).__name__)
            why = "The request is not one that this proxy answers, or was not complete in time."
            return web.json_response({"error": "BadMessage", "why": why}, status=400)

    async def _open(self, request: web.Request) -> web.StreamResponse:
        _require_coordinator(request)
        table = json.loads(await asyncio.wait_for(request.read(), BODY))
        terms, devices = read_terms(table), table.get("devices")
        if not isinstance(devices, list) or not all(type(one) is str and len(one) == 64 for one in devices):
            raise BadMessage("The list of certificates is not one; no batch was opened.")
        self._shuffler.open(terms, devices)
        return web.Response(status=204)

    async def _terms(self, request: web.Request) -> web.StreamResponse:
        terms = self._shuffler.terms(_device(request), request.match_info["context"])
        return web.json_response(vars(terms))

    async def _reports(self, request: web.Request) -> web.StreamResponse:
        device, size = _device(request), request.content_length  # a body that is refused here is not read
        if size is None or size > MOST_MESSAGE:
            raise BadMessage(f"A message states its size, and has at most {MOST_MESSAGE:,} bytes; nothing was taken.")
        message = await asyncio.wait_for(request.read(), BODY)
        return web.json_response({"taken": self._shuffler.accept(device, request.match_info["context"], message)})

    async def _shuffled(self, request: web.Request) -> web.StreamResponse:
        _require_coordinator(request)
        batch = self._shuffler.close(request.match_info["context"])
        self._log.info("sent", bytes=batch.nbytes)
        length = int(batch.shape[1]).to_bytes(4, "little")
        return web.Response(body=length + batch.tobytes(), content_type="application/octet-stream")

    async def _forget(self, request: web.Request) -> web.StreamResponse:
        _require_coordinator(request)
        self._shuffler.forget(request.match_info["context"])
        return web.Response(status=204)

    async def _as_coordinator(self, request: web.Request) -> web.StreamResponse:
        """A message for the board, its readers, or an answer to a letter."""
        _require_coordinator(request)
        if request.path == "/letters":
            return await self._relay.collect(request)
        return await (self._relay.post(request) if "topic" in request.match_info else self._relay.address(request))

    async def _notice(self, request: web.Request) -> web.StreamResponse:
        return await self._relay.read(_device(request), request.query.get("after", "0"))

    async def _letter(self, request: web.Request) -> web.StreamResponse:
        return await self._relay.write(_name(request), request)


def read_terms(table: Any) -> BatchTerms:
    """The terms of a batch from a peer's table."""
    fine = isinstance(table, dict) and {n: type(table.get(n)) for n in _TERMS} == _TERMS
    if not fine:
        raise BadMessage("The terms of a batch cannot be read; they were damaged or forged.")
    return BatchTerms(*(table[name] for name in _TERMS))


_TERMS = {"context": str, "crowd": int, "length": int}


def server_context(kit: Kit, folder: Path) -> ssl.SSLContext:
    """TLS for the proxy's end: its own certificate, and none but the federation's at the other."""
    credentials = kit.unpack(folder / "tls")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=kit.ca)
    try:
        context.load_cert_chain(credentials.certificate, credentials.key)
    except ssl.SSLError as error:
        raise PeerFailed(f"The kit's certificate and key cannot be used ({error.reason}); ask for a new kit.") from None
    return context


def _certificate(request: web.Request) -> ssl.SSLObject:
    shown = None if request.transport is None else request.transport.get_extra_info("ssl_object")
    if shown is None:
        raise BadMessage("This connection is gone.")
    certificate: ssl.SSLObject = shown
    return certificate


def _device(request: web.Request) -> str:
    """A device, by the SHA-256 of its certificate."""
    return hashlib.sha256(_certificate(request).getpeercert(binary_form=True) or b"").hexdigest()


def _name(request: web.Request) -> str:
    """The name in a certificate."""
    subject: Any = (_certificate(request).getpeercert() or {}).get("subject", ())
    return next((str(value) for part in subject for key, value in part if key == "commonName"), "")


def _require_coordinator(request: web.Request) -> None:
    if _name(request) != COORDINATOR:
        raise PrivacyRefused("Only the federation's coordinator posts, opens and collects; nothing was done.")
