"""The coordinator's channel repeats lost messages, introduces restarted services to the run, and never hangs."""

import threading
from time import monotonic

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit.engine import coordinator_channel as module
from tacit.engine.coordinator_channel import TAKEN, CoordinatorChannel
from tacit.engine.envelope import failure_content, open_message
from tacit.errors import PrivacyRefused

KEY = Ed25519PrivateKey.generate()


class FakeCell:
    """Keeps what was pushed; `act` is called with each push and says what the other end says to it."""

    def __init__(self, act=None) -> None:
        self.pushed: list[tuple[str, str, str]] = []
        self.act = act or (lambda name, topic, content: None)

    def send(self, to, topic, message, timeout):
        run, content = open_message(message, KEY.public_key(), "coordinator", to, topic)
        assert run == "run-1"
        assert timeout > 0
        self.pushed.append((to, topic, content["about"]))
        return self.act(to, topic, content)


def made(act=None) -> tuple[CoordinatorChannel, FakeCell]:
    cell = FakeCell(act)
    return CoordinatorChannel(cell, KEY, "run-1"), cell


def says(seconds_left: float) -> dict:
    return {"left": seconds_left}


def soon(seconds: float, act) -> None:
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def answering(channel_of, content=None):
    """A service that takes every push and replies at once."""

    def act(name, topic, told):
        channel_of().replied(name, told["about"], {"said": told["about"], **(content or {})})
        return TAKEN

    return act


@pytest.mark.parametrize("acknowledged", [TAKEN, None])
def test_a_reply_is_the_result_even_if_it_overtakes_the_acknowledgement_or_that_is_lost(acknowledged):
    def act(name, topic, told):
        channel.replied(name, told["about"], {"done": True})
        return acknowledged

    channel, cell = made(act)
    channel.connected("party-1", "a")
    assert channel.request("party-1", "ask", "id-1", says, 120.0) == {"done": True}
    assert cell.pushed == [("party-1", "ask", "id-1")]


def test_what_does_not_get_there_is_pushed_again_and_the_time_left_shrinks(monkeypatch):
    monkeypatch.setattr(module, "AGAIN", 0.02)
    left = []

    def act(name, topic, told):
        left.append(told["left"])
        if len(left) < 3:
            return None
        channel.replied(name, told["about"], {"done": True})
        return TAKEN

    channel, cell = made(act)
    channel.connected("party-1", "a")
    assert channel.request("party-1", "ask", "id-1", says, 120.0) == {"done": True}
    assert cell.pushed == [("party-1", "ask", "id-1")] * 3
    assert left[0] > left[1] > left[2] > 0


def test_silence_ends_at_the_deadline_and_the_next_wait_is_short(monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.1)
    channel, _cell = made(lambda *_push: TAKEN)
    channel.connected("party-1", "a")
    began = monotonic()
    assert channel.request("party-1", "ask", "id-1", says, 0.4) is None
    assert 0.35 < monotonic() - began < 20
    began = monotonic()
    assert channel.request("party-1", "ask", "id-2", says, 30.0) is None
    assert monotonic() - began < 20, "one that was late is waited for at its full time again"
    monkeypatch.setattr(module, "GRACE", 30.0)
    assert channel.request("party-1", "ask", "id-3", says, 30.0) is None
    assert monotonic() - began < 25, "one that is away costs every step its grace"
    channel.connected("party-1", "a")
    soon(0.3, lambda: channel.replied("party-1", "id-3", {"back": True}))
    assert channel.request("party-1", "ask", "id-3", says, 120.0) == {"back": True}


def test_one_that_comes_in_time_is_asked_then():
    channel, _cell = made(answering(lambda: channel))
    soon(0.2, lambda: channel.connected("party-1", "a"))
    assert channel.request("party-1", "ask", "id-1", says, 120.0) == {"said": "id-1"}


def test_whoever_starts_anew_is_told_everything_again_in_order_and_only_once():
    silent = {"first": True}

    def act(name, topic, told):
        if topic == "ask" and silent.pop("first", False):
            soon(0.05, lambda: channel.connected("party-1", "b"))  # it took the request, died, and started anew
            return TAKEN
        channel.replied(name, told["about"], {"said": told["about"]})
        return TAKEN

    channel, cell = made(act)
    channel.connected("party-1", "a")
    for topic, about in (("offer", "o"), ("begin", "b")):
        assert channel.request("party-1", topic, about, says, 120.0)
        channel.introduce(topic, about, {"party-1": says})
    assert channel.request("party-1", "ask", "id-1", says, 120.0) == {"said": "id-1"}
    assert [about for _to, _topic, about in cell.pushed] == ["o", "b", "id-1", "o", "b", "id-1"]
    assert channel.request("party-1", "ask", "id-2", says, 120.0) == {"said": "id-2"}
    assert [about for _to, _topic, about in cell.pushed][6:] == ["id-2"]


def test_one_that_is_on_the_line_before_its_hello_is_not_asked_before_it_was_told(monkeypatch):
    """A push reaches the new process while the channel still knows the old one: it is told the offer first."""
    monkeypatch.setattr(module, "AGAIN", 0.02)
    taken = []

    def act(name, topic, told):
        if told["start"] != "b":
            channel.connected("party-1", "b")  # only now its hello arrives
            return b"another start"
        taken.append(told["about"])
        channel.replied(name, told["about"], {"said": told["about"]})
        return TAKEN

    channel, _cell = made(act)
    channel.connected("party-1", "a")
    channel.introduce("offer", "o", {"party-1": says})
    channel._services["party-1"].done["a"].add("o")
    assert channel.request("party-1", "ask", "id-1", says, 120.0) == {"said": "id-1"}
    assert taken == ["o", "id-1"]


def test_without_remembering_who_was_told_what_the_order_test_fails(monkeypatch):
    monkeypatch.setattr(CoordinatorChannel, "_introduced", lambda *_args: True)
    with pytest.raises(AssertionError):
        test_whoever_starts_anew_is_told_everything_again_in_order_and_only_once()


def test_one_that_starts_anew_and_refuses_what_came_before_is_late_in_the_end(monkeypatch):
    monkeypatch.setattr(module, "AGAIN", 0.02)

    def act(name, topic, told):
        channel.replied(name, told["about"], failure_content(PrivacyRefused("No more."), reveal=True))
        return TAKEN

    channel, cell = made(act)
    channel.introduce("offer", "o", {"party-1": says})
    channel.connected("party-1", "b")
    assert channel.request("party-1", "ask", "id-1", says, 0.3) is None
    assert {about for _to, _topic, about in cell.pushed} == {"o"}, "it was asked before it knew the terms"


def test_replies_that_nobody_waits_for_are_dropped():
    def act(name, topic, told):
        channel.replied(name, "id-0", {"stale": True})
        channel.replied("party-2", told["about"], {"of another": True})
        channel.replied(name, "", {"about nothing": True})
        channel.replied(name, told["about"], {"first": True})
        channel.replied(name, told["about"], {"second": True})
        return TAKEN

    channel, cell = made(act)
    channel.replied("party-1", "id-1", {"too early": True})
    channel.connected("party-1", "a")
    channel.connected("party-2", "a")
    assert channel.request("party-1", "ask", "id-1", says, 120.0) == {"first": True}
    channel.replied("party-1", "id-1", {"too late": True})
    channel.replied("party-1", "", {"nobody asked": True})
    cell.act = lambda *_push: TAKEN
    assert channel.request("party-1", "ask", "id-2", says, 0.2) is None


@pytest.mark.parametrize(
    ("there", "before", "closed"),
    [(True, True, False), (True, False, False), (True, False, True), (False, False, True), (False, True, True)],
)
def test_after_its_end_and_that_of_a_site_s_admission_nobody_is_waited_for(there, before, closed):
    channel, _cell = made(lambda *_push: TAKEN)
    if there:
        channel.connected("party-1", "a")
    end = channel.close if closed else lambda: channel.disconnected("party-1")
    began = monotonic()
    end() if before else soon(0.1, end)
    assert channel.request("party-1", "ask", "id-1", says, 60.0) is None
    assert closed or "party-1" not in channel.present()
    assert channel.wait_for(("party-1", "party-2"), 60.0 if closed else 0.0)
    assert monotonic() - began < 20


def test_waiting_for_everybody_names_who_is_missing():
    channel, _cell = made()
    soon(0.05, lambda: channel.connected("party-1", "a"))
    assert channel.wait_for(("party-1", "party-2"), 0.3) == ("party-2",)
    assert channel.wait_for(("party-1",), 5.0) == ()
    assert channel.present() == {"party-1": True}
    assert channel.present(within=0.0) == {"party-1": False}


def test_another_runs_channel_knows_who_is_there_and_none_of_the_messages():
    channel, _cell = made()
    channel.connected("party-1", "a")
    channel.disconnected("party-2")
    channel.introduce("offer", "o", {"party-1": says})
    cell = FakeCell()
    other = CoordinatorChannel(cell, KEY, "run-1")
    cell.act = answering(lambda: other)
    other.adopt(channel)
    assert other.present() == {"party-1": True}
    assert other.request("party-1", "ask", "id-1", says, 120.0) == {"said": "id-1"}
    assert cell.pushed == [("party-1", "ask", "id-1")]
