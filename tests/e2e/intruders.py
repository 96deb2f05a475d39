"""Two ends of a federation for tests that attack it: a coordinator and a site that say whatever a test wants said.

Both speak over real cells with genuine certificates and keys of their own, as somebody would who had broken into the
machine of a coordinator or of a site.
"""

import hashlib
import json
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey
from nvflare.fuel.f3.message import Message

from tacit.boundary.wire import encode
from tacit.config import RunFile
from tacit.deploy.deployment import for_sites, public_items
from tacit.deploy.handshake import hello_content
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.deploy.offer import Offer, SiteSizes, facts_among, facts_content, offered_file, read_facts
from tacit.engine.cells import CHANNEL, COORDINATOR, HUB, Cell
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import Address, open_message, sign_message, unverified
from tacit.federation.messages import Request
from tacit.prepare.run_file import setting_of


class End:
    """What both have: a cell, what arrived there, and ways to say what nobody should."""

    cell: Cell

    def raw(self, to: str, topic: str, body: object, channel: str = CHANNEL, timeout: float = 0.6, **headers: object):
        """A message with any headers; what came back, or None."""
        said = {getattr(MessageHeaderKey, name): value for name, value in headers.items()}
        target = HUB if to == COORDINATOR else to
        reply = self.cell._cell.send_request(
            channel, topic, target, Message(said, body), timeout=timeout, optional=True
        )
        code = reply.get_header(MessageHeaderKey.RETURN_CODE)
        return reply.payload if code == "ok" else None

    def posing(self, sender: str, to: str, topic: str, body: object, channel: str = CHANNEL) -> None:
        """A message that says that it comes from somebody else, on this end's own connection."""
        core, target = self.cell._cell, HUB if to == COORDINATOR else to
        name, info = core.my_info.fqcn, core.my_info
        try:
            info.fqcn = sender
            core.fire_and_forget(channel, topic, target, Message({}, body), optional=True)
        finally:
            info.fqcn = name


class Puppeteer(End):
    """A coordinator whose every word is a test's."""

    def __init__(self, folder: Path) -> None:
        self.keyring = Keyring.open(folder / "keys")
        self.key = self.keyring.identity
        self.cell = Cell(COORDINATOR, self.keyring.host, self.keyring.port, self.keyring.credentials(), self._receive)
        self.identities: dict[str, str] = {}
        self.starts: dict[str, str] = {}
        self.replies: dict[str, list[dict]] = {}
        self.news = threading.Condition()
        self.cell.start()

    def _receive(self, sender: str, topic: str, body: bytes) -> bytes:
        with self.news:
            if topic == "hello":
                words = unverified(body)
                self.identities[sender], self.starts[sender] = str(words["identity"]), str(words["start"])
                self.news.notify_all()
                return b"{}"
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.identities[sender]))
            _run, content = open_message(body, key, sender, COORDINATOR, "reply")
            self.replies.setdefault(str(content.pop("about")), []).append(content)
            self.news.notify_all()
        return TAKEN

    def wait(self, condition, seconds: float = 120.0) -> None:
        with self.news:
            assert self.news.wait_for(condition, seconds)

    def say(self, name: str, topic: str, content: dict, run: str, key: Ed25519PrivateKey | None = None, to: str = ""):
        """One signed message; what the site said to it: taken, or nothing."""
        words = {"start": self.starts[name], **content}
        message = sign_message(Address(COORDINATOR, to or name, topic, run), words, key or self.key)
        return self.cell.send(name, topic, message, 10.0)

    def told(self, name: str, topic: str, about: str, content: dict, run: str) -> dict:
        """One message and the reply to it."""
        with self.news:
            before = len(self.replies.get(about, ()))
        reply = self.say(name, topic, {"about": about, **content}, run)
        assert reply == TAKEN, reply
        self.wait(lambda: len(self.replies.get(about, ())) > before)
        return self.replies[about][-1]

    def close(self) -> None:
        self.cell.stop()


@dataclass
class Terms:
    """One run as the puppeteer offers it."""

    run: str
    offer: Offer
    told: dict[str, SiteSizes] = field(default_factory=dict)

    @classmethod
    def made(cls, folder: Path, run: str, roster: tuple[str, ...]) -> "Terms":
        file = for_sites(RunFile.read(folder / "run.toml"))
        file = file.model_copy(
            update={"public": file.public.model_copy(update={"catalogue": str(folder / "items.csv")})}
        )
        return cls(run, Offer(run, offered_file(file, file.public), roster, setting_of(file), public_items(file)))

    def begin(self, hub: Puppeteer, name: str) -> None:
        """Everything up to the first request, as an honest coordinator would."""
        reply = hub.told(name, "offer", self.offer.hash, self.offer.content(), self.run)
        self.told = dict.fromkeys(self.offer.roster, SiteSizes.of(reply, name))
        self.agreed = self.offer.prepared(facts_among(self.offer, self.told))
        content = {**facts_content(self.agreed.facts), "identities": json.dumps(hub.identities)}
        assert "bound" in hub.told(name, "begin", f"begin {self.run}", content, self.run)

    def request(self, step: str, round: int = 1, attempt: int = 0, **payload: object) -> Request:
        return Request(self.agreed.method.name, self.agreed.bound, step, round, attempt, encode(payload))


class Puppet(End):
    """A site whose every word is a test's; it answers by `act(topic, content)`, which gives a reply's content."""

    def __init__(self, kit: Kit, folder: Path, act=None, cell_name: str | None = None, greet: bool = True) -> None:
        self.kit, self.identity, self.start = kit, Ed25519PrivateKey.generate(), "start"
        self.act = act or (lambda topic, content: None)
        self.seen: list[tuple[str, dict]] = []
        self.run, self.offer, self.agreed = "", None, None
        self.welcome: bytes | None = None
        self.cell = Cell(
            cell_name or kit.name, kit.host, kit.port, kit.unpack(folder / f"tls {kit.name}"), self._receive
        )
        self.cell.start()
        self._closing = threading.Event()
        if greet:
            threading.Thread(target=self._greet, daemon=True).start()

    def hello(self) -> bytes | None:
        content = hello_content(self.kit, self.identity, self.start)
        message = sign_message(Address(self.kit.name, COORDINATOR, "hello"), content, self.identity)
        self.welcome = self.cell.send(COORDINATOR, "hello", message, 5.0)
        return self.welcome

    def reply(self, about: str, content: dict, key=None, sender: str = "") -> bytes | None:
        place = Address(sender or self.kit.name, COORDINATOR, "reply", self.run)
        return self.cell.send(
            COORDINATOR, "reply", sign_message(place, {"about": about, **content}, key or self.identity), 5.0
        )

    def close(self) -> None:
        self._closing.set()
        self.cell.stop()

    def _greet(self) -> None:
        while not self._closing.wait(0.2 if self.welcome is None else 1.0):
            self.hello()

    def _receive(self, sender: str, topic: str, body: bytes) -> bytes:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.kit.coordinator))
        self.run, content = open_message(body, key, COORDINATOR, self.kit.name, topic)
        self.seen.append((topic, content))
        threading.Thread(target=self._answer, args=(topic, dict(content)), daemon=True).start()
        return TAKEN

    def _answer(self, topic: str, content: dict) -> None:
        about, _start = str(content.pop("about")), content.pop("start")
        reply = self.act(topic, content)
        while reply is not None and self.reply(about, reply) != TAKEN:
            if self._closing.wait(0.1):
                return

    def honest(self, users: int = 20):
        """Replies to everything before the first request, as a site with so many users would."""

        def act(topic: str, content: dict) -> dict | None:
            if topic == "offer":
                self.offer = Offer.of(self.run, content)
                return SiteSizes(users, None, 100).content()
            if topic == "begin":
                content.pop("identities")
                self.agreed = self.offer.prepared(read_facts(self.offer, content))
                return {"bound": hashlib.sha256(self.agreed.bound.encode()).hexdigest()}
            return {"ended": True} if topic == "end" else None

        return act


def until(condition, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
