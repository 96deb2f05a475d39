"""Cells let bytes through, from whom they say they are, between coordinator and site; nothing else of FLARE's."""

import socket

import pytest
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic, MessageHeaderKey
from nvflare.fuel.f3.message import Message
from nvflare.fuel.utils import fobs

from tacit.deploy.local_sites import free_port
from tacit.engine import cells
from tacit.engine.cells import CHANNEL, COORDINATOR, Cell, check_port_free
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


def sent_as_objects(channel: str, topic: str) -> int:
    """How many bombs went off at a coordinator that was sent one in FLARE's object format, by a site of its own."""
    fobs.register(Trigger)
    Trigger.went_off = 0
    port = free_port()
    hub = Cell(COORDINATOR, "localhost", port, None, lambda *_message: b"done")
    site = Cell("party-1", "localhost", port, None, lambda *_message: b"")
    site._cell.running = hub._cell.running = True  # in one process cells need no connection
    try:
        site._cell.fire_and_forget(channel, topic, cells.HUB, Message({}, Bomb()), optional=True)
        assert site.send(COORDINATOR, "hello", b"bytes", 5.0) == b"done"
    finally:
        site.stop()
        hub.stop()
    return Trigger.went_off


BYE = (CellChannel.CELLNET, CellChannelTopic.Bye)


@pytest.mark.parametrize(("channel", "topic"), [(CHANNEL, "hello"), BYE], ids=["ours", "goodbye"])
def test_flares_objects_are_dropped_before_they_are_decoded(channel, topic):
    assert sent_as_objects(channel, topic) == 0


def test_without_the_filter_flares_objects_are_made(monkeypatch):
    """The test above can fail."""
    monkeypatch.setattr(Cell, "_unwanted", lambda self, message: None)
    assert sent_as_objects(CHANNEL, "hello") == 1
    assert sent_as_objects(*BYE) == 1


def test_without_a_check_of_who_is_at_the_other_end_a_site_speaks_for_another(monkeypatch):
    """What FLARE itself lets through: the planted bug that the test above is for."""

    def heard_from() -> list[str]:
        heard, port = [], free_port()
        hub = Cell(COORDINATOR, "localhost", port, None, lambda sender, _topic, _body: heard.append(sender) or b"")
        site = Cell("party-1", "localhost", port, None, lambda *_message: b"")
        site._cell.running = hub._cell.running = True
        try:
            core = site._cell
            headers = {MessageHeaderKey.ORIGIN: "party-2"}
            core.my_info.fqcn = "party-1"
            message = Message({}, b"x")
            core.add_outgoing_request_filter("*", "*", lambda m: m.add_headers(headers))
            core.fire_and_forget(CHANNEL, "hello", cells.HUB, message, optional=True)
        finally:
            site.stop()
            hub.stop()
        return heard

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
