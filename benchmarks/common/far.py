"""Sites that only echo, each in a process of its own on this machine, and three ways to send them the same bytes.

Every site answers requests through the engine's channel, as a real one does. Bytes pushed to its cell as `BARE` it
acknowledges and pushes back unchanged, as the engine does with a request and its reply: in two messages, since only a
message may be larger than one frame, and not the reply to one. On a raw TLS socket, with the same certificates, it
sends back whatever comes. So all three connect the same processes.
"""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from benchmarks.common.fresh import ROOT
from benchmarks.message import Echo, nothing_stated
from tacit.boundary import Gate
from tacit.boundary.wire import Value
from tacit.data.synthetic import demo
from tacit.deploy.coordinator_service import Coordinator
from tacit.deploy.handshake import hello_content
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.deploy.local_sites import free_port
from tacit.deploy.logs import ServiceLog, quiet_engine
from tacit.deploy.service_status import Status
from tacit.deploy.site_service import own_identity
from tacit.engine.cells import COORDINATOR, LARGEST, Credentials
from tacit.engine.coordinator_channel import TAKEN, Flare
from tacit.engine.envelope import TimedRequest, answer_content
from tacit.engine.serve import serve_request
from tacit.engine.site_channel import BEAT, Handlers, SiteChannel
from tacit.errors import PeerFailed
from tacit.federation import Facts, Federation
from tacit.methods import Parameters
from tacit.partition import partition

BARE = "bare"
#: Seconds for all sites to be up, for one exchange, and for the sites to end.
STARTING, STEP, ENDING = 60.0, 120.0, 10.0
#: Bytes that say how long what follows on a raw socket is.
_LENGTH = 8


def echoes(count: int) -> tuple[list[Echo], Facts]:
    """Parties that send back what they get; the same in every process."""
    shares = partition(demo(users=100, items=50), into=count)
    facts = Facts.of(shares, seed=7)
    return [Echo(share, Parameters(), facts, Gate(share.name, facts.seed, {})) for share in shares], facts


class _Hub(Coordinator):
    """A coordinator that also takes what sites push as `BARE`, of any size."""

    def __init__(self, *arguments: Any) -> None:
        self.echoed: dict[str, SimpleQueue[bytes]] = defaultdict(SimpleQueue)  # by site
        super().__init__(*arguments)

    def receive(self, sender: str, topic: str, body: bytes) -> bytes:
        if topic != BARE:
            return super().receive(sender, topic, body)
        self.echoed[sender].put(body)
        return TAKEN

    def exchanged(self, name: str, body: bytes) -> bytes | None:
        """Push bytes to a site; what it pushes back, or None where one of the two did not arrive."""
        try:
            taken = self._cell.send(name, BARE, body, STEP) == TAKEN
            return self.echoed[name].get(timeout=STEP) if taken else None
        except Empty:
            return None

    def _most(self, sender: str, topic: str) -> int:
        return LARGEST if topic == BARE else super()._most(sender, topic)


class Far:
    """This end of the connection to `count` echoing sites; leaving it ends them."""

    def __init__(self, folder: Path, count: int) -> None:
        members, facts = echoes(count)
        self.names = tuple(member.name for member in members)
        self.keyring = Keyring.make(folder / "keys", federation="echoes", host="localhost", port=free_port())
        log = ServiceLog(folder, "coordinator")
        quiet_engine(log)
        self._coordinator = _Hub(self.keyring, "echoes", log, Status(folder, "coordinator", "echoes"))
        self._coordinator.open()
        self._engine = Flare(self._coordinator.channel, self.names, STEP)
        self.federation = Federation(self._engine, facts, Echo.steps, **nothing_stated(facts))
        self._pool = ThreadPoolExecutor(count)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._sockets: list[ssl.SSLSocket] = []
        try:
            self._gathered(folder)
        except BaseException:
            self.__exit__()
            raise

    def bare(self, body: bytes) -> None:
        """One push over FLARE's cells to every site, and one back."""
        replies = self._pool.map(lambda name: self._coordinator.exchanged(name, body), self.names)
        if any(reply != body for reply in replies):
            raise PeerFailed("A bare push did not come back as it was sent.")

    def raw(self, body: bytes) -> None:
        """The same bytes to every site and back over TLS sockets."""
        if any(reply != body for reply in self._pool.map(lambda line: _exchanged(line, body), self._sockets)):
            raise PeerFailed("What went over a raw socket did not come back as it was sent.")

    def __enter__(self) -> Far:
        return self

    def __exit__(self, *_failure: object) -> None:
        self._engine.close()
        for line in self._sockets:
            line.close()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(ENDING)
        self._coordinator.close()
        self._pool.shutdown()

    def _gathered(self, folder: Path) -> None:
        """Start the sites, and wait until all are there on both lines."""
        context = _mutual(ssl.PROTOCOL_TLS_SERVER, self.keyring.credentials())
        with socket.create_server(("localhost", 0)) as door:
            door.settimeout(STARTING)
            for name in self.names:
                self.processes.append(self._started(folder / name, name, door.getsockname()[1]))
            for _ in self.names:
                self._sockets.append(context.wrap_socket(door.accept()[0], server_side=True))
        if missing := self._coordinator.channel.wait_for(self.names, STARTING):
            raise PeerFailed(f"{missing[0]} did not come up within {STARTING:g} seconds.")

    def _started(self, folder: Path, name: str, port: int) -> subprocess.Popen[bytes]:
        folder.mkdir(mode=0o700)
        kit = folder / f"{name}.kit"
        self.keyring.invite(name).write(kit)
        words = map(str, (kit, folder, port, len(self.names), os.getpid()))
        return subprocess.Popen([sys.executable, "-m", "benchmarks.common.far", *words], cwd=ROOT)


# -- at a site ---------------------------------------------------------------------------------------------------------


class _Echoing(SiteChannel):
    """A channel whose cell also pushes back, unchanged, what it is pushed as `BARE`."""

    def __init__(self, *arguments: Any) -> None:
        self._bare: SimpleQueue[bytes] = SimpleQueue()
        super().__init__(*arguments)

    def open(self) -> None:
        super().open()
        threading.Thread(target=self._push_back, daemon=True).start()

    def receive(self, sender: str, topic: str, body: bytes) -> bytes:
        if topic != BARE:
            return super().receive(sender, topic, body)
        self._bare.put(body)
        return TAKEN

    def _push_back(self) -> None:
        while True:
            self._cell.send(COORDINATOR, BARE, self._bare.get(), STEP)


def serve(kit: Path, folder: Path, port: int, count: int, parent: int) -> None:
    """Echo for as long as the process that asked for it is there."""
    site = Kit.read(kit)
    quiet_engine(ServiceLog(folder, site.name))
    member = next(member for member in echoes(count)[0] if member.name == site.name)
    credentials, identity = site.unpack(folder / "tls"), own_identity(folder)

    def handle(_topic: str, _run: str, content: dict[str, Any]) -> Mapping[str, Value]:
        ask = TimedRequest.of(content)
        return answer_content(serve_request(member, ask.request, ask.survivors))

    threading.Thread(target=_echo, args=(port, credentials), daemon=True).start()
    coordinator = Ed25519PublicKey.from_public_bytes(bytes.fromhex(site.coordinator))
    place = (site.name, site.host, site.port, credentials)
    channel = _Echoing(*place, identity, coordinator, Handlers(handle, lambda _error: None, lambda: None))
    channel.open()
    while os.getppid() == parent:
        there = channel.send("hello", hello_content(site, identity, channel.start)) is not None
        time.sleep(BEAT if there else 0.1)


def _echo(port: int, credentials: Credentials) -> None:
    context = _mutual(ssl.PROTOCOL_TLS_CLIENT, credentials)
    with context.wrap_socket(socket.create_connection(("localhost", port)), server_hostname="localhost") as line:
        while (body := _heard(line)) is not None:
            _said(line, body)


# -- raw sockets -------------------------------------------------------------------------------------------------------


def _mutual(side: int, credentials: Credentials) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.load_verify_locations(credentials.ca)
    context.load_cert_chain(credentials.certificate, credentials.key)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _exchanged(line: ssl.SSLSocket, body: bytes) -> bytes | None:
    _said(line, body)
    return _heard(line)


def _said(line: ssl.SSLSocket, body: bytes) -> None:
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    line.sendall(len(body).to_bytes(_LENGTH))
    line.sendall(body)


def _heard(line: ssl.SSLSocket) -> bytes | None:
    """The next message; None where the other side has gone."""
    length = _exactly(line, _LENGTH)
    return None if length is None else _exactly(line, int.from_bytes(length))


def _exactly(line: ssl.SSLSocket, count: int) -> bytes | None:
    body, had = bytearray(count), 0
    while had < count:
        got = line.recv_into(memoryview(body)[had:])
        if not got:
            return None
        had += got
    return bytes(body)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), Path(sys.argv[2]), *map(int, sys.argv[3:]))
