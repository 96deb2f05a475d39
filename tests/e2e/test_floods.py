"""Floods: connections that say nothing and messages that are too large cost a coordinator neither run nor memory."""

import resource
import socket
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from nvflare.fuel.f3.drivers.grpc.streamer_pb2 import Frame
from nvflare.fuel.f3.drivers.grpc.streamer_pb2_grpc import StreamerStub
from services import Federation

from tacit.deploy.kit import Kit
from tacit.engine.transport import FRAME

PLAIN = """
[public]
scale = [1, 5]
catalogue = "items.csv"
[method]
name = "bias"
"""
HALF_OPEN = 1500
LARGE = 200_000_000


@pytest.fixture
def federation(tmp_path):
    """Its processes start with the usual limit of 1,024 descriptors; this one may have more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * HALF_OPEN:
        pytest.skip("this machine allows too few descriptors for a flood")
    made = Federation(tmp_path, PLAIN, parties=2)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    yield made
    made.stop()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def listening(federation: Federation):
    """A coordinator that listens; from here on this process may open many files."""
    up = federation.up("--wait", "120")
    federation.until(lambda: "Listening" in up.err)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * HALF_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return up


def test_half_open_connections_of_one_address_keep_no_site_out_and_end_no_run(federation):
    up = listening(federation)
    with ExitStack() as flood:
        for _ in range(HALF_OPEN):
            flood.enter_context(socket.create_connection(("localhost", federation.port), timeout=60))
        sites = [federation.join(name, "--non-private") for name in federation.names]
        assert [site.wait(120) for site in sites] == [0, 0], [site.err for site in sites]
        assert up.wait(60) == 0, up.err
        assert "not admitted" not in up.err


def held(process) -> int:
    """The most bytes that a process has ever held."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def streamed(kit: Kit, size: int) -> grpc.StatusCode:
    """One frame on a connection with a kit's certificate; how the coordinator ended the stream."""
    files = [part.encode() for part in (kit.ca, kit.key, kit.certificate)]
    options = [("grpc.max_send_message_length", -1)]
    with grpc.secure_channel(f"localhost:{kit.port}", grpc.ssl_channel_credentials(*files), options) as channel:
        call = StreamerStub(channel).Stream(iter([Frame(seq=1, data=bytes(size))]), timeout=60.0)
        with pytest.raises(grpc.RpcError) as ended:
            next(call)
        return ended.value.code()


def test_a_large_message_of_a_stranger_is_not_held_whether_its_kit_is_valid_or_revoked(federation):
    valid, revoked = (Kit.read(federation.folder / f"party-{k}.kit") for k in (1, 2))
    federation.tacit("keys", "revoke", "keys", "party-2")
    up = listening(federation)
    before = held(up.process)
    assert streamed(revoked, FRAME // 2) is grpc.StatusCode.UNAUTHENTICATED
    assert streamed(revoked, LARGE) is grpc.StatusCode.UNAUTHENTICATED
    assert streamed(valid, LARGE) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert held(up.process) - before < LARGE / 4
    assert up.process.poll() is None, up.err
