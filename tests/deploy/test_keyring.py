"""The coordinator's keyring: secret, whole, and always of one mind about who is invited; and its commands."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from one_site import keyring_of, mode, sentence

from tacit.cli import keys as commands
from tacit.deploy import keyring as keys
from tacit.deploy.certificates import identity_text, read_certificate
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.errors import BadMessage, PeerFailed, TamperingFound, UsageError

FILES = {"ca.key", "ca.pem", "coordinator.crt", "coordinator.key", "identity.key", "federation.json"}
ONE, OTHER = "1" * 64, "2" * 64


@pytest.fixture
def keyring(tmp_path) -> Keyring:
    return keyring_of(tmp_path / "keys")


def test_a_keyring_is_its_owner_s_alone(keyring):
    keyring.invite("party-1")
    assert mode(keyring.folder) == 0o700
    assert {path.name for path in keyring.folder.iterdir()} == FILES | {"lock"}
    assert {mode(path) for path in keyring.folder.iterdir()} == {0o600}


def test_it_is_the_same_when_opened(keyring):
    kit = keyring.invite("party-1")
    opened = Keyring.open(keyring.folder)
    assert opened == keyring
    assert (opened.federation, opened.host, opened.port, opened.insecure) == ("hearts", "localhost", 8102, False)
    assert identity_text(opened.identity.public_key()) == kit.coordinator
    assert opened.status_of("party-1", kit.fingerprint) is None
    assert {path.parent for path in vars(opened.credentials()).values()} == {keyring.folder}


def test_no_key_of_a_site_stays(keyring):
    kit = keyring.invite("party-1")
    body = "".join(kit.key.splitlines()[1:-1])
    everything = "".join((keyring.folder / name).read_text().replace("\n", "") for name in FILES)
    assert body not in everything
    assert kit.fingerprint in everything


def test_a_folder_with_keys_or_anything_else_is_left_alone(keyring, tmp_path):
    before = {path.name: path.read_bytes() for path in keyring.folder.iterdir()}
    assert "holds a federation's keys already" in sentence(UsageError, keyring_of, keyring.folder)
    assert {path.name: path.read_bytes() for path in keyring.folder.iterdir()} == before
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    assert "already exists" in sentence(UsageError, keyring_of, tmp_path / "full")
    assert "already exists" in sentence(UsageError, keyring_of, tmp_path / "full" / "thesis.txt")
    assert "No keys can be stored" in sentence(UsageError, keyring_of, tmp_path / "full" / "thesis.txt" / "keys")
    assert {path.name for path in tmp_path.iterdir()} == {"keys", "full"}


def test_keys_that_could_not_all_be_written_leave_nothing(tmp_path, monkeypatch):
    real = os.replace

    def full(part: Path, path: Path) -> None:
        if path.name == "federation.json":
            raise OSError(28, "No space left on device")
        real(part, path)

    monkeypatch.setattr(os, "replace", full)
    assert "No space left" in sentence(UsageError, keyring_of, tmp_path / "keys")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        ({"federation": " "}, "federation's name"),
        ({"federation": "♥" * 22}, "federation's name"),
        ({"host": "http://hearts.example.org"}, "is not a host"),
        ({"host": "localhost:8102"}, "is not a host"),
        ({"host": "localhost\n"}, "is not a host"),
        ({"port": 0}, "is not a port"),
        ({"days": 0}, "0 days"),
        ({"days": 10**9}, "days"),
    ],
)
def test_terms_that_cannot_be_meant_are_refused(tmp_path, terms, words):
    with pytest.raises(UsageError, match=words):
        keyring_of(tmp_path / "keys", **terms)
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_keyring_gets_one_sentence(keyring, tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        assert "tacit keys init" in sentence(UsageError, Keyring.open, place)


@pytest.mark.parametrize("name", sorted(FILES - {"federation.json"}))
def test_a_piece_that_is_gone_or_garbled_is_named(tmp_path, name):
    for k, harm in enumerate((Path.unlink, lambda path: path.write_text("nonsense"))):
        folder = keyring_of(tmp_path / f"keys-{k}").folder
        harm(folder / name)
        assert str(folder) in sentence(TamperingFound, Keyring.open, folder)


@pytest.mark.parametrize(
    "names", [["ca.key"], ["ca.pem"], ["coordinator.key"], ["coordinator.crt"], ["coordinator.key", "coordinator.crt"]]
)
def test_a_piece_of_another_federation_is_found(keyring, tmp_path, names):
    other = keyring_of(tmp_path / "other")
    for name in names:
        (keyring.folder / name).write_text((other.folder / name).read_text())
    assert "is damaged" in sentence(TamperingFound, Keyring.open, keyring.folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda record: record.pop("invitations") and None,
        lambda record: record.update(format="tacit keyring 2"),
        lambda record: record["invitations"][0].update(name="../party-1"),
        lambda record: record["invitations"][0].update(until="2030-01-01T00:00:00"),
        lambda record: record["invitations"][0].update(identity="x"),
    ],
)
def test_a_record_that_is_not_as_it_was_written_is_damaged(keyring, change):
    keyring.invite("party-1")
    path = keyring.folder / "federation.json"
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record) if "invitations" in record else "{")
    assert "federation.json" in sentence(TamperingFound, Keyring.open, keyring.folder)


@pytest.mark.parametrize("name", [".", "ca.key", "coordinator.key", "identity.key"])
@pytest.mark.parametrize("bits", [0o040, 0o004, 0o020])
def test_keys_that_others_could_read_are_not_used(keyring, name, bits):
    place = keyring.folder / name
    place.chmod(mode(place) | bits)
    assert "chmod -R go=" in sentence(UsageError, Keyring.open, keyring.folder)
    place.chmod(mode(place) & 0o700)
    assert Keyring.open(keyring.folder) == keyring


def test_keys_past_their_time_say_so(keyring, monkeypatch):
    end = read_certificate((keyring.folder / "ca.pem").read_text()).not_valid_after_utc
    for when, words in ((end + timedelta(seconds=1), "expired on"), (end - timedelta(days=400), "set the clock")):
        monkeypatch.setattr(keys.x509, "now", lambda when=when: when)
        assert words in sentence(UsageError, keyring.credentials)
        assert words in sentence(UsageError, keyring.invite, "party-1")
    assert keyring.invited == ()


def test_parties_come_in_their_order_and_roles_after_them(keyring):
    for name in ("proxy", "party-10", "decrypter-2", "party-9", "catalogue", "party-1", "decrypter-1"):
        keyring.invite(name)
    assert keyring.invited == ("party-1", "party-9", "party-10", "catalogue", "decrypter-1", "decrypter-2", "proxy")


@pytest.mark.parametrize(
    "name", ["", "party", "party-0", "party-01", "Party-1", "coordinator", "server", "../x", "a.b"]
)
def test_nobody_is_called_otherwise(keyring, name):
    assert "cannot be invited" in sentence(UsageError, keyring.invite, name)
    assert keyring.invited == ()


def test_a_certificate_is_good_for_its_name_until_it_is_revoked(keyring):
    kit, watching = keyring.invite("party-1"), Keyring.open(keyring.folder)
    assert watching.status_of("party-1", kit.fingerprint) is None
    assert watching.status_of("party-1", kit.fingerprint.upper()) is None
    assert "is that of party-1, not of party-2" in watching.status_of("party-2", kit.fingerprint)
    assert "was not made for" in watching.status_of("party-1", ONE)
    keyring.revoke("party-1")
    assert "was revoked on" in watching.status_of("party-1", kit.fingerprint)
    assert watching.invited == ()


def test_a_new_invitation_replaces_the_old_one(keyring):
    old = keyring.invite("party-1")
    new = keyring.invite("party-1")
    assert new.key != old.key
    assert "was replaced" in keyring.status_of("party-1", old.fingerprint)
    assert keyring.status_of("party-1", new.fingerprint) is None
    keyring.revoke("party-1")
    back = keyring.invite("party-1")
    assert keyring.invited == ("party-1",)
    assert keyring.status_of("party-1", back.fingerprint) is None
    assert "was revoked" in keyring.status_of("party-1", new.fingerprint)
    assert "was replaced" in keyring.status_of("party-1", old.fingerprint)


def test_an_expired_invitation_is_none(keyring):
    kit = keyring.invite("party-1")
    keyring.enrol("party-1", ONE)
    path = keyring.folder / "federation.json"
    record = json.loads(path.read_text())
    record["invitations"][0]["until"] = "2020-01-01T00:00:00Z"
    path.write_text(json.dumps(record))
    assert "expired on 1 January 2020" in keyring.status_of("party-1", kit.fingerprint)
    assert keyring.invited == ()
    assert keyring.identity_of("party-1") is None
    assert "no valid invitation" in sentence(PeerFailed, keyring.enrol, "party-1", ONE)


def test_only_what_is_invited_can_be_revoked_and_only_once(keyring):
    keyring.invite("party-1")
    assert 'Did you mean "party-1"?' in sentence(UsageError, keyring.revoke, "party-11")
    keyring.revoke("party-1")
    assert "revoked already" in sentence(UsageError, keyring.revoke, "party-1")


@pytest.fixture
def slow(monkeypatch) -> None:
    """Between reading the record and writing it there is time for others to come in."""
    quick = keys.read_record

    def read(folder: Path) -> object:
        record = quick(folder)
        time.sleep(0.003)
        return record

    monkeypatch.setattr(keys, "read_record", read)


@pytest.mark.usefixtures("slow")
def test_threads_that_invite_enrol_and_revoke_at_once_lose_nothing(keyring):
    def one(k: int) -> None:
        keyring.invite(f"party-{k}")
        keyring.enrol(f"party-{k}", f"{k:064x}")
        if k % 3 == 0:
            keyring.revoke(f"party-{k}")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(1, 31)))
    assert keyring.invited == tuple(f"party-{k}" for k in range(1, 31) if k % 3)
    assert [one.identity for one in keyring.invitations] == [f"{k:064x}" for k in range(1, 31)]


@pytest.mark.usefixtures("slow")
def test_without_the_lock_something_is_lost(keyring, monkeypatch):
    """The two tests above can fail."""
    monkeypatch.setattr(keys.fcntl, "flock", lambda file, how: None)
    with ThreadPoolExecutor(6) as pool:
        jobs = [pool.submit(keyring.invite, f"party-{k}") for k in range(1, 31)]
    assert any(job.exception() for job in jobs) or len(keyring.invited) < 30


def test_a_new_invitation_forgets_the_pin_and_a_revoked_one_has_none(keyring):
    keyring.invite("party-1")
    keyring.enrol("party-1", ONE)
    keyring.invite("party-1")
    assert keyring.identity_of("party-1") is None
    keyring.enrol("party-1", OTHER)
    assert identity_text(keyring.identity_of("party-1")) == OTHER
    keyring.revoke("party-1")
    assert keyring.identity_of("party-1") is None
    assert "no valid invitation" in sentence(PeerFailed, keyring.enrol, "party-1", OTHER)


def test_a_hello_by_an_old_certificate_pins_nothing_to_a_new_one(keyring):
    old, new = keyring.invite("party-1"), keyring.invite("party-1")
    assert "no valid" in sentence(PeerFailed, keyring.enrol, "party-1", ONE, fingerprint=old.fingerprint)
    assert keyring.identity_of("party-1") is None
    keyring.enrol("party-1", OTHER, fingerprint=new.fingerprint)
    assert identity_text(keyring.identity_of("party-1")) == OTHER


@pytest.mark.parametrize("identity", ["", "1" * 63, "1" * 65, "G" * 64, "A" * 64, "1" * 64 + "\n"])
def test_what_is_no_signing_key_is_not_pinned(keyring, identity):
    keyring.invite("party-1")
    assert "64 hexadecimal digits" in sentence(BadMessage, keyring.enrol, "party-1", identity)
    assert "no valid invitation" in sentence(PeerFailed, keyring.enrol, "party-2", ONE)


def said(capsys) -> dict:
    """The one JSON object on stdout."""
    text = capsys.readouterr().out
    assert "PRIVATE" not in text
    return json.loads(text)


def test_the_commands_as_json(tmp_path, capsys):
    folder, kits = tmp_path / "keys", tmp_path / "kits"
    commands.init(folder, "hearts", "localhost", 8102, 365, True, True)
    about = said(capsys)
    assert (about["federation"], about["insecure"], len(about["coordinator"])) == ("hearts", True, 64)
    commands.invite(folder, ["party-2", "party-1"], kits, 30, True)
    first, second = said(capsys)["invited"]
    assert (first["name"], first["kit"], first["replaced"]) == ("party-1", str(kits / "party-1.kit"), False)
    assert second["fingerprint"] == Kit.read(kits / "party-2.kit").fingerprint
    commands.invite(folder, ["party-1"], tmp_path / "again", 30, True)
    assert said(capsys)["invited"][0]["replaced"]
    commands.revoke(folder, "party-2", True)
    assert said(capsys)["state"] == "revoked"
    commands.show(folder, True)
    assert [(one["name"], one["state"], one["enrolled"]) for one in said(capsys)["invitations"]] == [
        ("party-1", "valid", False),
        ("party-2", "revoked", False),
    ]


def test_a_channel_without_tls_is_said_aloud_and_no_key_is(tmp_path, capsys):
    commands.init(tmp_path / "keys", "hearts", "localhost", 8102, 365, True, False)
    commands.invite(tmp_path / "keys", ["party-1"], tmp_path, 30, False)
    commands.show(tmp_path / "keys", False)
    text = capsys.readouterr().out
    assert text.count("INSECURE") == 3
    assert "tacit join party-1.kit --data" in text
    assert "PRIVATE" not in text
    assert Kit.read(tmp_path / "party-1.kit").insecure


def test_a_kit_in_the_way_ends_no_invitation(tmp_path, keyring):
    kit = keyring.invite("party-2")
    (tmp_path / "party-2.kit").write_text("the kit that was not handed over yet")
    for names in (["party-1", "party-2"], ["party-1", "nobody"], ["party-1", "party-1"], []):
        sentence(UsageError, commands.invite, keyring.folder, names, tmp_path, 30, False)
    assert keyring.invited == ("party-2",)
    assert keyring.status_of("party-2", kit.fingerprint) is None
    assert not (tmp_path / "party-1.kit").exists()
