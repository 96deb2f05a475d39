"""Health over HTTP: the truth about the service, two addresses, one verb, and nobody can hold it up."""

import http.client
import json
import socket
import socketserver
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from tacit.deploy import health as module
from tacit.deploy import service_status
from tacit.deploy.health import Health
from tacit.deploy.service_status import SILENCE, Status
from tacit.errors import UsageError


@pytest.fixture
def status(tmp_path):
    status = Status(tmp_path, "party-1", "hearts")
    status.set(state="serving", round=3)
    return status


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    monkeypatch.setattr(module._Handler, "timeout", 1.0)


@pytest.fixture
def health(status):
    health = Health(status)
    health.start()
    yield health
    health.close()


def ask(health, path, verb="GET", body=None):
    connection = http.client.HTTPConnection("127.0.0.1", health.port, timeout=120)
    try:
        connection.request(verb, path, body=body)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def raw(health, content=b""):
    client = socket.create_connection(("127.0.0.1", health.port), timeout=120)
    client.sendall(content)
    return client


def test_a_service_at_work_is_well(health):
    code, body, headers = ask(health, "/health")
    assert code == 200
    assert json.loads(body)["status"] == "ok"
    assert json.loads(body)["state"] == "serving"
    assert headers["Content-Type"].startswith("application/json")
    assert headers["Server"] == "tacit"


def test_status_is_what_the_file_says(health, status, tmp_path):
    code, body, _headers = ask(health, "/status")
    told, read = json.loads(body), Status.read(tmp_path)
    assert code == 200
    assert {k: v for k, v in told.items() if k != "age"} == {k: v for k, v in read.items() if k != "age"}


@pytest.mark.parametrize(
    ("state", "code"),
    [("starting", 200), ("waiting", 200), ("paused", 200), ("done", 200), ("failed", 503), ("refused", 503)],
)
def test_health_follows_the_state(health, status, state, code):
    status.set(state=state)
    assert ask(health, "/health")[0] == code
    assert ask(health, "/status")[0] == 200


def test_a_service_that_has_fallen_silent_is_not_well(health, status, monkeypatch):
    late = datetime.now(UTC) + timedelta(seconds=SILENCE + 1)
    with monkeypatch.context() as later:
        later.setattr(
            service_status, "datetime", SimpleNamespace(now=lambda _zone: late, fromisoformat=datetime.fromisoformat)
        )
        assert ask(health, "/health")[0] == 503
    status.set()
    assert ask(health, "/health")[0] == 200


@pytest.mark.parametrize(
    "path", ["/", "/health/", "/health?x=1", "/status.json", "/../status.json", "/%2e%2e/etc/passwd"]
)
def test_everything_else_is_not_there(health, path):
    code, body, _headers = ask(health, path)
    assert code == 404
    assert json.loads(body) == {"error": "Not Found"}


@pytest.mark.parametrize(
    ("host", "code"),
    [
        *((own, 200) for own in (b"127.0.0.1:8103", b"localhost", b"LOCALHOST:1", b"[::1]:8103", b"[::1]")),
        *(
            (name, 421)
            for name in (b"evil.example:8103", b"127.0.0.1.evil.example", b"localhost@evil.example", b"", b"::1")
        ),
        (b"localhost\r\nHost: evil.example", 421),
    ],
)
def test_only_this_machine_by_its_own_name_is_answered(health, host, code):
    """A page elsewhere whose name is made to point here asks by that name."""
    with raw(health, b"GET /status HTTP/1.1\r\nHost: " + host + b"\r\n\r\n") as client:
        said = b"".join(iter(lambda: client.recv(4000), b""))
    assert said.startswith(f"HTTP/1.0 {code} ".encode())
    assert (b"party-1" in said) is (code == 200)


@pytest.mark.parametrize("verb", ["POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "<script>"])
def test_no_other_verb(health, verb):
    code, body, _headers = ask(health, "/health", verb=verb)
    assert code == 501
    assert verb.encode() not in body


def test_a_stalled_client_keeps_nobody_waiting(health, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 60.0)
    monkeypatch.setattr(module._Handler, "timeout", 60.0)
    with raw(health, b"GET /hea"):
        began = time.monotonic()
        assert ask(health, "/health")[0] == 200
        assert time.monotonic() - began < module.PATIENCE / 2


def test_a_server_that_hears_one_at_a_time_would_wait(status, monkeypatch):
    """The planted bug: what the test above would find."""
    monkeypatch.setattr(module._Server, "process_request", socketserver.BaseServer.process_request)
    health = Health(status)
    health.start()
    try:
        with raw(health, b"GET /hea"):
            began = time.monotonic()
            assert ask(health, "/health")[0] == 200
            assert time.monotonic() - began > module.PATIENCE / 2
    finally:
        health.close()


def test_a_client_that_sends_drop_by_drop_is_let_go_too(health):
    with raw(health) as client:
        began = time.monotonic()
        with suppress(OSError):
            while time.monotonic() - began < 100:
                client.sendall(b"x")
                time.sleep(0.1)
        assert time.monotonic() - began < 60


def test_a_crowd_is_bounded_and_passes(health, monkeypatch):
    monkeypatch.setattr(module, "MOST", 4)
    before = threading.active_count()
    crowd = [raw(health) for _ in range(20)]
    try:
        time.sleep(0.3)
        assert threading.active_count() - before <= 4
        answered, began = 0, time.monotonic()
        while answered != 200 and time.monotonic() - began < 60:
            time.sleep(module.PATIENCE)
            with suppress(OSError, http.client.HTTPException):  # turned away while the crowd is there
                answered = ask(health, "/health")[0]
        assert answered == 200
    finally:
        for client in crowd:
            client.close()


def test_it_closes_with_a_client_inside_and_the_port_is_free_again(status):
    health = Health(status)
    health.start()
    port = health.port
    with raw(health, b"GET /"):
        health.close()
        health.close()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    again = Health(status, port=port)
    again.start()
    again.start()
    assert ask(again, "/health")[0] == 200
    again.close()


@pytest.mark.parametrize("port", ["taken", 70_000, -1])
def test_a_port_that_cannot_be_had_is_one_sentence(status, health, port):
    with pytest.raises(UsageError, match="name another port"):
        Health(status, port=health.port if port == "taken" else port).start()


def test_nobody_is_told_on_the_terminal(health, capfd):
    ask(health, "/health")
    ask(health, "/nothing")
    raw(health, b"GET /").close()
    time.sleep(0.2)
    assert capfd.readouterr() == ("", "")
