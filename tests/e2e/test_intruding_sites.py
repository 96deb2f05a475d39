"""A site that was broken into meets a real coordinator: it spoils nothing for the others, and no run but its own.

It has its own kit and speaks over real connections.
"""

import json
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from intruders import Puppet, until
from nvflare.fuel.f3.cellnet.defs import CellChannel, CellChannelTopic
from services import Federation

from tacit.boundary.release import Kind
from tacit.boundary.wire import encode
from tacit.deploy import certificates
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.engine.cells import COORDINATOR
from tacit.engine.coordinator_channel import TAKEN
from tacit.engine.envelope import Address, answer_content, sign_message
from tacit.federation.messages import Answer

LONGER = """
seed = 7
[public]
scale = [1, 5]
catalogue = "items.csv"
[method]
name = "sgdmf"
factors = 3
rounds = 3000
local_steps = 1
sampling = 1.0
"""
PLAIN = """
[public]
scale = [1, 5]
catalogue = "items.csv"
[method]
name = "bias"
[engine]
timeout = 3
"""


@pytest.fixture
def coordinated(tmp_path):
    federation = Federation(tmp_path, PLAIN, parties=2)
    puppets: list[Puppet] = []

    def puppet(name: str, **how) -> Puppet:
        puppets.append(Puppet(Kit.read(tmp_path / f"{name}.kit"), tmp_path, **how))
        return puppets[-1]

    federation.puppet = puppet
    yield federation
    for one in puppets:
        one.close()
    federation.stop()


def log_of(federation) -> list[dict]:
    return [json.loads(line) for line in (federation.folder / "run" / "log.jsonl").read_text().splitlines()]


def test_a_site_that_poses_routes_and_forges_changes_nothing_for_the_others(coordinated):
    """Party-1 has its own certificate and does everything that it should not; party-2 and the run never notice."""
    up = coordinated.up("--wait", "60")
    victim = coordinated.join("party-2", "--non-private")
    intruder = coordinated.puppet("party-1")
    until(lambda: intruder.welcome == b"{}")
    until(lambda: any(line.get("peer") == "party-2" for line in log_of(coordinated)))
    until(lambda: any(topic == "offer" for topic, _content in intruder.seen))
    # in another's name, on its own connection: a hello that will not do would put party-2 out
    for body in (b"garbage", sign_message(Address("party-2", COORDINATOR, "hello"), {"start": "x"}, intruder.identity)):
        intruder.posing("party-2", COORDINATOR, "hello", body)
        intruder.posing("party-2", COORDINATOR, "reply", body)
    intruder.posing("party-2", COORDINATOR, CellChannelTopic.Bye, None, channel=CellChannel.CELLNET)
    # through the coordinator to another site, as itself and in the coordinator's name
    asked = sign_message(
        Address(COORDINATOR, "party-2", "end", intruder.run), {"about": "x", "why": "Go."}, intruder.identity
    )
    assert intruder.raw("party-2", "end", asked, timeout=0.3) is None
    # replies that are not its own, not signed by it, or about nothing
    offer = str(next(content for topic, content in intruder.seen if topic == "offer")["about"])
    assert intruder.reply(offer, {"users": 1}, key=Ed25519PrivateKey.generate()) is None
    assert intruder.reply(offer, {"users": 1}, sender="party-2") is None
    assert intruder.reply("nothing", {"users": 1}) == TAKEN
    for topic in ("shell", "offer", "ask"):
        assert intruder.raw(COORDINATOR, topic, b"x" * 100, timeout=0.3) is None
    assert intruder.raw(COORDINATOR, "reply", b"\x81\xa8__fobs__", timeout=0.3, PAYLOAD_ENCODING="fobs") is None
    # then it takes part like anybody, and falls silent: the run goes on without it
    intruder.act = intruder.honest()
    about = {str(content["about"]): (topic, dict(content)) for topic, content in intruder.seen}
    for topic, content in about.values():
        intruder._answer(topic, content)
    assert up.wait() == 0, up.err
    assert victim.wait() == 0, victim.err
    refused = [line for line in log_of(coordinated) if line["event"] == "refused"]
    assert [line for line in refused if line.get("peer") == "party-2"] == []


def answered(puppet, change):
    """An honest site but for one word: `change` makes another reply of the honest one to a topic."""
    honest = puppet.honest()

    def act(topic, content):
        reply = honest(topic, content)
        if topic == "ask":
            body = encode({"errors": np.ones(30, np.float32), "weights": np.ones(30, np.float32)})
            done = encode({"done": True})
            answer = Answer("party-1", "ok", Kind.SUM, body, 1)
            if content["step"] == "finish":
                answer = Answer("party-1", "ok", Kind.PUBLIC, done, 1)
            reply = answer_content(answer)
        return {**reply, **change.get(topic, {})}

    return act


NAN = encode({"errors": np.full(30, np.nan, np.float32), "weights": np.ones(30, np.float32)})
HUGE = encode({"errors": np.zeros(10_000_000, np.float32), "weights": np.ones(30, np.float32)})
#: What a site says instead, and the exit code of the coordinator.
LIES = {
    "an answer that is not a number": ({"ask": {"body": np.frombuffer(NAN, np.uint8)}}, 5),
    "an answer that is far too large": ({"ask": {"body": np.frombuffer(HUGE, np.uint8)}}, 5),
    "an answer in another's name": ({"ask": {"party": "party-2"}}, 5),
    "terms as an array": ({"begin": {"bound": np.ones(3, np.float32)}}, 5),
    "sizes below zero": ({"offer": {"users": -1}}, 5),
    "metrics that are not finite": ({"end": {"metrics": '{"metrics": {"mse": NaN}, "ratings": 1}'}}, 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_a_site_says_wrongly_ends_the_run_with_a_sentence_or_is_left_out(coordinator_of_one, lie):
    change, code = LIES[lie]
    federation, puppet = coordinator_of_one
    puppet.act = answered(puppet, change)
    up = federation.up("--wait", "60")
    assert up.wait() == code, up.err
    assert "Traceback" not in up.err
    if code:
        said = up.err.strip().splitlines()[-1]
        assert said.startswith("tacit: ")
        assert said.endswith(".")
    else:
        assert (federation.folder / "run" / "summary.json").exists()
        assert up.summary["metrics"] == {}


@pytest.fixture
def coordinator_of_one(tmp_path):
    federation = Federation(tmp_path, PLAIN, parties=1)
    puppet = Puppet(Kit.read(tmp_path / "party-1.kit"), tmp_path)
    yield federation, puppet
    puppet.close()
    federation.stop()


def test_kits_that_are_expired_early_foreign_replaced_or_revoked_open_nothing(coordinated, monkeypatch):
    folder, keyring = coordinated.folder, Keyring.open(coordinated.folder / "keys")
    for days, name in ((-3, "party-3"), (3, "party-4")):
        monkeypatch.setattr(certificates, "now", lambda days=days: datetime.now(UTC) + timedelta(days=days))
        monkeypatch.setattr(Keyring, "_check_time", lambda self: None)  # as if the operator's clock were wrong
        keyring.invite(name, days=1).write(folder / f"{name}.kit")
    monkeypatch.undo()
    other = Keyring.make(folder / "other", federation="other", host="localhost", port=keyring.port)
    other.invite("party-5").write(folder / "party-5.kit")
    (folder / "party-1.kit").rename(folder / "old.kit")
    keyring.invite("party-1").write(folder / "party-1.kit")
    keyring.revoke("party-2")
    up = coordinated.up("--wait", "60")
    coordinated.until(lambda: "Listening" in up.err)
    expected = {
        "party-3": "expired on",
        "party-4": "is valid from",
        "party-5": "is not valid",
        "old": "was replaced by a newer one",
        "party-2": "was revoked on",
    }
    joins = {name: coordinated.join(name, "--non-private", data="party-1.csv") for name in expected}
    for name, sentence in expected.items():
        assert joins[name].wait() == 5, (name, joins[name].err)
        last = joins[name].err.strip().splitlines()[-1]
        assert sentence in last, last
        assert "Traceback" not in joins[name].err
    # nor does another's kit under this name
    thief = Puppet(Kit.read(folder / "party-1.kit"), folder, cell_name="party-2", greet=False)
    time.sleep(1.0)
    assert thief.hello() is None
    thief.close()
    # a kit that somebody else has copied signs with another key than the one that was pinned
    first = coordinated.puppet("party-1", greet=False)
    until(lambda: first.hello() == b"{}")
    first.close()
    copy = coordinated.puppet("party-1", greet=False)
    until(lambda: copy.hello() is not None)
    assert json.loads(copy.welcome)["error"] == "TamperingFound"
    assert up.process.poll() is None


def test_a_site_that_is_revoked_in_the_middle_of_a_run_is_out_at_once(tmp_path):
    federation = Federation(tmp_path, LONGER)
    try:
        up = federation.up()
        sites = {name: federation.join(name, "--non-private") for name in federation.names}
        federation.until(lambda: federation.round() >= 3)
        federation.tacit("keys", "revoke", "keys", "party-2")
        assert sites["party-2"].wait() == 5
        assert "was revoked on" in sites["party-2"].err.strip().splitlines()[-1]
        assert up.wait() == 0, up.err
        assert [sites[name].wait() for name in ("party-1", "party-3")] == [0, 0]
        assert up.summary["rounds"] == 3000
    finally:
        federation.stop()
