"""Certificates, clocks and messages that are not what they should be: refused with a sentence, nothing charged or lost.

A coordinator that was broken into meets a real site, and a site that was broken into meets a real coordinator; both
have the right certificates and keys, and speak over real connections.
"""

import time
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from intruders import Puppeteer, Terms
from nvflare.fuel.f3.cellnet.defs import CellChannel
from services import Federation

from tacit.boundary.ledger import Ledger
from tacit.engine.cells import COORDINATOR
from tacit.engine.envelope import Address, TimedRequest, sign_message

PRIVATE = """
seed = 7
[public]
scale = [1, 5]
users = 90
catalogue = "items.csv"
[method]
name = "sgdmf"
factors = 3
rounds = 6
local_steps = 1
sampling = 1.0
[privacy]
epsilon = 4.0
delta = 1e-6
"""


class Attacked:
    """A real site in a private run, and a coordinator that says what a test wants said."""

    def __init__(self, folder) -> None:
        self.federation = Federation(folder, PRIVATE, parties=2)
        self.hub = Puppeteer(folder)
        self.site = self.federation.join("party-1", "--stay")
        self.hub.wait(lambda: "party-1" in self.hub.identities)
        self.terms = Terms.made(folder, "run-a", self.federation.names)
        self.terms.begin(self.hub, "party-1")
        self.items = np.full((30, 3), 0.1, np.float32)
        self.ask(self.terms.request("pretrain", 0, items=self.items))
        self.first = self.terms.request("contribute", 1, items=self.items, t=0)
        self.answer = self.ask(self.first)
        assert self.answer["status"] == "ok"

    def ask(self, request, run="run-a", about="", **more) -> dict:
        content = {**TimedRequest(request, 30.0).content(), **more}
        return self.hub.told("party-1", "ask", about or f"{request.hash} {time.monotonic()}", content, run)

    @property
    def ledger(self) -> tuple[list[str], int]:
        """Every row's head, and how many requests were refused."""
        ledger = Ledger.open(self.federation.folder / "site-party-1" / "ledger" / "party-1.sqlite")
        try:
            ledger.verify()
            return [row.head for row in ledger.rows()], ledger.refusals()["number"]
        finally:
            ledger.close()

    @property
    def log(self) -> str:
        return (self.federation.folder / "site-party-1" / "log.jsonl").read_text()

    def check_alive(self) -> None:
        """The site answers its request again, by the very bytes that it recorded, at no cost."""
        assert self.site.process.poll() is None, self.site.err
        before = self.ledger
        again = self.ask(self.first)
        assert {**again, "body": 0} == {**self.answer, "body": 0}
        np.testing.assert_array_equal(again["body"], self.answer["body"])
        assert self.ledger == before
        assert "Traceback" not in self.site.err


@pytest.fixture(scope="module")
def attacked(tmp_path_factory):
    made = Attacked(tmp_path_factory.mktemp("attacked"))
    yield made
    made.federation.stop()
    made.hub.close()


def whole(shape, value=0.1, dtype=np.float32):
    return np.full(shape, value, dtype)


#: By name: changes of the payload, of the request and of the message around it; unit tests and fuzzing have more.
NOT_AGREED = {
    "not a number": ({"items": whole((30, 3), np.nan)}, {}, {}),
    "oversized": ({"items": whole((3000, 3000))}, {}, {}),
    "one thing more": ({"users": whole((30, 3))}, {}, {}),
    "a method of the class": ({}, {"step": "__init__"}, {}),
    "other terms": ({}, {"parameters": "other"}, {}),
    "pickle": ({}, {"body": b"\x80\x04\x95pickle"}, {}),
    "survivors": ({}, {}, {"survivors": np.ones(1, np.uint8)}),
    "time as an array": ({}, {}, {"seconds": np.ones(3, np.float32)}),
    "one part more": ({}, {}, {"command": "rm"}),
}


@pytest.mark.parametrize("what", NOT_AGREED)
def test_what_was_not_agreed_on_is_refused_uncharged(attacked, what):
    before = attacked.ledger
    payload, request, content = NOT_AGREED[what]
    asked = attacked.terms.request("contribute", 2, **{"items": attacked.items, "t": 1, **payload})
    assert attacked.ask(replace(asked, **request), **content) == {"error": "BadMessage", "why": ""}
    assert attacked.ledger == before
    attacked.check_alive()


@pytest.mark.parametrize("forged", ["another key", "another addressee", "another topic", "cut", "noise"])
def test_what_is_not_the_coordinators_word_to_this_site_is_not_even_taken(attacked, forged):
    hub, before = attacked.hub, attacked.ledger
    content = {"about": "forged", **TimedRequest(attacked.first, 30.0).content()}
    place = Address(COORDINATOR, "party-1", "ask", "run-a")
    messages = {
        "another key": sign_message(place, content, Ed25519PrivateKey.generate()),
        "another addressee": sign_message(replace(place, to="party-2"), content, hub.key),
        "another topic": sign_message(replace(place, topic="end"), content, hub.key),
        "cut": sign_message(place, content, hub.key)[:-8],
        "noise": b"\xff" * 500,
    }
    lines = attacked.log.count('"refused"')
    assert hub.cell.send("party-1", "ask", messages[forged], 5.0) is None
    assert attacked.log.count('"refused"') > lines
    assert attacked.ledger == before
    assert "forged" not in hub.replies
    attacked.check_alive()


def test_unknown_topics_and_flares_own_channels_reach_nobody(attacked):
    hub, before = attacked.hub, attacked.ledger
    body = sign_message(Address(COORDINATOR, "party-1", "shell", "run-a"), {"about": "x"}, hub.key)
    assert hub.raw("party-1", "shell", body) is None
    for channel, topic in (
        (CellChannel.CELLNET, "bulk"),
        (CellChannel.CLIENT_MAIN, "deploy"),
        (CellChannel.AUX_COMMUNICATION, "x"),
        (CellChannel.CLIENT_COMMAND, "x"),
        ("", "ask"),
    ):
        assert hub.raw("party-1", topic, body, channel=channel, timeout=0.3) is None
    assert attacked.ledger == before
    attacked.check_alive()
