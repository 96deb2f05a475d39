"""The proxy as a relay: who may post, read and write, and that everybody reads the same bytes."""

import hashlib
import json
import threading

import numpy as np
import pytest
from proxies import names, proxy_in, traces

from tacit.boundary.wire import decode
from tacit.deploy.proxy_client import Line
from tacit.deploy.relay_client import CoordinatorRelay
from tacit.errors import BadMessage, PrivacyRefused


@pytest.fixture
def place(tmp_path):
    with proxy_in(tmp_path) as made:
        yield made


def coordinator_line(place) -> Line:
    return place._kept(Line("localhost", place.port, place.keyring.credentials()))


def relay_of(place, receive=lambda _sender, _topic, body: body[::-1]) -> CoordinatorRelay:
    def connect():
        return coordinator_line(place)

    return CoordinatorRelay(connect, lambda: place.fingerprints, receive, lambda _sender, _topic: 1000)


def read(line, after=0):
    return decode(line.request("GET", f"/notices?after={after}", most=2**24))


def test_every_device_reads_the_same_bytes_also_after_the_proxy_was_killed(place):
    lines, relay = [place.line(name) for name in names(3)], relay_of(place)
    offer, ask = np.random.default_rng(0).bytes(1000), np.random.default_rng(1).bytes(2**20)

    def everybody_reads(message, after):
        found = [read(line, at) for line, at in zip(lines, after, strict=True)]
        assert {one["body"].tobytes() for one in found} == {message}
        return [int(one["number"]) for one in found]

    assert all(relay.post(name, "offer", offer) for name in names(3))
    after = everybody_reads(offer, [0, 0, 0])
    assert all(relay.post(name, "ask", ask) for name in names(3))
    after = everybody_reads(ask, after)
    place.service.kill()
    place.start()
    assert relay.post("party-1", "ask", ask)
    after = everybody_reads(offer, after)  # the board is complete again, and devices know what they have read
    everybody_reads(ask, after)
    relay.close()


def test_a_letter_arrives_under_the_name_in_its_certificate_and_gets_its_answer(place):
    line, heard = place.line("party-1"), []

    def receive(sender, topic, body):
        heard.append((sender, topic, body))
        return body[::-1]

    relay = relay_of(place, receive)
    relay.open()
    try:
        assert line.request("POST", "/letters/hello", b"abc") == b"cba"
        assert line.request("POST", "/letters/reply", b"x" * 1001) == b""  # longer than it reads
        assert heard == [("party-1", "hello", b"abc")]
    finally:
        relay.close()
    assert not traces(place.written(), place)


def test_many_devices_write_at_a_time(place):
    relay, answers = relay_of(place), {}
    lines = {name: place.line(name) for name in names(20)}
    relay.open()

    def write(name):
        answers[name] = lines[name].request("POST", "/letters/hello", name.encode())

    threads = [threading.Thread(target=write, args=(name,)) for name in lines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    relay.close()
    assert answers == {name: name.encode()[::-1] for name in lines}


def test_only_the_coordinator_posts_and_collects(place):
    line = place.line("party-1")
    for path in ("/notices/ask", "/notices", "/letters"):
        with pytest.raises(PrivacyRefused, match="Only the federation's coordinator"):
            line.request("POST", path, b"mine")


def test_what_cannot_be_read_is_refused(place):
    line, own = place.line("party-1"), coordinator_line(place)
    digest = hashlib.sha256(b"x").hexdigest()
    own.request("POST", "/notices/ask", b"x")
    for bad in (b"[]", b"{}", b"\xff", json.dumps({"digest": digest, "devices": ["party-1"]}).encode()):
        with pytest.raises(BadMessage):
            own.request("POST", "/notices", bad)
    with pytest.raises(BadMessage):
        own.request("POST", "/notices/align", b"x")
    with pytest.raises(BadMessage):
        line.request("GET", "/notices?after=none")
    with pytest.raises(BadMessage, match="has at most"):
        line.request("POST", "/letters/reply", b"x" * (2**20 + 1))
