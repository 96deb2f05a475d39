"""Who is admitted, absent or no longer admitted: what the coordinator accepts, reports, logs and shows."""

import threading
from time import monotonic, sleep

import pytest
from one_coordinator import NAMES, World

from tacit.deploy.handshake import Admission
from tacit.engine.coordinator_channel import TAKEN
from tacit.errors import PeerFailed


@pytest.fixture
def world(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    yield world
    world.coordinator.close()


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
