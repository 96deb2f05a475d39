"""Every decoder of what peers send, fed with odd values and mutations.

Only Tacit's own errors may come out, each one short printable line that names the peer, within a second of CPU time.
"""

import json
import random

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from forgeries import ODD, damaged, each, mutated, one_sentence
from one_site import DATA, NAMES, home_of, keyring_of, offer_of, run_file

from tacit.boundary.release import Kind
from tacit.boundary.wire import decode, encode
from tacit.data.ratings import Feedback
from tacit.data.synthetic import demo
from tacit.deploy import preflight
from tacit.deploy.align import _list
from tacit.deploy.kit import Kit
from tacit.deploy.offer import Offer, SiteSizes, facts_among, facts_content, facts_of, read_facts
from tacit.deploy.policy import Policy
from tacit.deploy.site_run import SiteRun, read_named
from tacit.deploy.site_service import _table, check_welcome
from tacit.engine.call_log import CallLog
from tacit.engine.coordinator_channel import CoordinatorChannel, Flare
from tacit.engine.envelope import (
    SIGNATURE,
    Address,
    TimedRequest,
    _signed,
    answer_content,
    open_message,
    read_answer,
    sign_message,
)
from tacit.engine.site_channel import ANOTHER, TAKEN, Handlers, SiteChannel
from tacit.errors import PeerFailed, TacitError
from tacit.federation import Answer, Facts, Request
from tacit.federation.calls import Logged
from tacit.federation.dropout import Attendance
from tacit.methods import chosen
from tacit.partition import partition
from tacit.prepare import PreparedRun
from tacit.report.describe import sent_after, shared_metrics

KEY = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
OFFER = offer_of(run_file())
FEATURED = offer_of(run_file(public={"scale": [1, 5], "users": 48, "features": ["genres", "year"]}))
VERTICAL = offer_of(run_file(partition={"by": "item", "into": 3}, privacy=None))
FACTS = Facts.of(partition(demo(users=20, items=12, ratings=60), into=2), 7)
PREPARED = PreparedRun.of(*chosen({"name": "bias"}), FACTS)
FLOATS = np.zeros(12, np.float32)


@pytest.fixture
def draw():
    return random.Random(7)


# -- what sites send to the coordinator ---------------------------------------------------------------------------


def signed(body: bytes) -> bytes:
    return KEY.sign(_signed(body)) + body


def test_envelopes(draw):
    place = Address("party-1", "coordinator", "reply", "run-1")
    good = sign_message(place, {"about": "id", "done": True}, KEY)

    def read(message):
        return open_message(message, KEY.public_key(), "party-1", "coordinator", "reply")

    assert read(good) == ("run-1", {"about": "id", "done": True})
    for word in place.words:
        for value in ODD:
            if not isinstance(value, str) or value.isascii():
                message = signed(encode({**place.words, "about": "id", word: value}))
                one_sentence(lambda message=message: read(message), "party-1")
    for _ in range(500):
        body = damaged(draw, good[SIGNATURE:])
        one_sentence(lambda body=body: read(signed(body)), "party-1")
        one_sentence(lambda body=body: read(body), "party-1")


class Said:
    """A channel, or a cell, at which everybody says the same."""

    def __init__(self, content) -> None:
        self.content = content

    def request(self, *_asked):
        return self.content

    def send(self, name, _topic, message, _timeout):
        content = decode(message[SIGNATURE:])
        self.channel.replied(name, content["about"], dict(self.content))
        return TAKEN


ANSWER = answer_content(Answer("party-1", "ok", Kind.PUBLIC, encode({"done": True}), 1, "", "", ""))


@pytest.mark.parametrize("change", [{"party": 5}, {"status": np.zeros(2)}, {"kind": "x"}, {"head": 7}, {"body": "x"}])
def test_where_answers_may_be_left_out_a_bad_one_is_and_the_run_goes_on(change):
    """So it is in a secure sum; what is left out is noted under its sender's name."""
    engine, rejected = Flare(Said({**ANSWER, **change}), ["party-1"], 1.0), {}
    line = PREPARED.federation(engine)._messenger
    request = Request("bias", PREPARED.bound, "finish", 1, 0, encode({"biases": FLOATS}))
    assert line.send({"party-1": request}, Attendance.full(), rejected=rejected) == []
    assert list(rejected) == ["party-1"]
    assert "party-1" in rejected["party-1"]
    engine.close()


def test_replies_that_tell_of_a_failure(draw):
    for content in each(draw, {"error": "PeerFailed", "why": "It is full."}, 100):
        cell = Said(content)
        cell.channel = channel = CoordinatorChannel(cell, KEY, "run-1")
        channel.connected("party-1", "a")
        if "error" in content:
            reply = channel.request("party-1", "ask", "id", lambda _left: {}, 5.0)
            assert isinstance(reply, TacitError)
            assert "party-1" in str(reply)
            assert str(reply).isprintable()


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "keys"
    keyring = keyring_of(folder)
    kit = keyring.invite("party-1")
    return keyring, kit


def test_what_sites_say_of_themselves(draw):
    good = SiteSizes(16, DATA.item_ids, 0, 0)
    others = {name: SiteSizes(16, DATA.item_ids) for name in NAMES[1:]}
    for offer in (OFFER, VERTICAL):
        for content in each(draw, good.content(), 150):
            found = one_sentence(lambda content=content: SiteSizes.of(content, "party-1"), "party-1")
            if isinstance(found, SiteSizes):
                one_sentence(lambda offer=offer, told=found: facts_among(offer, {"party-1": told, **others}))


def test_metrics_that_sites_tell(draw):
    good = json.dumps({"metrics": {"mse": 1.0, "ndcg@10": 0.3}, "users": 9, "ratings": 30})
    told = [*ODD, good.replace("1.0", "1e308"), good.replace("9", str(10**400)), good.replace("ndcg@10", "ndcg@<b>")]
    told += [damaged(draw, good.encode()).decode(errors="ignore") for _ in range(300)]
    for metrics in told:
        replies = {"party-1": {"metrics": metrics}, "party-2": {"metrics": good}}
        found, _notes = shared_metrics(replies, 2)
        json.dumps(found, allow_nan=False)
        if not isinstance(metrics, str) or "\ud800" not in metrics:
            sent_after(replies)


# -- what the coordinator sends to sites --------------------------------------------------------------------------


def facts_from(offer):
    sizes = {name: SiteSizes(16, DATA.item_ids) for name in NAMES}
    return facts_content(facts_of(offer, sizes, Feedback.EXPLICIT)), lambda content: read_facts(offer, content)


OFFERS = {"horizontal": OFFER, "vertical": VERTICAL, "features": FEATURED}
REQUEST = TimedRequest(Request("bias", "p", "finish", 1, 0, encode({"biases": FLOATS})), 5.0)
TAGS = {"list": np.arange(96, dtype=np.uint8).reshape(3, 32)}
#: By name: a good message, what reads it, and who is named in an error.
READ = {
    **{
        f"offer, {n}": (o.content(), lambda content: Offer.of("run-1", content), "coordinator")
        for n, o in OFFERS.items()
    },
    **{f"facts, {n}": (*facts_from(o), "coordinator") for n, o in OFFERS.items()},
    "request": (REQUEST.content(), TimedRequest.of, "coordinator"),
    "answer": (ANSWER, read_answer, ""),
    "tags": (TAGS, lambda content: _list(content, "party-1", 3), "party-1"),
}


@pytest.mark.parametrize("name", READ)
def test_contents(draw, name):
    good, read, who = READ[name]
    assert not isinstance(one_sentence(lambda: read(good)), TacitError)
    for content in each(draw, good, 200):
        one_sentence(lambda content=content: read(content), who)


def test_alignment(draw, tmp_path):
    part = SiteRun(home_of(tmp_path, policy=Policy(non_private=True)), "run-1", VERTICAL.content())
    count = len(part.data.people)
    part.align({"stage": "first"})
    again = {"stage": "again", "owner": "party-2", "list": np.arange(64, dtype=np.uint8).reshape(2, 32)}
    rows = {"stage": "rows", "count": count, "rows": np.arange(count, dtype=np.int64)}
    for good in (again, rows):
        for content in each(draw, good, 20):
            if not all(np.array_equal(content.get(name), value) for name, value in good.items()):
                one_sentence(lambda content=content: part.align(content), slow=2.0)


def test_words_of_the_coordinator(draw):
    good = json.dumps({"party-1": "0" * 64})
    for said in [*ODD, *(damaged(draw, good.encode()).decode(errors="ignore") for _ in range(200))]:
        one_sentence(lambda said=said: read_named(said, "keys"), "coordinator")
        assert isinstance(one_sentence(lambda said=said: _table(said, {})), dict)
        one_sentence(lambda said=said: check_welcome(str(said).encode(errors="ignore")), "coordinator")


def test_pushes(monkeypatch):
    monkeypatch.setattr("tacit.engine.site_channel.Cell", lambda *_terms: None)
    public, ignore = KEY.public_key(), lambda *_told: {}
    channel = SiteChannel("party-1", "localhost", 1, None, KEY, public, Handlers(ignore, ignore, ignore))
    for value in ODD:
        if not isinstance(value, str) or value.isascii():
            message = sign_message(
                Address("coordinator", "party-1", "ask", "run-1"), {"about": "id", "start": value}, KEY
            )
            assert one_sentence(lambda message=message: channel.receive("coordinator", "ask", message)) == ANOTHER


def test_looks(draw, federation, monkeypatch, tmp_path):
    _keyring, kit = federation
    good = {**OFFER.content(), "clock": 1.8e9, "version": "1", "pinned": ""}
    coordinator = Kit(**{**vars(kit), "coordinator": KEY.public_key().public_bytes_raw().hex(), "insecure": True})
    said = {}

    class Line:
        refused = None

        def __init__(self, *_terms) -> None: ...

        def start(self) -> None: ...

        def stop(self) -> None: ...

        def send(self, *_message):
            return sign_message(Address("coordinator", "party-1", "look", "run-1"), said, KEY)

    monkeypatch.setattr(preflight, "Cell", Line)
    monkeypatch.setattr(preflight, "hello_content", lambda *_terms: {})
    shown = [{**good, name: value} for name in ("clock", "version", "pinned") for value in ODD]
    for content in [*shown, *(mutated(draw, good) for _ in range(20))]:
        if all(not isinstance(value, str) or "\ud800" not in value for value in content.values()):
            said.clear()
            said.update(content)
            one_sentence(lambda: preflight.fetch_offer(coordinator, tmp_path, 1.0), "coordinator")


# -- a disk that is full ------------------------------------------------------------------------------------------


def test_a_full_disk_under_the_call_log_is_one_sentence(tmp_path):
    log = CallLog(tmp_path / "log.sqlite")
    log.keep("0/a", "r", Logged(b"x", (), {}))
    log._database.execute("pragma max_page_count = 1")
    error = one_sentence(lambda: log.keep("1/a", "r", Logged(b"x" * 10**6, (), {})), "log")
    assert type(error) is PeerFailed
    assert "full" in str(error)
    assert log.recall("1/a", "r") is None
    assert log.recall("0/a", "r") is not None
    log.close()
