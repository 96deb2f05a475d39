"""What a peer can make the coordinator hold is bounded before it is read: connections, frames, messages in parts."""

import socket
from contextlib import contextmanager
from time import monotonic, sleep

import grpc
import pytest
from nvflare.fuel.f3.cellnet.core_cell import CoreCell
from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessagePropKey, ReturnCode
from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame
from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub
from nvflare.fuel.f3.drivers.grpc_driver import StreamConnection
from nvflare.fuel.f3.endpoint import Endpoint
from nvflare.fuel.f3.message import Message

from tacit.deploy.keyring import Keyring
from tacit.deploy.local_sites import free_port
from tacit.engine import transport
from tacit.engine.cells import CHANNEL, COORDINATOR, HUB, PART_OF, Bounds, Cell

NO = "The invitation of party-1 was revoked; ask the operator for a new one."


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A federation's keys, and one kit of it."""
    folder = tmp_path_factory.mktemp("transport")
    keyring = Keyring.make(folder / "keys", federation="hearts", host="localhost", port=free_port())
    return keyring, keyring.invite("party-1"), folder


@pytest.fixture
def coordinator(made, request, monkeypatch):
    """A coordinator's cell that listens, alone in its process as far as other cells know; what it was sent."""
    keyring, _kit, _folder = made
    monkeypatch.setattr(transport, "HANDSHAKE", 0.5)
    heard: list[tuple[str, str, int]] = []

    def receive(sender: str, topic: str, body: bytes) -> bytes:
        heard.append((sender, topic, len(body)))
        return b"done"

    bounds = getattr(request, "param", Bounds())
    cell = Cell(COORDINATOR, "localhost", keyring.port, keyring.credentials(), receive, bounds)
    cell.start()
    CoreCell.ALL_CELLS.pop(HUB)  # so that others in this process go through the network
    yield cell, heard
    cell.stop()


@pytest.fixture
def hub(coordinator, made):
    return made[0].port, coordinator[1]


@contextmanager
def connecting(kit, port: int, folder, name: str = "party-1"):
    """A site's cell that tries to connect with a kit's certificate."""
    site = Cell(name, "localhost", port, kit.unpack(folder / "tls"), lambda _sender, _topic, body: b"%d" % len(body))
    site.start()
    try:
        yield site
    finally:
        site.stop()


def streamed(kit, port: int, data: bytes) -> grpc.RpcError:
    """One frame on a connection with a kit's certificate; how the coordinator ended the stream."""
    files = [part.encode() for part in (kit.ca, kit.key, kit.certificate)]
    options = [("grpc.max_send_message_length", -1)]
    with grpc.secure_channel(f"localhost:{port}", grpc.ssl_channel_credentials(*files), options) as channel:
        call = StreamerStub(channel).Stream(iter([Frame(seq=1, data=data)]), timeout=20.0)
        with pytest.raises(grpc.RpcError) as ended:
            next(call)
        return ended.value


def test_a_connection_that_does_not_shake_hands_is_closed_soon(hub):
    port, _heard = hub
    silent = [socket.create_connection(("localhost", port), timeout=20.0) for _ in range(30)]
    for line in silent:
        with line:
            while line.recv(4096):
                pass


@pytest.mark.parametrize("coordinator", [Bounds(admit=lambda certificate: NO)], indirect=True)
def test_a_certificate_that_is_not_valid_is_refused_before_a_frame_is_read(hub, made, monkeypatch):
    (port, heard), (_keyring, kit, _folder) = hub, made
    read: list[object] = []
    monkeypatch.setattr(StreamConnection, "read_loop", lambda self, frames: read.extend(frames))
    ended = streamed(kit, port, b"x" * 1000)
    assert (ended.code(), ended.details()) == (grpc.StatusCode.UNAUTHENTICATED, NO)
    assert heard == read == []


@pytest.mark.parametrize("coordinator", [Bounds(admit=lambda certificate: NO)], indirect=True)
def test_a_site_whose_certificate_is_refused_knows_why(hub, made):
    (port, heard), (_keyring, kit, folder) = hub, made
    with connecting(kit, port, folder) as site:
        for _attempt in range(400):
            if site.refused is not None:
                break
            assert site.send(COORDINATOR, "hello", b"x", 0.05) is None
            sleep(0.05)
        assert site.refused == NO
    assert heard == []


@pytest.mark.parametrize("federation", ["the same", "another"])
def test_a_site_does_not_connect_by_another_sites_or_another_federations_certificate(hub, made, tmp_path, federation):
    (port, heard), (_keyring, kit, _folder) = hub, made
    if federation == "another":
        kit = Keyring.make(tmp_path / "keys", federation="hearts", host="localhost", port=port).invite("party-2")
    with connecting(kit, port, tmp_path, "party-2") as site:
        for _attempt in range(20):
            assert site.send(COORDINATOR, "hello", b"x", 0.1) is None
    assert heard == []


def broken(_certificate: bytes) -> str | None:
    raise OSError(24, "Too many open files", "/srv/keys/federation.json")


@pytest.mark.parametrize("coordinator", [Bounds(admit=broken)], indirect=True)
def test_a_coordinator_that_cannot_look_a_certificate_up_says_try_later_and_no_path(hub, made):
    (port, _heard), (_keyring, kit, _folder) = hub, made
    ended = streamed(kit, port, b"x")
    assert ended.code() is grpc.StatusCode.UNAVAILABLE
    assert "try later" in ended.details()
    assert "/srv" not in ended.details()


def test_a_frame_that_is_too_large_is_refused_by_its_length(hub, made):
    (port, heard), (_keyring, kit, _folder) = hub, made
    ended = streamed(kit, port, bytes(transport.FRAME + 1))
    assert ended.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert heard == []


def test_a_message_larger_than_a_frame_goes_through_the_network_in_parts_both_ways(coordinator, made):
    (cell, heard), (keyring, kit, folder) = coordinator, made
    with connecting(kit, keyring.port, folder) as site:
        CoreCell.ALL_CELLS.pop("party-1")
        reply, deadline = None, monotonic() + 60
        while reply is None and monotonic() < deadline:
            sleep(0.05)
            reply = site.send(COORDINATOR, "reply", bytes(2 * transport.FRAME), 20.0)
        assert reply == b"done"
        assert cell.send("party-1", "ask", bytes(2 * transport.FRAME), 20.0) == b"%d" % (2 * transport.FRAME)
    assert heard == [("party-1", "reply", 2 * transport.FRAME)]


def most(_sender: str, topic: str) -> int:
    return 100 if topic == "hello" else 1000


@pytest.fixture
def ends():
    """A coordinator and a site without a line between them, parts of 64 bytes; what the coordinator heard."""
    heard: list[tuple[str, str, bytes]] = []

    def receive(sender: str, topic: str, body: bytes) -> bytes:
        heard.append((sender, topic, body))
        return b"done"

    port = free_port()
    both = [
        Cell(COORDINATOR, "localhost", port, None, receive, Bounds(most)),
        Cell("party-1", "localhost", port, None, lambda *_message: b""),
    ]
    for cell in both:
        cell._cell.running, cell._part = True, 64  # in one process cells need no connection
    yield *both, heard
    for cell in both:
        cell.stop()


def part(hub: Cell, id: str, at: int, size: int, body: bytes, topic: str = "reply", sender: str = "party-1") -> str:
    """What becomes of one part: "whole", "kept" or "dropped"."""
    headers = {
        MessageHeaderKey.ORIGIN: sender,
        MessageHeaderKey.DESTINATION: HUB,
        MessageHeaderKey.CHANNEL: CHANNEL,
        MessageHeaderKey.TOPIC: topic,
        PART_OF: [id, at, size],
    }
    message = Message(headers, body)
    message.set_prop(MessagePropKey.ENDPOINT, Endpoint(sender))
    reply = hub._received(message)
    if reply.get_header(MessageHeaderKey.RETURN_CODE) != ReturnCode.OK:
        return "dropped"
    return "whole" if reply.payload == b"done" else "kept"


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 128, 129, 1000])
def test_a_message_arrives_whole_whatever_its_size(ends, size):
    hub, site, heard = ends
    body = bytes(k % 251 for k in range(size))
    assert site.send(COORDINATOR, "reply", body, 5.0) == b"done"
    assert heard == [("party-1", "reply", body)]
    assert hub._unfinished == {}


@pytest.mark.parametrize(("topic", "size"), [("hello", 101), ("reply", 1001)])
def test_a_message_above_its_topics_limit_is_dropped_at_its_first_part(ends, topic, size):
    hub, site, heard = ends
    assert site.send(COORDINATOR, topic, bytes(size - 1), 5.0) == b"done"
    assert site.send(COORDINATOR, topic, bytes(size), 5.0) is None
    assert part(hub, "a", 0, size, b"x", topic) == "dropped"
    assert len(heard) == 1
    assert hub._unfinished == {}


def test_a_small_limit_holds_for_one_frame_too(ends):
    _hub, site, heard = ends
    site._part = 1000
    assert site.send(COORDINATOR, "hello", bytes(101), 5.0) is None
    assert heard == []


def test_parts_that_do_not_fit_each_other_are_dropped(ends):
    hub, _site, heard = ends
    for second in (
        ("b", 4, 8, b"efgh"),
        ("a", 5, 8, b"fgh"),
        ("a", 4, 9, b"efgh"),
        ("a", 4, 8, b"efghi"),
        ("a", 4, 8, b""),
    ):
        assert part(hub, "a", 0, 8, b"abcd") == "kept"
        assert part(hub, *second) == "dropped"
        assert hub._unfinished == {}
    assert part(hub, "a", 0, 8, b"abcd") == "kept"
    assert part(hub, "a", 4, 8, b"efgh", topic="hello") == "dropped"
    assert part(hub, "a", 4, 8, b"efgh") == "dropped"
    assert heard == []


def test_a_sender_has_one_message_under_way_and_disturbs_nobody_elses(ends):
    hub, _site, heard = ends
    assert part(hub, "a", 0, 8, b"abcd") == "kept"
    assert part(hub, "a", 0, 8, b"ABCD", sender="party-2") == "kept"
    assert part(hub, "b", 0, 6, b"123") == "kept"
    assert part(hub, "a", 4, 8, b"EFGH", sender="party-2") == "whole"
    assert part(hub, "b", 3, 6, b"456") == "whole"
    assert [body for _sender, _topic, body in heard] == [b"ABCDEFGH", b"123456"]


@pytest.mark.parametrize(
    "header", ["a", ["a", 0], ["a", 0, 8.0], [1, 0, 8], ["a", True, 8], ["a", -1, 8], {"a": 1}], ids=str
)
def test_a_part_that_does_not_say_what_it_is_of_is_dropped(ends, header):
    hub, _site, _heard = ends
    assert hub._joined("party-1", "reply", b"abcd", header) is None
    assert hub._unfinished == {}
