"""A coordinator in trouble of its own says "try later": nobody is turned out for it, and no path of it is told."""

import errno
import json
import resource
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.deploy import coordinator_service as module
from tacit.deploy import handshake as hello_module
from tacit.deploy import site_service as site_module
from tacit.deploy.coordinator_service import FIRST, Coordinator
from tacit.deploy.handshake import LATER, hello_content
from tacit.deploy.keyring import Keyring
from tacit.deploy.logs import ServiceLog
from tacit.deploy.service_status import Status
from tacit.deploy.site_service import Site
from tacit.engine.cells import LARGEST, raise_descriptor_limit
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import Address, open_message, sign_message
from tacit.errors import DataError, PeerFailed, PrivacyRefused, TamperingFound, UsageError


class FakeCell:
    """A line at which nobody is."""

    def __init__(self, *_place) -> None:
        pass

    def start(self) -> None:
        pass

    def send(self, *_message):
        return TAKEN

    def stop(self) -> None:
        pass


class World:
    """A coordinator without a line, and one site that speaks to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keyring = Keyring.make(folder / "keys", federation="hearts", host="localhost", port=8102)
        self.kit, self.key = self.keyring.invite("party-1"), Ed25519PrivateKey.generate()
        self.coordinator_key = self.keyring.identity
        log, status = ServiceLog(folder, "coordinator"), Status(folder, "coordinator", "hearts")
        self.coordinator = Coordinator(self.keyring, "run-1", log, status)
        self.coordinator.open()

    def say(self, topic: str) -> bytes:
        words = hello_content(self.kit, self.key, "start")
        message = sign_message(Address("party-1", "coordinator", topic), words, self.key)
        return self.coordinator._receive("party-1", topic, message)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Cell", FakeCell)
    monkeypatch.setattr(module, "LOOK", 0.02)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    made = World(tmp_path)
    yield made
    made.coordinator.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


READ = Path.read_text


def no_descriptors(path, *arguments, **named):
    if path.name not in ("federation.json", "METADATA"):
        return READ(path, *arguments, **named)
    raise OSError(errno.EMFILE, "Too many open files", str(path))


def damage(world: World, monkeypatch) -> None:
    (world.folder / "keys" / "federation.json").write_text("{")


def exhaust(world: World, monkeypatch) -> None:
    hello_module.version("tacit")  # as a service at work has long done
    monkeypatch.setattr(Path, "read_text", no_descriptors)


TROUBLE = pytest.mark.parametrize("trouble", [exhaust, damage])


@TROUBLE
def test_a_hello_is_put_off_and_whoever_is_in_stays_in(world, monkeypatch, trouble):
    assert world.say("hello") == b"{}"
    with monkeypatch.context() as patch:
        trouble(world, patch)
        assert world.say("hello") == LATER
    assert "party-1" in world.coordinator._lobby.identities
    peer = world.coordinator.desk._peers["party-1"]
    assert (peer.start, peer.late) == ("start", False)


@TROUBLE
def test_whoever_looks_is_told_to_look_later_and_no_path(world, monkeypatch, trouble):
    trouble(world, monkeypatch)
    key = world.coordinator_key.public_key()
    _run, content = open_message(world.say("look"), key, "coordinator", "party-1", "look")
    assert content["error"] == "PeerFailed"
    assert "look again later" in content["why"]
    assert "federation.json" not in content["why"]


def test_waiting_for_sites_goes_on(world, monkeypatch):
    gathering = threading.Thread(target=world.coordinator.gather, args=(("party-1",), 60.0))
    with monkeypatch.context() as patch:
        exhaust(world, patch)
        gathering.start()
        gathering.join(0.2)
        assert gathering.is_alive()
    assert world.say("hello") == b"{}"
    gathering.join(30)
    assert not gathering.is_alive()


class FakeWindow:
    """A coordinator that has trouble at first."""

    start, refused = "start", None

    def __init__(self, *replies) -> None:
        self.replies = list(replies)

    def say(self, *_message, timeout):
        return self.replies.pop(0)


def served(tmp_path, kit, window) -> Site:
    home = type("Home", (), {"kit": kit, "name": kit.name, "identity": Ed25519PrivateKey.generate()})()
    status = Status(tmp_path / "site", "party-1", "hearts")
    service = Site(home, ServiceLog(tmp_path / "site", "party-1"), status)
    service._greet(window, 60.0, lambda: bool(window.replies))
    return service


def test_a_site_that_is_put_off_says_hello_again_and_is_not_in_meanwhile(world, tmp_path, monkeypatch):
    monkeypatch.setattr(site_module, "BEAT", 0.0)
    window = FakeWindow(LATER, b"{}", LATER, b"{}")
    served(tmp_path, world.kit, window)
    assert window.replies == []
    lines = (tmp_path / "site" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["connected", "absent", "connected"]


def test_a_site_whose_certificate_is_refused_ends_and_says_why(world, tmp_path):
    window = FakeWindow(None, b"{}")
    window.refused = "The invitation of party-1 was revoked on Monday; ask the operator for a new one."
    with pytest.raises(PeerFailed, match="does not let this site in: The invitation of party-1 was revoked"):
        served(tmp_path, world.kit, window)


# -- what others are told of a run that failed ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [UsageError, DataError, TamperingFound])
def test_why_a_run_failed_is_not_told_where_it_names_this_machines_files(world, monkeypatch, kind):
    told = []
    monkeypatch.setattr(world.coordinator, "_part", lambda names, why: told.append(why))
    world.coordinator.give_up(("party-1",), kind('"/srv/run/log.sqlite" cannot be written.'))
    assert told == [f"it failed ({kind.__name__}); its own terminal says why."]


@pytest.mark.parametrize("kind", [PeerFailed, PrivacyRefused])
def test_what_another_site_did_is_told(world, monkeypatch, kind):
    told = []
    monkeypatch.setattr(world.coordinator, "_part", lambda names, why: told.append(why))
    world.coordinator.give_up(("party-1",), kind("party-2 did not answer in time."))
    assert told == ["party-2 did not answer in time."]


def test_a_site_that_fails_names_no_file_of_its_own(world):
    policy = type("Policy", (), {"local": False})()
    home = type("Home", (), {"policy": policy, "name": "party-1"})()
    said = str(site_module._abroad(DataError('"/data/patients.csv" has no ratings.'), home))
    assert said == "party-1 failed (DataError); its own terminal says why."


# -- limits -----------------------------------------------------------------------------------------------------------


def test_only_somebody_who_is_in_may_send_much_and_only_replies(world):
    most = world.coordinator._most
    assert [most("party-1", topic) for topic in ("hello", "look", "reply", "else")] == [FIRST] * 4
    world.say("hello")
    assert [most("party-1", topic) for topic in ("hello", "look", "reply", "else")] == [FIRST, FIRST, LARGEST, FIRST]
    assert (
        len(
            sign_message(
                Address("party-1", "coordinator", "hello"), hello_content(world.kit, world.key, "s"), world.key
            )
        )
        < FIRST / 8
    )


def test_a_revoked_or_unknown_certificate_is_refused_where_it_connects(world, tmp_path):
    admit = world.coordinator._admit
    assert admit(world.kit.certificate.encode()) is None
    other = Keyring.make(tmp_path / "other", federation="other", host="localhost", port=8102).invite("party-1")
    assert "was not made for the federation" in admit(other.certificate.encode())
    world.keyring.revoke("party-1")
    assert "was revoked on" in admit(world.kit.certificate.encode())


def test_a_service_may_open_as_many_files_as_the_system_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] in (hard, 2**16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("unit", ["tacit-coordinator.service", "tacit-site.service"])
def test_the_units_raise_the_limit(unit):
    text = (Path(__file__).parents[2] / "examples" / "deploy" / unit).read_text()
    assert "LimitNOFILE=65536" in text.splitlines()
