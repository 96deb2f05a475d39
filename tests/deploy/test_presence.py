"""Who is in, who is away, and who is not in any more: what the coordinator takes, tells, logs and shows of it."""

import json
import threading
from time import monotonic, sleep

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.deploy import coordinator_service as module
from tacit.deploy.admission import Admission
from tacit.deploy.coordinator_service import Coordinator
from tacit.deploy.handshake import hello_content
from tacit.deploy.keyring import Keyring
from tacit.deploy.logs import ServiceLog
from tacit.deploy.service_status import Status
from tacit.engine.coordinator_channel import SILENCE, TAKEN
from tacit.engine.envelope import Address, sign_message
from tacit.errors import PeerFailed

NAMES = ("party-1", "party-2")


class FakeCell:
    """A line at which nobody is."""

    def __init__(self, *_place) -> None:
        self.stopped = False

    def start(self) -> None:
        pass

    def send(self, *_message):
        return TAKEN

    def stop(self) -> None:
        self.stopped = True


class World:
    """A coordinator without a line, and what sites say to it."""

    def __init__(self, folder, listen=None) -> None:
        self.folder, self.told = folder, []
        self.keyring = Keyring.make(folder / "keys", federation="hearts", host="localhost", port=8102)
        self.kits = {name: self.keyring.invite(name) for name in NAMES}
        self.keys = {name: Ed25519PrivateKey.generate() for name in NAMES}
        self.status = Status(folder, "coordinator", "hearts")
        log = ServiceLog(folder, "coordinator")
        self.coordinator = Coordinator(self.keyring, "run-1", log, self.status, listen, self.told.append)
        self.coordinator.open()

    def hello(self, name: str) -> bytes:
        said = hello_content(self.kits[name], self.keys[name], "start")
        return self.coordinator._receive(name, "hello", self.sealed(name, "hello", said))

    def reply(self, name: str, about: str = "id") -> bytes:
        return self.coordinator._receive(name, "reply", self.sealed(name, "reply", {"about": about}, "run-1"))

    def sealed(self, name, topic, content, run="") -> bytes:
        return sign_message(Address(name, "coordinator", topic, run), content, self.keys[name])

    def silence(self, name: str) -> None:
        """As if nothing had been heard for a while."""
        self.coordinator.desk._peers[name].heard -= SILENCE + 1

    def events(self) -> list[tuple]:
        lines = map(json.loads, (self.folder / "log.jsonl").read_text().splitlines())
        return [(line["event"], line.get("peer")) for line in lines]

    def peer(self, name: str) -> str:
        return self.status.now()["peers"][name]["state"]

    def until(self, condition) -> None:
        deadline = monotonic() + 120
        while not condition():
            assert monotonic() < deadline, (self.told, self.events())
            sleep(0.01)


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Cell", FakeCell)
    monkeypatch.setattr(module, "LOOK", 0.02)
    world = World(tmp_path)
    yield world
    world.coordinator.close()


# -- not in any more ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["revoked", "invited anew"])
def test_a_reply_of_somebody_whose_invitation_has_ended_is_not_taken(world, way, monkeypatch):
    """It does not say hello any more, so nothing but its reply tells that it is there."""
    monkeypatch.setattr(Admission, "ended", lambda self: [])
    assert world.hello("party-2") == b"{}"
    assert world.reply("party-2") == TAKEN
    world.keyring.revoke("party-2") if way == "revoked" else world.keyring.invite("party-2")
    with pytest.raises(PeerFailed, match="The invitation of party-2 has ended"):
        world.reply("party-2")
    began = monotonic()
    assert world.coordinator.desk.settle("party-2", "ask", "id", lambda left: {}, 30.0) is None
    assert monotonic() - began < 20, "it goes on being asked"


def test_without_a_look_at_the_keyring_a_revoked_reply_is_taken(world, monkeypatch):
    """The planted bug: the test above can fail."""
    world.hello("party-2")
    pinned = world.keyring.identity_of("party-2")
    monkeypatch.setattr(Admission, "key", lambda self, name: pinned)
    world.keyring.revoke("party-2")
    assert world.reply("party-2") == TAKEN


def test_somebody_silent_whose_invitation_ends_is_not_waited_for(world):
    world.hello("party-2")
    replies = []
    settle = world.coordinator.desk.settle
    asking = threading.Thread(target=lambda: replies.append(settle("party-2", "ask", "id", lambda left: {}, 30.0)))
    asking.start()
    world.keyring.revoke("party-2")
    asking.join(120)
    assert replies == [None]
    assert any("party-2 is not in any more" in words for words in world.told)
    assert world.peer("party-2") == "absent"


def test_somebody_who_is_revoked_before_it_came_is_not_waited_for(world):
    world.hello("party-1")
    world.keyring.revoke("party-2")
    began = monotonic()
    with pytest.raises(PeerFailed, match="party-2 was waited for, and its invitation has ended"):
        world.coordinator.gather(NAMES, 60.0)
    assert monotonic() - began < 40


# -- away, and back ----------------------------------------------------------------------------------------------------


def test_who_goes_away_and_comes_back_is_told_logged_and_shown(world):
    for name in NAMES:
        world.hello(name)
    world.until(lambda: world.peer("party-2") == "connected")
    sleep(0.1)
    assert ("absent", "party-2") not in world.events()
    world.silence("party-2")
    world.until(lambda: world.peer("party-2") == "absent")
    assert world.told[-1] == "party-2 is away."
    assert world.events()[-1] == ("absent", "party-2")
    world.hello("party-2")
    world.until(lambda: world.peer("party-2") == "connected")
    world.until(lambda: world.told[-1] == "party-2 is back.")
    assert world.events().count(("connected", "party-2")) == 2
    assert world.peer("party-1") == "connected"


def test_it_is_told_until_when_somebody_is_waited_for(world):
    world.hello("party-2")
    settle = world.coordinator.desk.settle
    asking = threading.Thread(target=settle, args=("party-2", "ask", "id", lambda left: {}, 60.0))
    asking.start()
    world.until(lambda: world.coordinator.desk.patience("party-2") > 50)
    world.silence("party-2")
    world.until(lambda: any("party-2 is away; its answer is waited for until " in words for words in world.told))
    world.coordinator.desk.close()
    asking.join(120)
    assert not asking.is_alive()
    assert world.coordinator.desk.patience("party-2") == 0.0


def test_nobody_is_missed_once_the_run_is_over(world):
    world.hello("party-1")
    world.coordinator.end((), {}, {})
    world.silence("party-1")
    sleep(0.2)
    assert ("absent", "party-1") not in world.events()


# -- what is said and written ------------------------------------------------------------------------------------------


def test_the_end_of_a_run_is_logged_and_so_is_being_stopped_before(world):
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
def test_it_says_where_it_listens_and_where_sites_look_for_it(tmp_path, monkeypatch, listen, where):
    monkeypatch.setattr(module, "Cell", FakeCell)
    world = World(tmp_path, listen)
    with pytest.raises(PeerFailed, match="did not join within 0 seconds"):
        world.coordinator.gather(NAMES, 0.0)
    world.coordinator.close()
    assert world.told[0].startswith(f"Listening at {where} waiting for party-1, party-2")


def test_what_a_peer_says_does_not_command_the_terminal(world):
    world.coordinator._tell("party-1 refuses: \x1b[2J\nall is well")
    assert world.told[-1] == "party-1 refuses: [2J all is well"
