"""Hello: only whoever holds the certificate's key is let in, at the right time, with the right version, as himself."""

import shutil
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import version

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from one_site import keyring_of

from tacit.deploy import handshake as module
from tacit.deploy.certificates import SKEW, identity_text, read_certificate
from tacit.deploy.handshake import check_hello, hello_content
from tacit.deploy.keyring import Keyring
from tacit.engine.envelope import Address, sign_message
from tacit.errors import BadMessage, PeerFailed, TacitError, TamperingFound

OWN, OTHER = Ed25519PrivateKey.from_private_bytes(b"1" * 32), Ed25519PrivateKey.from_private_bytes(b"2" * 32)
NOW, LATE = 1_800_000_000.0, SKEW.total_seconds()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A keyring with two invited sites, as files, so that every test has a fresh one of the same."""
    folder = tmp_path_factory.mktemp("hello") / "keys"
    keyring = keyring_of(folder)
    return folder, {name: keyring.invite(name) for name in ("party-1", "party-2")}


@pytest.fixture
def kit(made):
    return made[1]["party-1"]


@pytest.fixture
def ring(made, tmp_path):
    shutil.copytree(made[0], tmp_path / "keys")
    return Keyring.open(tmp_path / "keys")


def message(kit, name="party-1", key=OWN, to="coordinator", topic="hello", now=NOW, **changes) -> bytes:
    said = {**hello_content(kit, key, "start-1", now), **changes}
    said = {word: value for word, value in said.items() if value is not None}
    return sign_message(Address(name, to, topic), said, key)


def refused(kind, ring, said, name="party-1", now=NOW, **terms) -> str:
    with pytest.raises(TacitError) as found:
        check_hello(ring, name, said, "coordinator", now=now, **terms)
    assert type(found.value) is kind
    assert "\n" not in str(found.value)
    return str(found.value)


def pinned(ring, name="party-1"):
    return next(one.identity for one in ring.invitations if one.name == name)


def test_who_holds_the_key_is_let_in_and_pinned(ring, kit):
    assert pinned(ring) is None
    found = check_hello(ring, "party-1", message(kit), "coordinator", now=NOW)
    assert found == ("start-1", identity_text(OWN.public_key()))
    assert pinned(ring) == identity_text(OWN.public_key())
    again = check_hello(ring, "party-1", message(kit), "coordinator", now=NOW)
    assert again == found


def test_another_signing_key_later_is_somebody_else(ring, kit):
    check_hello(ring, "party-1", message(kit), "coordinator", now=NOW)
    assert "another key" in refused(TamperingFound, ring, message(kit, key=OTHER))
    assert pinned(ring) == identity_text(OWN.public_key())


def test_who_only_looks_pins_nothing(ring, kit):
    looked = message(kit, key=OTHER, topic="look")
    assert check_hello(ring, "party-1", looked, "coordinator", now=NOW, joins=False)[0] == "start-1"
    assert pinned(ring) is None
    assert "for another party or another topic" in refused(BadMessage, ring, looked)
    assert "for another party or another topic" in refused(BadMessage, ring, message(kit), joins=False)
    check_hello(ring, "party-1", message(kit), "coordinator", now=NOW)


def test_a_certificate_without_its_key_is_not_enough(ring, made, kit):
    """A certificate travels in the open; the proof is made with its key."""
    mine, theirs = kit, made[1]["party-2"]
    stolen = message(theirs, certificate=mine.certificate)
    assert "not signed with its certificate's key" in refused(BadMessage, ring, stolen)
    assert pinned(ring) is None


def test_planted_a_proof_that_is_not_checked_would_be_noticed(ring, made, kit, monkeypatch):
    monkeypatch.setattr(module.ec, "EllipticCurvePublicKey", _Believes)
    mine, theirs = kit, made[1]["party-2"]
    real = read_certificate(mine.certificate)
    monkeypatch.setattr(module.x509, "load_pem_x509_certificate", lambda _pem: _Certificate(real))
    let_in = check_hello(ring, "party-1", message(theirs, certificate=mine.certificate), "coordinator", now=NOW)
    assert let_in == ("start-1", identity_text(OWN.public_key()))
    assert pinned(ring) is not None  # and from now on the thief is party-1


class _Believes:
    def verify(self, *_anything) -> None:
        pass


class _Certificate:
    """One whose key takes every proof."""

    def __init__(self, real) -> None:
        self._real = real

    def public_key(self):
        return _Believes()

    def __getattr__(self, name):
        return getattr(self._real, name)


@pytest.mark.parametrize("word", ["start", "version", "clock", "identity"])
def test_what_is_proven_cannot_be_changed(ring, kit, word):
    """A proof binds everything that is said beside it, and whose it is."""
    other = {"start": "start-2", "version": "9", "clock": NOW + 1, "identity": identity_text(OTHER.public_key())}
    key = OTHER if word == "identity" else OWN
    said = {**hello_content(kit, OWN, "start-1", NOW), word: other[word]}
    assert "key" in refused(BadMessage, ring, sign_message(Address("party-1", "coordinator", "hello"), said, key))


def test_a_hello_in_another_s_name_fails(ring, made):
    theirs = made[1]["party-2"]
    assert refused(BadMessage, ring, message(theirs, name="party-2"))
    assert "that of party-2" in refused(PeerFailed, ring, _said_by(theirs, "party-1"))
    assert pinned(ring) is None


def _said_by(kit, name: str) -> bytes:
    """A hello by whoever has a kit, in another's name, proven for it."""
    return message(replace(kit, name=name), name=name)


def test_a_hello_to_somebody_else_or_of_another_federation_does_not_pass(ring, kit, tmp_path):
    assert "for another party or another topic" in refused(BadMessage, ring, message(kit, to="other"))
    assert "for another party or another topic" in refused(BadMessage, ring, message(kit, topic="ask"))
    foreign = Keyring.make(tmp_path / "foreign", federation="minds", host="localhost", port=8103).invite("party-1")
    assert 'not made for the federation "hearts"' in refused(PeerFailed, ring, message(foreign))
    assert pinned(ring) is None


def test_a_message_that_was_changed_on_its_way_fails(ring, kit):
    said = bytearray(message(kit))
    for place in (3, 80, len(said) // 2, len(said) - 1):
        other = bytes(said[:place]) + bytes([said[place] ^ 1]) + bytes(said[place + 1 :])
        with pytest.raises(BadMessage):
            check_hello(ring, "party-1", other, "coordinator", now=NOW)
    for short in (b"", b"x" * 64, bytes(said[:100])):
        with pytest.raises(BadMessage):
            check_hello(ring, "party-1", short, "coordinator", now=NOW)
    assert pinned(ring) is None


@pytest.mark.parametrize("word", ["start", "version", "clock", "identity", "certificate", "proof"])
@pytest.mark.parametrize("value", [None, "", "soon", 7, 10**400, -1e300, True, np.zeros(3), np.zeros(3, np.uint8)])
def test_whatever_stands_in_a_hello_is_answered_with_one_sentence(ring, kit, word, value):
    """Also where a site proves what is not as agreed: it signs whatever it likes."""
    said = {**hello_content(kit, OWN, "start-1", NOW), word: value}
    if value is None:
        said.pop(word)
    elif word in ("start", "version", "clock"):
        proof = module.read_key(kit.key).sign(module._proven("party-1", said), module.ec.ECDSA(module.hashes.SHA256()))
        said["proof"] = np.frombuffer(proof, np.uint8)
    body = sign_message(Address("party-1", "coordinator", "hello"), said, OWN)
    if word == "start" and type(value) is str:  # whatever it calls its start
        assert check_hello(ring, "party-1", body, "coordinator", now=NOW)[0] == value
        return
    with pytest.raises(TacitError) as found:
        check_hello(ring, "party-1", body, "coordinator", now=NOW)
    assert "\n" not in str(found.value)
    assert pinned(ring) is None


@pytest.mark.parametrize(("away", "words"), [(LATE + 30, "behind"), (-LATE - 30, "ahead")])
def test_a_clock_that_is_off_is_told_either_way(ring, kit, away, words):
    said = message(kit)
    assert f"minutes {words} the coordinator's" in refused(PeerFailed, ring, said, now=NOW + away)
    assert pinned(ring) is None
    for fine in (LATE - 1, 1 - LATE):
        check_hello(ring, "party-1", said, "coordinator", now=NOW + fine)


def test_another_version_is_told(ring, kit, monkeypatch):
    monkeypatch.setattr(module, "version", lambda _name: "0.0.1")
    said = message(kit)
    monkeypatch.undo()
    text = refused(PeerFailed, ring, said)
    assert "runs tacit 0.0.1" in text
    assert version("tacit") in text
    assert pinned(ring) is None


def test_whoever_was_revoked_or_invited_anew_is_told(ring, made, kit):
    ring.invite("party-1")
    assert "replaced by a newer one" in refused(PeerFailed, ring, message(kit))
    ring.revoke("party-2")
    assert "revoked" in refused(PeerFailed, ring, message(made[1]["party-2"], name="party-2"), name="party-2")
    assert timedelta(seconds=LATE) == SKEW
