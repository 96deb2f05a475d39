"""Cells let bytes through, from whom they say they are, between coordinator and site; nothing else of FLARE's."""

import socket
from contextlib import contextmanager

import pytest
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey, MessagePropKey, ReturnCode
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message
from nvflare.fuel.utils import fobs

from tacit.deploy.local_sites import free_port
from tacit.engine import cells
from tacit.engine.cells import CHANNEL, COORDINATOR, HUB, Cell, check_port_free
from tacit.errors import PeerFailed


class Bomb:
    """What must never be made from a message."""


class Trigger(fobs.Decomposer):
    """Makes bombs from bytes: FLARE's object format runs this code where it is decoded."""

    went_off = 0

    def supported_type(self):
        return Bomb

    def decompose(self, target, manager=None):
        return "fuse"

    def recompose(self, data, manager=None):
        Trigger.went_off += 1
        return Bomb()


@contextmanager
def two_cells(heard: list):
    """The coordinator's cell and a site's, never connected: in one process cells need no connection."""

    def receive(*message):
        heard.append(message)
        return b"done"

    port = free_port()
    both = {name: Cell(name, "localhost", port, None, receive) for name in (COORDINATOR, "party-1")}
    for end in both.values():
        end._cell.running = True  # so that it can be stopped
    try:
        yield both
    finally:
        for end in both.values():
            end.stop()


@pytest.fixture
def heard():
    """What cells hand on."""
    return []


@pytest.fixture
def ends(heard):
    with two_cells(heard) as both:
        yield both


def sent_as_objects(channel: str, topic: str) -> int:
    """How many bombs went off at a coordinator that was sent one in FLARE's object format, by a site of its own."""
    fobs.register(Trigger)
    Trigger.went_off = 0
    with two_cells([]) as both:
        both["party-1"]._cell.fire_and_forget(channel, topic, HUB, Message({}, Bomb()), optional=True)
        assert both["party-1"].send(COORDINATOR, "hello", b"bytes", 5.0) == b"done"
    return Trigger.went_off


GOODBYE = (CellChannel.CELLNET, CellChannelTopic.Bye)


@pytest.mark.parametrize(("channel", "topic"), [(CHANNEL, "hello"), GOODBYE], ids=["ours", "goodbye"])
def test_flares_objects_are_dropped_before_they_are_decoded_as_they_are_without_the_filter(monkeypatch, channel, topic):
    assert sent_as_objects(channel, topic) == 0
    monkeypatch.setattr(Cell, "_unwanted", lambda self, message: None)
    assert sent_as_objects(channel, topic) == 1


def heard_from() -> list[str]:
    """Whom a coordinator hears when a site says that it is another."""
    heard = []
    with two_cells(heard) as both:
        core = both["party-1"]._cell
        core.my_info.fqcn = "party-1"
        core.add_outgoing_request_filter("*", "*", lambda m: m.add_headers({MessageHeaderKey.ORIGIN: "party-2"}))
        core.fire_and_forget(CHANNEL, "hello", HUB, Message({}, b"x"), optional=True)
    return [sender for sender, _topic, _body in heard]


def test_without_a_check_of_who_is_at_the_other_end_a_site_speaks_for_another(monkeypatch):
    """What FLARE itself lets through."""
    assert heard_from() == []
    genuine = Cell._unwanted

    def trusting(self, message):
        message.get_prop(self._neighbour).name = message.get_header(self._headers.ORIGIN)
        return genuine(self, message)

    monkeypatch.setattr(Cell, "_unwanted", trusting)
    assert heard_from() == ["party-2"]


@pytest.mark.parametrize("host", ["no-such-host.invalid", "192.0.2.1"])
def test_an_address_that_is_not_this_machines_is_told_before_anybody_waits(host):
    with pytest.raises(PeerFailed, match=f"cannot listen at {host}:8102.*--listen 0.0.0.0"):
        check_port_free(host, 8102)


@pytest.mark.parametrize("host", ["localhost", "0.0.0.0", "127.0.0.1"])
def test_a_port_that_is_free_is_free_and_one_that_is_taken_is_taken(host):
    port = free_port()
    check_port_free(host, port)
    with socket.create_server((host, port)), pytest.raises(PeerFailed, match="is another one running there"):
        check_port_free(host, port)


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
