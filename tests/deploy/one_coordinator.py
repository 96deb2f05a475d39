"""A coordinator without a network, and the sites that send to it."""

import json
from pathlib import Path
from time import monotonic, sleep

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from one_site import keyring_of

from tacit.deploy import coordinator_service
from tacit.deploy.coordinator_service import Coordinator
from tacit.deploy.handshake import hello_content
from tacit.deploy.logs import ServiceLog
from tacit.deploy.service_status import Status
from tacit.engine.coordinator_channel import SILENCE, TAKEN
from tacit.engine.envelope import Address, sign_message, unverified

NAMES = ("party-1", "party-2")


class FakeCell:
    """A cell that takes every message, and records it."""

    def __init__(self, *_place) -> None:
        self.sent: list[tuple[str, str, dict]] = []

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def send(self, name, topic, message, _timeout):
        self.sent.append((name, topic, unverified(message)))
        return TAKEN


class World:
    """A coordinator on a fake cell, two invited sites, and what was reported."""

    def __init__(self, folder: Path, monkeypatch, listen=None) -> None:
        monkeypatch.setattr(coordinator_service, "Cell", FakeCell)
        monkeypatch.setattr(coordinator_service, "LOOK", 0.02)
        self.folder, self.reported = folder, []
        self.keyring = keyring_of(folder / "keys")
        self.coordinator_key = self.keyring.identity
        self.kits = {name: self.keyring.invite(name) for name in NAMES}
        self.keys = {name: Ed25519PrivateKey.generate() for name in NAMES}
        self.status = Status(folder, "coordinator", "hearts")
        log = ServiceLog(folder, "coordinator")
        self.coordinator = Coordinator(self.keyring, "run-1", log, self.status, listen, self.reported.append)
        self.coordinator.open()
        self.channel, self.sent = self.coordinator.channel, self.coordinator._cell.sent

    def send(self, name: str, topic: str, content: dict, run: str = "") -> bytes:
        message = sign_message(Address(name, "coordinator", topic, run), content, self.keys[name])
        return self.coordinator.receive(name, topic, message)

    def hello(self, name: str = "party-1", topic: str = "hello") -> bytes:
        return self.send(name, topic, hello_content(self.kits[name], self.keys[name], "start"))

    def reply(self, name: str, **content) -> bytes:
        return self.send(name, "reply", {"about": "id", **content}, "run-1")

    def request(self, name: str, seconds: float = 30.0):
        return self.channel.request(name, "ask", "id", lambda _left: {}, seconds)

    def silence(self, name: str) -> None:
        """As if no message had come for a while."""
        self.channel._services[name].heard -= SILENCE + 1

    def events(self) -> list[tuple]:
        lines = map(json.loads, (self.folder / "log.jsonl").read_text().splitlines())
        return [(line["event"], line.get("peer")) for line in lines]

    def state_of(self, name: str) -> str:
        return self.status.now()["peers"][name]["state"]

    def until(self, condition) -> None:
        deadline = monotonic() + 120
        while not condition():
            assert monotonic() < deadline, (self.reported, self.events())
            sleep(0.01)
