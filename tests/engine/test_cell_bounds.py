"""What a cell looks at, header by header, and what a signature is good for: single bounds, without a network."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, MessagePropKey, ReturnCode
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message

from tacit.deploy.local_sites import free_port
from tacit.engine import cells, envelope
from tacit.engine.cells import CHANNEL, COORDINATOR, HUB, Cell
from tacit.engine.envelope import SIGNATURE, Address, open_message, sign_message
from tacit.errors import BadMessage


@pytest.fixture
def heard():
    """What cells hand on."""
    return []


@pytest.fixture
def ends(heard):
    """The coordinator's cell and a site's, never connected."""

    def receive(*message):
        heard.append(message)
        return b"done"

    port = free_port()
    both = {name: Cell(name, "localhost", port, None, receive) for name in (COORDINATOR, "party-1")}
    for end in both.values():
        end._cell.running = True  # so that it can be stopped
    yield both
    for end in both.values():
        end.stop()


def message(sender: str, target: str, body: object = b"bytes", neighbour: str | None = None, **headers) -> Message:
    """As FLARE hands it to filters: headers by whoever sent it, and who is at the other end of the connection."""
    about = {
        MessageHeaderKey.ORIGIN: sender,
        MessageHeaderKey.DESTINATION: target,
        MessageHeaderKey.CHANNEL: CHANNEL,
        MessageHeaderKey.TOPIC: "ask",
    }
    found = Message({**about, **{getattr(MessageHeaderKey, name): value for name, value in headers.items()}}, body)
    found.set_prop(MessagePropKey.ENDPOINT, Endpoint(neighbour or sender))
    return found


def dropped(reply: Message | None) -> bool:
    if reply is None:
        return False
    assert reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.INVALID_REQUEST
    return True


BYE = {"CHANNEL": CellChannel.CELLNET, "TOPIC": CellChannelTopic.Bye}
AGREED = {
    "the coordinator's, to a site": ("party-1", (HUB, "party-1"), {}),
    "a site's, to the coordinator": (COORDINATOR, ("party-1", HUB), {}),
    "a goodbye": (COORDINATOR, ("party-1", HUB), BYE),
    "bytes that say so": ("party-1", (HUB, "party-1"), {"PAYLOAD_ENCODING": "bytes"}),
}
UNWANTED = {
    "to be routed through a site": ("party-1", (HUB, "party-2"), {}),
    "to be routed through the coordinator": (COORDINATOR, ("party-1", "party-2"), {}),
    "to a cell below": ("party-1", (HUB, "party-1.job"), {}),
    "to nobody": ("party-1", (HUB, None), {}),
    "of another site, to a site": ("party-1", ("party-2", "party-1"), {}),
    "a goodbye of another site": ("party-1", ("party-2", "party-1"), BYE),
    "with an address to connect to": ("party-1", (HUB, "party-1"), {"CONN_URL": "grpc://elsewhere:1"}),
    "with an address, to the coordinator": (COORDINATOR, ("party-1", HUB), {"CONN_URL": "grpc://elsewhere:1"}),
    "with an empty address": ("party-1", (HUB, "party-1"), {"CONN_URL": ""}),
    "on another channel": ("party-1", (HUB, "party-1"), {"CHANNEL": "admin"}),
    "in FLARE's object format": ("party-1", (HUB, "party-1"), {"PAYLOAD_ENCODING": "fobs"}),
    "by another than it says": (COORDINATOR, ("party-1", HUB), {"neighbour": "party-2"}),
    "by a site that says it is the coordinator": ("party-1", (HUB, "party-1"), {"neighbour": "party-2"}),
}


@pytest.mark.parametrize("what", AGREED)
def test_what_is_agreed_passes(ends, what):
    at, between, more = AGREED[what]
    assert not dropped(ends[at]._unwanted(message(*between, **more)))


@pytest.mark.parametrize("what", UNWANTED)
def test_a_message_is_dropped_for_each_thing_that_is_not_as_agreed(ends, what):
    """Each is fine but for one thing."""
    at, between, more = UNWANTED[what]
    assert dropped(ends[at]._unwanted(message(*between, **more)))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_message_larger_than_the_largest_is_not_looked_at(ends, heard, monkeypatch, kind):
    monkeypatch.setattr(cells, "LARGEST", 8)
    assert dropped(ends["party-1"]._received(message(HUB, "party-1", kind(b"x" * 9))))
    assert heard == []
    reply = ends["party-1"]._received(message(HUB, "party-1", kind(b"x" * 8)))
    assert (reply.get_header(MessageHeaderKey.RETURN_CODE), reply.payload) == (ReturnCode.OK, b"done")
    assert heard == [(COORDINATOR, "ask", b"x" * 8)]


@pytest.mark.parametrize("body", [None, "text", ["x"], {"x": 1}], ids=str)
def test_what_is_not_bytes_is_not_looked_at(ends, heard, body):
    assert dropped(ends["party-1"]._received(message(HUB, "party-1", body)))
    assert heard == []


KEY = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
BODY = sign_message(Address(COORDINATOR, "party-1", "ask", "run-1"), {"number": 3}, KEY)[SIGNATURE:]
#: What a key may have signed for another purpose, where an envelope's words could have been what it was about.
ELSEWHERE = {
    "the bare hash": hashlib.sha256(BODY).digest(),
    "the bare message": BODY,
    "the hash under another context": b"tacit hello 1" + hashlib.sha256(BODY).digest(),
}


def read(signed: bytes) -> tuple:
    return open_message(KEY.sign(signed) + BODY, KEY.public_key(), COORDINATOR, "party-1", "ask")


@pytest.mark.parametrize("what", ELSEWHERE)
def test_a_signature_made_for_something_else_signs_no_envelope(what):
    with pytest.raises(BadMessage, match="not signed by it"):
        read(ELSEWHERE[what])


def test_planted_envelopes_without_a_context_would_be_noticed(monkeypatch):
    monkeypatch.setattr(envelope, "_CONTEXT", b"")
    assert read(ELSEWHERE["the bare hash"]) == ("run-1", {"number": 3})
