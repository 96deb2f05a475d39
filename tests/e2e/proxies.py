"""A real proxy in a process of its own, with certificates for as many devices as a test wants."""

import hashlib
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from services import PATIENCE, Service

from tacit.deploy import certificates as x509
from tacit.deploy.keyring import Keyring
from tacit.deploy.local_sites import free_port
from tacit.deploy.proxy_client import CoordinatorLine, DeviceLine, Line
from tacit.engine.cells import Credentials
from tacit.secure.shuffler import BatchTerms

KEY = X25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
CONTEXT, LENGTH = "ab" * 32, 56


class Place:
    """A federation's keys, its proxy's process, and lines to it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.port, self.options = folder, free_port(), options
        self.keyring = Keyring.make(folder / "keys", federation="test", host="localhost", port=free_port())
        self.keyring.invite("proxy", at=("localhost", self.port)).write(folder / "proxy.kit")
        read = (folder / "keys" / "ca.pem").read_text(), (folder / "keys" / "ca.key").read_text()
        self._ca = x509.read_certificate(read[0]), x509.read_key(read[1])
        self._key = x509.new_key()  # one for all devices: making a thousand would take the time
        (folder / "device.key").write_text(x509.key_text(self._key))
        self.starts, self.fingerprints, self.lines = 0, {}, []

    def start(self) -> Service:
        self.starts += 1
        arguments = ["proxy", "proxy.kit", "--state", "state", *self.options]
        self.service = Service(arguments, self.folder, "proxy").start()
        self.until_listening()
        return self.service

    def until_listening(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.service.err.count("listening") < self.starts:
            assert self.service.process.poll() is None, self.service.err
            assert time.monotonic() < deadline, self.service.err
            time.sleep(0.02)

    def stop(self) -> None:
        for line in self.lines:
            line.close()
        if self.starts and self.service.process.poll() is None:
            self.service.kill()

    def credentials(self, name: str, ca=None) -> Credentials:
        """A certificate for a device, of this federation's authority or another's."""
        path = self.folder / f"{name}.crt"
        if not path.exists():
            made = x509.site_certificate(name, self._key, *(ca or self._ca), 30)
            path.write_bytes(made.public_bytes(Encoding.PEM))
            self.fingerprints[name] = x509.fingerprint(made)
        return Credentials(self.folder / "keys" / "ca.pem", path, self.folder / "device.key")

    def line(self, name: str) -> Line:
        return self._kept(Line("localhost", self.port, self.credentials(name)))

    def device(self, name: str, patience: float = 20.0) -> DeviceLine:
        return DeviceLine(self.line(name), PUBLIC, patience)

    def coordinator(self) -> CoordinatorLine:
        line = self._kept(Line("localhost", self.port, self.keyring.credentials()))
        return CoordinatorLine(line, KEY, lambda: self.fingerprints, 20.0)

    def _kept(self, line: Line) -> Line:
        self.lines.append(line)
        return line

    def send(self, messages: dict[str, bytes], terms: BatchTerms, threads: int = 8) -> list[bool]:
        """All these devices' messages, in this order as far as threads keep it."""

        def one(item):
            with closing(self.device(item[0])) as device:
                return device.send(item[0], terms, item[1])

        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(one, messages.items()))

    def written(self) -> str:
        """All that the proxy has written: its log, its output, and the names and content of its other files."""
        texts = [path.read_text(errors="replace") for path in (self.folder / "state").rglob("*") if path.is_file()]
        return "\n".join([*texts, self.service.out, self.service.err])


@contextmanager
def proxy_in(folder: Path, *options: str):
    place = Place(folder, *options)
    place.start()
    try:
        yield place
    finally:
        place.stop()


def names(count: int) -> list[str]:
    return [f"party-{k}" for k in range(1, count + 1)]


def traces(text: str, place: Place) -> list[str]:
    """What in a text could tell a device, an address or a connection."""
    found = re.findall(rf"party-\d+|127\.0\.0\.1|::1|localhost:(?!{place.port})\d+", text)
    marks = [*place.fingerprints.values(), *(hashlib.sha256(f.encode()).hexdigest() for f in place.fingerprints)]
    return [*found, *(mark for mark in marks if mark[:16] in text)]


def random_message(reports: int) -> bytes:
    return os.urandom(reports * LENGTH)
