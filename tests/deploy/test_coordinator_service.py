"""The coordinator's service: whom it admits and misses; its own problems harm nobody and reveal no path."""

import errno
import json
import resource
import threading
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from one_coordinator import NAMES, World
from one_site import offer_of, run_file

from tacit.deploy import handshake, site_service
from tacit.deploy.coordinator_service import FIRST
from tacit.deploy.handshake import LATER, Admission
from tacit.deploy.keyring import Keyring
from tacit.deploy.logs import ServiceLog
from tacit.deploy.service_status import Status
from tacit.deploy.site_service import Site
from tacit.engine.cells import LARGEST, raise_descriptor_limit
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import failure_content, open_message
from tacit.errors import DataError, PeerFailed, PrivacyRefused, TamperingFound, UsageError

READ = Path.read_text


@pytest.fixture
def world(tmp_path, monkeypatch):
    made = World(tmp_path, monkeypatch)
    yield made
    made.coordinator.close()


def no_descriptors(path, *arguments, **named):
    if path.name not in ("federation.json", "METADATA"):
        return READ(path, *arguments, **named)
    raise OSError(errno.EMFILE, "Too many open files", str(path))


def damage(world: World, monkeypatch) -> None:
    (world.folder / "keys" / "federation.json").write_text("{")


def exhaust(world: World, monkeypatch) -> None:
    handshake.version("tacit")  # as a working service has long done
    monkeypatch.setattr(Path, "read_text", no_descriptors)


@pytest.mark.parametrize("problem", [exhaust, damage])
def test_a_hello_is_answered_later_and_admitted_services_stay(world, monkeypatch, problem):
    assert world.hello() == b"{}"
    with monkeypatch.context() as patch:
        problem(world, patch)
        assert world.hello() == LATER
        _run, content = open_message(
            world.hello(topic="look"), world.coordinator_key.public_key(), "coordinator", "party-1", "look"
        )
        assert content["error"] == "PeerFailed"
        assert "try again later" in content["why"]
        assert "federation.json" not in content["why"]
    assert world.channel.start_of("party-1") == "start"
    assert world.channel.present() == {"party-1": True}


def test_waiting_for_sites_goes_on(world, monkeypatch):
    gathering = threading.Thread(target=world.coordinator.gather, args=(("party-1",), 60.0))
    with monkeypatch.context() as patch:
        exhaust(world, patch)
        gathering.start()
        gathering.join(0.2)
        assert gathering.is_alive()
    assert world.hello() == b"{}"
    gathering.join(30)
    assert not gathering.is_alive()


def test_the_first_to_join_is_offered_the_run_and_may_refuse_before_the_others_join(world):
    offer = replace(offer_of(run_file()), roster=NAMES)
    gathering = threading.Thread(target=world.coordinator.gather, args=(NAMES, 60.0, offer))
    gathering.start()

    def offers() -> int:
        return sum(one[:2] == ("party-1", "offer") for one in world.sent)

    try:
        world.hello("party-1")
        world.until(offers)
        assert world.channel.start_of("party-2") == ""  # nobody else is there
        refusal = PrivacyRefused("party-1 refuses: its budget does not cover this run.")
        world.reply("party-1", about=offer.hash, **failure_content(refusal, reveal=True))
        world.until(lambda: "party-1" in world.coordinator.refused)
        assert world.state_of("party-1") == "refused"
        assert world.reported[-1] == "party-1 refuses: its budget does not cover this run."
        world.hello("party-2")
        gathering.join(10)
        assert not gathering.is_alive()
        assert offers() == 1, "a party that has refused is not asked again"
    finally:
        world.hello("party-2")
        gathering.join(10)


class FakeChannel:
    """A channel to a coordinator with these replies."""

    start, refused = "start", None

    def __init__(self, *replies) -> None:
        self.replies = list(replies)

    def send(self, *_message, timeout):
        return self.replies.pop(0)


def greet(tmp_path, kit, channel) -> None:
    home = type("Home", (), {"kit": kit, "name": kit.name, "identity": Ed25519PrivateKey.generate()})()
    status = Status(tmp_path / "site", "party-1", "hearts")
    service = Site(home, ServiceLog(tmp_path / "site", "party-1"), status)
    service.greet(channel, 60.0, lambda: bool(channel.replies))


def test_a_site_that_is_answered_later_repeats_its_hello_and_is_not_connected_meanwhile(world, tmp_path, monkeypatch):
    monkeypatch.setattr(site_service, "BEAT", 0.0)
    channel = FakeChannel(LATER, b"{}", LATER, b"{}")
    greet(tmp_path, world.kits["party-1"], channel)
    assert channel.replies == []
    lines = (tmp_path / "site" / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["connected", "absent", "connected"]


def test_a_site_whose_certificate_is_refused_ends_and_reports_why(world, tmp_path):
    channel = FakeChannel(None, b"{}")
    channel.refused = "The invitation of party-1 was revoked on Monday; ask the operator for a new one."
    with pytest.raises(PeerFailed, match="does not admit this site: The invitation of party-1 was revoked"):
        greet(tmp_path, world.kits["party-1"], channel)


@pytest.mark.parametrize("kind", [UsageError, DataError, TamperingFound, PeerFailed, PrivacyRefused])
def test_why_a_run_failed_is_sent_unless_it_is_about_this_machines_files(world, kind):
    world.hello()
    giving_up = threading.Thread(target=world.coordinator.give_up, args=(("party-1",), kind('"/srv/run" is full.')))
    giving_up.start()
    world.until(lambda: world.sent)
    content = world.sent[-1][2]
    world.reply("party-1", about=content["about"], ended=True)
    giving_up.join(30)
    public = kind in (PeerFailed, PrivacyRefused)
    assert content["why"] == (
        '"/srv/run" is full.' if public else f"it failed ({kind.__name__}); see its own terminal."
    )


def test_only_replies_of_admitted_services_may_be_large(world):
    most, topics = world.coordinator._most, ("hello", "look", "reply", "else")
    assert [most("party-1", topic) for topic in topics] == [FIRST] * 4
    world.hello()
    assert [most("party-1", topic) for topic in topics] == [FIRST, FIRST, LARGEST, FIRST]


def test_a_revoked_or_unknown_certificate_is_refused_where_it_connects(world, tmp_path):
    admit, own = world.coordinator._admit, world.kits["party-1"].certificate.encode()
    assert admit(own) is None
    other = Keyring.make(tmp_path / "other", federation="other", host="localhost", port=8102).invite("party-1")
    assert "was not made for the federation" in admit(other.certificate.encode())
    world.keyring.revoke("party-1")
    assert "was revoked on" in admit(own)


def test_a_service_may_open_as_many_files_as_the_system_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        raise_descriptor_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] in (hard, 2**16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for unit in ("tacit-coordinator.service", "tacit-site.service"):
        text = (Path(__file__).parents[2] / "examples" / "deploy" / unit).read_text()
        assert "LimitNOFILE=65536" in text.splitlines()


@pytest.mark.parametrize("way", ["revoked", "invited anew"])
def test_a_reply_after_the_end_of_its_invitation_is_refused(world, way, monkeypatch):
    monkeypatch.setattr(Admission, "ended", lambda self: [])
    assert world.hello("party-2") == b"{}"
    assert world.reply("party-2") == TAKEN
    world.keyring.revoke("party-2") if way == "revoked" else world.keyring.invite("party-2")
    with pytest.raises(PeerFailed, match="The invitation of party-2 has ended"):
        world.reply("party-2")
    began = monotonic()
    assert world.request("party-2") is None
    assert monotonic() - began < 20, "it is still asked"


def test_planted_without_the_keyring_a_revoked_reply_is_taken(world, monkeypatch):
    world.hello("party-2")
    pinned = world.keyring.identity_of("party-2")
    monkeypatch.setattr(Admission, "key", lambda self, name: pinned)
    world.keyring.revoke("party-2")
    assert world.reply("party-2") == TAKEN


def test_a_silent_service_whose_invitation_ends_is_not_waited_for(world):
    world.hello("party-2")
    replies = []
    asking = threading.Thread(target=lambda: replies.append(world.request("party-2")))
    asking.start()
    world.keyring.revoke("party-2")
    asking.join(120)
    assert replies == [None]
    assert any("party-2 is no longer admitted" in sentence for sentence in world.reported)
    assert world.state_of("party-2") == "absent"


def test_a_site_that_is_revoked_before_it_joined_is_not_waited_for(world):
    world.hello("party-1")
    world.keyring.revoke("party-2")
    began = monotonic()
    with pytest.raises(PeerFailed, match="The invitation of party-2 ended before it joined"):
        world.coordinator.gather(NAMES, 60.0)
    assert monotonic() - began < 40


def test_an_absence_and_a_return_are_reported_logged_and_shown(world):
    for name in NAMES:
        world.hello(name)
    world.until(lambda: world.state_of("party-2") == "connected")
    sleep(0.1)
    assert ("absent", "party-2") not in world.events()
    world.silence("party-2")
    world.until(lambda: world.state_of("party-2") == "absent")
    assert world.reported[-1] == "party-2 is absent."
    assert world.events()[-1] == ("absent", "party-2")
    world.hello("party-2")
    world.until(lambda: world.reported[-1] == "party-2 is back.")
    assert world.state_of("party-2") == "connected"
    assert world.events().count(("connected", "party-2")) == 2
    assert world.state_of("party-1") == "connected"


def test_an_absence_is_reported_with_the_deadline_of_the_answer(world):
    world.hello("party-2")
    asking = threading.Thread(target=world.request, args=("party-2", 60.0))
    asking.start()
    world.until(lambda: world.channel.seconds_left("party-2") > 50)
    world.silence("party-2")
    world.until(lambda: any("party-2 is absent; waiting for its answer until " in one for one in world.reported))
    world.channel.close()
    asking.join(120)
    assert not asking.is_alive()
    assert world.channel.seconds_left("party-2") == 0.0


def test_absences_after_the_run_are_not_recorded(world):
    world.hello("party-1")
    world.coordinator.end((), {}, {})
    world.silence("party-1")
    sleep(0.2)
    assert ("absent", "party-1") not in world.events()


def test_the_end_of_a_run_and_a_stop_before_it_are_logged(world):
    world.coordinator.end((), {}, {})
    world.coordinator.done()
    world.coordinator.close()
    assert [event for event, _peer in world.events()] == ["done"]
    world.coordinator.turn_to("run-2")
    world.coordinator.close()
    assert [event for event, _peer in world.events()] == ["done", "stopping"]


@pytest.mark.parametrize(
    ("listen", "where"),
    [(None, "localhost:8102;"), ("0.0.0.0", "0.0.0.0:8102, which sites look for at localhost:8102;")],
)
def test_it_reports_where_it_listens_and_where_sites_look_for_it(tmp_path, monkeypatch, listen, where):
    world = World(tmp_path, monkeypatch, listen)
    with pytest.raises(PeerFailed, match="did not join within 0 seconds"):
        world.coordinator.gather(NAMES, 0.0)
    world.coordinator.close()
    assert world.reported[0].startswith(f"Listening at {where} waiting for party-1, party-2")
