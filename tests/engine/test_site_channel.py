"""A site's channel: one message at a time, the newest of those that wait, the same reply to the same message."""

import threading
from time import monotonic, sleep

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.engine import site_channel as module
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import Address, open_message, read_failure, sign_message
from tacit.engine.site_channel import Handlers, SiteChannel
from tacit.errors import BadMessage, PrivacyRefused

COORDINATOR, SITE = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


class FakeCell:
    """The line to a coordinator that takes every reply, unless `away`."""

    def __init__(self, name, host, port, credentials, receive) -> None:
        self.receive, self.away = receive, False
        self.replies: list[tuple[str, dict]] = []
        self.tries = 0
        self.news = threading.Condition()

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def send(self, to, topic, body, timeout):
        assert (to, topic) == ("coordinator", "reply")
        _run, content = open_message(body, SITE.public_key(), "party-1", "coordinator", "reply")
        with self.news:
            self.tries += 1
            self.news.notify_all()
            if self.away:
                return None
            self.replies.append((content.pop("about"), content))
            self.news.notify_all()
        return TAKEN

    def wait(self, condition, seconds=120.0) -> bool:
        with self.news:
            return self.news.wait_for(condition, seconds)


class Site:
    """A channel on a fake cell, and what it was asked to do."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(module, "Cell", FakeCell)
        monkeypatch.setattr(module, "AGAIN", 0.02)
        self.seen, self.refused, self.after, self.most, self._now = [], [], [], 0, 0
        self.act = lambda content: {"did": content.get("what", "")}
        handlers = Handlers(self.handle, self.refused.append, lambda: self.after.append("replied"))
        self.channel = SiteChannel("party-1", "localhost", 1, None, SITE, COORDINATOR.public_key(), handlers)
        self.cell: FakeCell = self.channel._cell
        self.channel.open()

    def handle(self, topic, run, content):
        self._now += 1
        self.most = max(self.most, self._now)
        try:
            self.seen.append((topic, run, content.get("what")))
            return self.act(content)
        finally:
            self._now -= 1

    def told(self, about, topic="ask", key=COORDINATOR, to="party-1", sender="coordinator", start="", **content):
        words = {"about": about, "start": start or self.channel.start, "seconds": 60.0, **content}
        return self.cell.receive(sender, topic, sign_message(Address("coordinator", to, topic, "run-1"), words, key))

    def busy(self) -> threading.Event:
        """Asked for something that it is still doing; it ends when the event is set."""
        free = threading.Event()
        self.act = lambda content: {"did": content.get("what", ""), "free": free.wait(120)}
        self.told("id-1", what="1")
        while not self.seen:
            sleep(0.01)
        return free

    def replied(self, number: int) -> list[tuple[str, dict]]:
        assert self.cell.wait(lambda: len(self.cell.replies) >= number), (self.seen, self.cell.replies)
        return self.cell.replies


@pytest.fixture
def site(monkeypatch):
    made = Site(monkeypatch)
    yield made
    made.channel.close()


def test_a_message_is_taken_done_and_answered(site):
    assert site.told("id-1", what="one") == TAKEN
    assert site.replied(1) == [("id-1", {"did": "one"})]
    assert site.seen == [("ask", "run-1", "one")]
    until = monotonic() + 120
    while not site.after and monotonic() < until:
        sleep(0.01)
    assert site.after == ["replied"]


def test_the_same_message_again_gets_the_same_reply_and_is_not_done_again(site):
    number = iter(range(10))
    site.act = lambda content: {"number": next(number)}
    for count in (1, 2, 3):
        site.told("id-1")
        site.replied(count)
        sleep(0.05)
    assert site.cell.replies == [("id-1", {"number": 0})] * 3
    assert len(site.seen) == 1


def test_without_its_memory_the_same_message_is_done_twice(site, monkeypatch):
    """The test above can fail."""
    monkeypatch.setattr(
        SiteChannel, "_done", property(lambda self: ("", {"x": 1}), lambda self, value: None), raising=False
    )
    site.told("id-1")
    site.replied(1)
    sleep(0.05)
    site.told("id-1")
    site.replied(2)
    assert len(site.seen) == 2


def test_the_same_message_while_it_is_being_done_is_taken_and_not_done_again(site):
    free = site.busy()
    for _again in range(5):
        assert site.told("id-1") == TAKEN
    free.set()
    site.replied(1)
    sleep(0.1)
    assert len(site.seen) == 1
    assert len(site.cell.replies) == 1


def test_only_the_newest_of_those_that_wait_is_done_and_never_two_at_once(site):
    free = site.busy()
    for number in "2345":
        site.told(f"id-{number}", what=number)
    free.set()
    assert [about for about, _content in site.replied(2)] == ["id-1", "id-5"]
    sleep(0.1)
    assert [what for _topic, _run, what in site.seen] == ["1", "5"]
    assert site.most == 1


def test_a_step_whose_time_is_over_is_not_done_late(site):
    free = site.busy()
    site.told("id-2", what="stale", seconds=0.05)
    sleep(0.2)
    free.set()
    site.replied(1)
    site.told("id-3", what="fresh")
    site.replied(2)
    assert [what for _topic, _run, what in site.seen] == ["1", "fresh"]


@pytest.mark.parametrize("seconds", ["soon", True, None, "9" * 400, np.ones(3, np.float32), -1.0])
def test_a_time_limit_that_is_none_does_not_deafen_the_site(site, seconds):
    """A worker that died on it would leave a site that says hello for ever and does nothing."""
    site.told("id-1", seconds=seconds)
    site.told("id-2", what="still there")
    assert site.cell.wait(lambda: ("id-2", {"did": "still there"}) in site.cell.replies)


def test_a_reply_is_pushed_until_it_is_taken(site):
    site.cell.away = True
    site.told("id-1", what="one")
    assert site.cell.wait(lambda: site.cell.tries >= 4)
    assert site.after == []
    assert site.cell.replies == []
    site.cell.away = False
    assert site.replied(1) == [("id-1", {"did": "one"})]
    assert len(site.seen) == 1


def test_a_reply_that_nobody_takes_makes_way_for_what_is_newer(site):
    site.cell.away = True
    site.told("id-1", what="one")
    assert site.cell.wait(lambda: site.cell.tries >= 2)
    site.told("id-2", what="two")
    while len(site.seen) < 2:
        sleep(0.01)
    site.cell.away = False
    assert site.replied(1) == [("id-2", {"did": "two"})]


ATTACKS = {
    "another signer": {"key": Ed25519PrivateKey.generate()},
    "for another site": {"to": "party-2"},
    "from another site": {"sender": "party-2"},
    "unknown topic": {"topic": "shell"},
    "a topic of the coordinator's own": {"topic": "reply"},
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_what_is_not_the_coordinators_word_to_this_site_is_not_taken(site, attack):
    with pytest.raises(BadMessage):
        site.told("id-1", **ATTACKS[attack])
    assert [type(error) for error in site.refused] == [BadMessage]
    site.told("id-2", what="next")
    assert site.replied(1) == [("id-2", {"did": "next"})]
    assert len(site.seen) == 1


def test_what_was_meant_for_the_service_before_it_was_started_anew_is_not_taken(site):
    assert site.told("id-1", start="before") not in (TAKEN, None)
    sleep(0.05)
    assert site.seen == []


def test_an_error_is_the_reply_its_reasons_stay_at_home_and_the_site_goes_on(site):
    errors = iter([PrivacyRefused("User u17 spent it."), ZeroDivisionError("user u17"), RecursionError("user u17")])

    def fail(content):
        raise next(errors)

    site.act = fail
    for number in (1, 2, 3):
        site.told(f"id-{number}")
        site.replied(number)
    assert "u17" not in str(site.cell.replies)
    found = [read_failure(content, "party-1") for _about, content in site.cell.replies]
    assert [type(error).__name__ for error in found] == ["PrivacyRefused", "PeerFailed", "PeerFailed"]
    assert len(site.refused) == 2, "a mistake in the program leaves a trace at the site"


def test_closing_ends_the_worker_even_while_nobody_takes_the_reply(site):
    site.cell.away = True
    site.told("id-1")
    assert site.cell.wait(lambda: site.cell.tries >= 2)
    began = monotonic()
    site.channel.close()
    while any(thread.name == "tacit-site" for thread in threading.enumerate()) and monotonic() - began < 120:
        sleep(0.01)
    assert not any(thread.name == "tacit-site" for thread in threading.enumerate())
