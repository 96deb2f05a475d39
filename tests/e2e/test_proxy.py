"""`tacit proxy` as a process: complete, shuffled, refusing, forgetting, and not stopped by floods."""

import json
import resource
import socket
import ssl
from contextlib import ExitStack, closing
from dataclasses import replace
from http.client import HTTPSConnection
from pathlib import Path

import numpy as np
import pytest
from proxies import CONTEXT, KEY, LENGTH, PUBLIC, names, proxy_in, random_message, traces
from tests.secure.orders import check_independent

from tacit.deploy import certificates as x509
from tacit.deploy import proxy_client
from tacit.deploy.proxy_client import Absent
from tacit.errors import BadMessage, PeerFailed, PrivacyRefused
from tacit.secure.sealed_reports import Layout, binding, open_batch, seal
from tacit.secure.shuffler import BatchTerms, Closed, TooFew, UnknownBatch

TERMS = BatchTerms(CONTEXT, 3, LENGTH)
PATH = f"/batches/{CONTEXT}"


@pytest.fixture
def place(tmp_path):
    with proxy_in(tmp_path) as made:
        yield made


def opened(place, count=5, crowd=3):
    """A batch for so many devices; the coordinator's line."""
    for name in names(count):
        place.credentials(name)
    coordinator = place.coordinator()
    coordinator.open(replace(TERMS, crowd=crowd), names(count))
    return coordinator


def test_100_000_reports_of_1_000_devices_arrive_complete_and_in_an_order_of_their_own(tmp_path):
    """n = 100,000; each of three tests of the order raises a false alarm less than once in a million times."""
    devices, each = 1000, 100
    with proxy_in(tmp_path) as place:
        coordinator, numbers = opened(place, devices, 700), np.zeros((devices * each, LENGTH), np.uint8)
        numbers[:, :8] = np.arange(devices * each, dtype="<u8").view(np.uint8).reshape(-1, 8)
        messages = {name: numbers[k * each : (k + 1) * each].tobytes() for k, name in enumerate(names(devices))}
        assert all(place.send(messages, replace(TERMS, crowd=700)))
        batch = coordinator.collect(CONTEXT)
    order = np.ascontiguousarray(batch[:, :8]).view("<u8").ravel().astype(np.int64)
    assert not batch[:, 8:].any()
    check_independent(order, each)


def test_killed_in_mid_batch_it_forwards_nothing_partial_and_nobody_is_counted_twice(place):
    """Six devices seal; four have sent when the proxy is killed; all send the same bytes again."""
    rows = np.arange(6 * 8, dtype=np.uint8).reshape(6, 8)
    about = binding("run", CONTEXT)
    messages = {name: seal(row[None], PUBLIC, about).tobytes() for name, row in zip(names(6), rows, strict=True)}
    coordinator = opened(place, 6, 5)
    terms = replace(TERMS, crowd=5)
    assert all(place.send(dict(list(messages.items())[:4]), terms))
    place.service.kill()
    place.start()
    assert coordinator.collect(CONTEXT) is None  # not the four
    assert place.send(messages, terms) == [False] * 6  # it does not know the batch
    coordinator.open(terms, names(6))
    assert all(place.send(messages, terms))
    assert all(place.send(messages, terms))  # acknowledgements were lost, say
    found = open_batch(coordinator.collect(CONTEXT), KEY, about, 8)
    assert (found.repeated, found.unreadable) == (0, 0)
    np.testing.assert_array_equal(found.rows, rows)


def test_a_device_waits_for_a_proxy_that_is_away_and_then_gives_up(place):
    opened(place)
    place.service.kill()
    assert place.device("party-1", patience=0.5).send("party-1", TERMS, random_message(1)) is False
    with pytest.raises(Absent, match="does not answer"):
        place.line("party-1").request("GET", PATH)


# -- what is refused ------------------------------------------------------------------------------------------------


def one_sentence(kind, words, call):
    with pytest.raises(kind, match=words) as refused:
        call()
    text = str(refused.value)
    assert text.endswith(".")
    assert "\n" not in text


def test_every_malformed_or_repeated_message_is_refused_in_one_sentence(place):
    coordinator = opened(place)
    device = place.line("party-1")

    def post(body, line=device):
        return line.request("POST", f"{PATH}/reports", body)

    one_sentence(BadMessage, "no number of reports of 56 bytes", lambda: post(bytes(LENGTH + 1)))
    one_sentence(BadMessage, "no number of reports", lambda: post(b""))
    one_sentence(BadMessage, "4,096", lambda: post(bytes(LENGTH * 4097)))
    one_sentence(BadMessage, "not on the batch's list", lambda: post(bytes(LENGTH), place.line("party-9")))
    one_sentence(UnknownBatch, "No such batch", lambda: device.request("POST", f"/batches/{'cd' * 32}/reports", b"x"))
    one_sentence(BadMessage, "not one that this proxy answers", lambda: device.request("GET", "/etc/passwd"))
    one_sentence(BadMessage, "not one that this proxy answers", lambda: device.request("PUT", PATH, b"x"))
    message = random_message(2)
    assert json.loads(post(message)) == json.loads(post(message)) == {"taken": 2}
    one_sentence(BadMessage, "one message a batch", lambda: post(random_message(2)))
    one_sentence(TooFew, "1 devices sent their reports", lambda: coordinator.collect(CONTEXT))
    for name in ("party-2", "party-3"):
        post(random_message(1), place.line(name))
    assert len(coordinator.collect(CONTEXT)) == 4
    one_sentence(Closed, "closed", lambda: post(message))
    coordinator.forget(CONTEXT)
    one_sentence(UnknownBatch, "No such batch", lambda: post(message))


def test_an_oversized_message_is_refused_before_it_is_read(place):
    opened(place)
    size, before = 2**40, held(place)
    connection = place.line("party-1")._connection
    connection.putrequest("POST", f"{PATH}/reports")
    connection.putheader("Content-Length", str(size))
    connection.endheaders(bytes(2**16))
    answer = connection.getresponse()
    assert answer.status == 400
    assert "at most 4,194,304 bytes" in json.loads(answer.read())["why"]
    connection.close()
    assert held(place) - before < 2**24


def held(place) -> int:
    """The most bytes that the proxy's process has ever held."""
    lines = Path(f"/proc/{place.service.process.pid}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def test_only_the_coordinator_opens_and_collects(place):
    opened(place)
    device, table = place.line("party-1"), {**vars(TERMS), "devices": ["00" * 32] * 5}
    for call in (
        lambda: device.request("POST", "/batches", json.dumps(table).encode()),
        lambda: device.request("POST", f"{PATH}/shuffled"),
        lambda: device.request("DELETE", PATH),
    ):
        one_sentence(PrivacyRefused, "Only the federation's coordinator", call)


def test_a_stranger_is_refused_in_the_handshake(place):
    """Without a certificate, and with one of another authority; nothing of theirs is read."""
    opened(place)
    bare = ssl.create_default_context(cafile=str(place.folder / "keys" / "ca.pem"))
    bare.check_hostname = False
    connection = HTTPSConnection("localhost", place.port, context=bare, timeout=30)
    with closing(connection), pytest.raises((ssl.SSLError, OSError)):  # TLS 1.3: the first answer says so
        connection.request("POST", f"{PATH}/reports", bytes(LENGTH)) or connection.getresponse()
    key = x509.new_key()
    place.credentials("party-77", ca=(x509.authority("other", key, 30), key))
    one_sentence(PeerFailed, "does not answer", lambda: place.line("party-77").request("GET", PATH))


def test_a_device_sends_nothing_to_somebody_who_is_not_the_federations_proxy(tmp_path, place):
    """Another federation's proxy, which answers at the address that a lying coordinator has named."""
    (tmp_path / "other").mkdir()
    with proxy_in(tmp_path / "other") as other:
        place.port = other.port
        one_sentence(
            PrivacyRefused, "no certificate of this federation", lambda: place.line("party-1").request("GET", PATH)
        )


def test_a_revoked_or_replaced_kit_is_on_no_list(place):
    place.credentials("party-1")
    old = place.fingerprints["party-1"]
    coordinator = opened(place)
    place.fingerprints["party-1"] = "00" * 32  # what the keyring holds valid now
    fresh = replace(TERMS, context="cd" * 32)
    coordinator.open(fresh, names(5))
    assert old not in place.fingerprints.values()
    with pytest.raises(BadMessage, match="not on the batch's list"):
        place.device("party-1").send("party-1", fresh, random_message(1))


def test_a_proxy_with_a_crowd_of_its_own_opens_no_smaller_batch(tmp_path):
    with proxy_in(tmp_path, "--crowd", "4") as place:
        one_sentence(PrivacyRefused, "none of fewer than 4", lambda: opened(place, 5, 3))
        opened(place, 5, 4)


def test_a_device_asks_the_proxy_for_the_crowd_before_it_sends(place):
    opened(place, 5, 2)
    with pytest.raises(PrivacyRefused, match="reports of 2 devices, and the guarantee counts on 3"):
        place.device("party-1").send("party-1", TERMS, random_message(1))
    with pytest.raises(TooFew, match="0 devices"):
        place.coordinator().collect(CONTEXT)


# -- what it leaves behind ------------------------------------------------------------------------------------------


def test_nothing_it_writes_or_forwards_tells_a_device_an_address_or_a_time(place):
    coordinator, sent = opened(place), {name: random_message(2) for name in names(5)}
    assert all(place.send(sent, TERMS))
    with pytest.raises(BadMessage):
        place.line("party-1").request("POST", f"{PATH}/reports", b"wrong")
    raw = coordinator._line.request("POST", f"{PATH}/shuffled", most=2**20)
    rows = {message[k * LENGTH :][:LENGTH] for message in sent.values() for k in range(2)}
    forwarded = [raw[4:][k * LENGTH :][:LENGTH] for k in range(10)]
    assert len(raw) == 4 + 10 * LENGTH  # a length, and reports: there is no room for anything else
    assert set(forwarded) == rows
    coordinator.forget(CONTEXT)
    assert traces(place.written(), place) == []
    kept = {path.relative_to(place.folder / "state").as_posix() for path in (place.folder / "state").rglob("*")}
    assert kept <= {"log.jsonl", "lock", "tls", "tls/ca.pem", "tls/site.crt", "tls/site.key"}
    events = [json.loads(line) for line in (place.folder / "state" / "log.jsonl").read_text().splitlines()]
    assert [one["event"] for one in events] == ["starting", "serving", "refused", "sent"]  # none for what arrives


def test_planted_a_trace_is_noticed(place):
    opened(place)
    with (place.folder / "state" / "log.jsonl").open("a") as log:
        log.write('{"event": "received", "peer": "party-3"}\n')
    assert traces(place.written(), place) == ["party-3"]
    with (place.folder / "state" / "log.jsonl").open("a") as log:
        log.write(place.fingerprints["party-1"])
    assert len(traces(place.written(), place)) == 2


# -- floods ---------------------------------------------------------------------------------------------------------

HALF_OPEN = 1500


def test_half_open_connections_keep_nobody_out(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * HALF_OPEN:
        pytest.skip("this machine allows too few descriptors for a flood")
    with proxy_in(tmp_path) as place, ExitStack() as flood:
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * HALF_OPEN, hard))
        flood.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        for k in range(HALF_OPEN):
            connection = flood.enter_context(socket.create_connection(("localhost", place.port), timeout=60))
            if k % 3 == 0:
                connection.sendall(b"\x16\x03\x01\x02\x00\x01")  # the beginning of a handshake
        coordinator = opened(place)
        assert all(place.send({name: random_message(2) for name in names(5)}, TERMS))
        assert len(coordinator.collect(CONTEXT)) == 10
        assert place.service.process.poll() is None
        assert traces(place.written(), place) == []


def test_a_device_that_does_not_finish_its_message_keeps_nobody_out(place):
    coordinator = opened(place)
    slow = place.line("party-1")._connection
    slow.putrequest("POST", f"{PATH}/reports")
    slow.putheader("Content-Length", str(2 * LENGTH))
    slow.endheaders(bytes(LENGTH))  # half of it
    assert all(place.send({name: random_message(1) for name in names(5)[1:]}, TERMS))
    assert len(coordinator.collect(CONTEXT)) == 4
    slow.close()


def test_the_client_needs_neither_flare_nor_aiohttp():
    """A device's end is the standard library and cryptography."""
    import subprocess
    import sys

    blocked = "import sys; sys.modules.update(dict.fromkeys(('nvflare', 'aiohttp', 'grpc')))"
    done = subprocess.run([sys.executable, "-c", f"{blocked}; import {proxy_client.__name__}"], capture_output=True)
    assert done.returncode == 0, done.stderr


def test_what_was_packed_and_sealed_comes_out(place):
    reports = {"coordinate": np.arange(5, dtype=np.int32), "bit": np.array([0, 1, 0, 1, 1], np.int32)}
    layout, about = Layout.of(reports), binding("run", CONTEXT)
    coordinator, sealed = opened(place), seal(layout.pack(reports), PUBLIC, about)
    assert all(place.send({name: sealed[k].tobytes() for k, name in enumerate(names(5))}, TERMS))
    read = layout.unpack(open_batch(coordinator.collect(CONTEXT), KEY, about, layout.size).rows)
    assert sorted(zip(*(read[name].tolist() for name in reports), strict=True)) == [
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
        (4, 1),
    ]
