"""A site's kit: whole, secret, and refused with one sentence where it does not fit; FLARE takes what is in it."""

import os
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID
from one_site import keyring_of, mode, sentence

from tacit import files
from tacit.deploy.certificates import key_text, new_key, read_certificate
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.errors import PeerFailed, TamperingFound, UsageError


@pytest.fixture(scope="module")
def keyring(tmp_path_factory) -> Keyring:
    return keyring_of(tmp_path_factory.mktemp("f") / "keys", days=30)


@pytest.fixture(scope="module")
def kit(keyring) -> Kit:
    return keyring.invite("party-1", days=10)


def test_a_kit_comes_back_as_it_was_and_only_its_owner_reads_it(kit, tmp_path):
    kit.write(tmp_path / "party-1.kit")
    assert Kit.read(tmp_path / "party-1.kit") == kit
    assert mode(tmp_path / "party-1.kit") == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["party-1.kit"]


def test_its_key_is_not_in_its_repr(kit):
    assert "PRIVATE" in kit.key
    assert "PRIVATE" not in repr(kit)


def test_a_file_that_is_there_is_left_alone(kit, tmp_path):
    (tmp_path / "party-1.kit").write_text("mine")
    assert "already exists" in sentence(UsageError, kit.write, tmp_path / "party-1.kit")
    assert (tmp_path / "party-1.kit").read_text() == "mine"
    assert "cannot be written" in sentence(UsageError, kit.write, tmp_path / "nowhere" / "party-1.kit")


def test_a_kit_that_could_not_be_written_leaves_nothing(kit, tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left"):
        kit.write(tmp_path / "party-1.kit")
    assert list(tmp_path.iterdir()) == []


def test_a_kit_that_others_could_read_is_closed(kit, tmp_path):
    kit.write(tmp_path / "party-1.kit")
    (tmp_path / "party-1.kit").chmod(0o644)
    assert Kit.read(tmp_path / "party-1.kit") == kit
    assert mode(tmp_path / "party-1.kit") == 0o600


@pytest.mark.parametrize(
    ("content", "kind", "words"),
    [
        (None, UsageError, "cannot be read: No such file"),
        (b"", UsageError, "is not a kit"),
        (b"\xff\xfe\x00", UsageError, "is not a kit"),
        (b"user,item,rating\n1,2,3\n", UsageError, "is not a kit"),
        (b'seed = 7\n[data]\nsource = "demo"\n', UsageError, "is not a kit"),
        (b"format = 1\n", UsageError, "is not a kit"),
        (b"#" * 100_000, UsageError, "is not a kit"),
        (b'format = "tacit kit 2"\n', UsageError, "of another version"),
        (b'format = "tacit kit 1"\n', TamperingFound, "is damaged"),
    ],
)
def test_what_is_no_kit_gets_one_sentence(tmp_path, content, kind, words):
    path = tmp_path / "party-1.kit"
    if content is not None:
        path.write_bytes(content)
    text = sentence(kind, Kit.read, path)
    assert words in text
    assert str(path) in text


@pytest.mark.parametrize("field", [f.name for f in fields(Kit)])
def test_a_change_anywhere_is_found(kit, tmp_path, field):
    kit.write(tmp_path / "party-1.kit")
    other = {"port": 8103, "insecure": True}.get(field, f"{getattr(kit, field)}x")
    replace(kit, **{field: other}).write(tmp_path / "other.kit")
    text, changed = (tmp_path / "party-1.kit").read_text(), (tmp_path / "other.kit").read_text()
    said, forged = (next(line for line in t.splitlines() if line.startswith("sha256")) for t in (text, changed))
    assert said != forged
    files.write_private(tmp_path / "party-1.kit", changed.replace(forged, said))
    with pytest.raises(TamperingFound, match="is damaged"):
        Kit.read(tmp_path / "party-1.kit")


def test_a_kit_cut_short_is_damaged_wherever_it_was_cut(kit, tmp_path):
    kit.write(tmp_path / "party-1.kit")
    text = (tmp_path / "party-1.kit").read_text()
    for part in range(1, 10):
        files.write_private(tmp_path / "cut.kit", text[: len(text) * part // 10])
        with pytest.raises(TamperingFound, match="is damaged"):
            Kit.read(tmp_path / "cut.kit")


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("name", "../../etc/passwd"),
        ("name", "server"),
        ("federation", "a\x1b[2Jb"),
        ("host", "evil host"),
        ("port", 70000),
        ("coordinator", "xyz"),
    ],
)
def test_a_right_sum_does_not_make_a_strange_value_right(kit, tmp_path, field, bad):
    replace(kit, **{field: bad}).write(tmp_path / "party-1.kit")
    with pytest.raises(TamperingFound, match="is damaged"):
        Kit.read(tmp_path / "party-1.kit")


def test_a_fresh_kit_is_fine_also_where_the_clock_is_five_minutes_off(kit):
    kit.check()
    kit.check(datetime.now(UTC) - timedelta(minutes=4, seconds=55))
    kit.check(datetime.now(UTC) + timedelta(minutes=5))


def test_a_clock_that_is_slow_is_told_apart_from_a_certificate_that_expired(kit):
    with pytest.raises(
        PeerFailed, match=r"valid from .* the clock of this machine is at 1 January 2020.* set the clock"
    ):
        kit.check(datetime(2020, 1, 1, tzinfo=UTC))
    end = read_certificate(kit.certificate).not_valid_after_utc
    kit.check(end)
    with pytest.raises(PeerFailed, match=rf"expired on {end.day} .*invite party-1 again") as refused:
        kit.check(end + timedelta(seconds=1))
    assert refused.value.exit_code == 5


def test_no_certificate_outlives_its_authority(keyring):
    kit = keyring.invite("party-9", days=3000)
    assert read_certificate(kit.certificate).not_valid_after_utc == read_certificate(kit.ca).not_valid_after_utc


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda kit, other, stranger: {"key": other.key}, "do not belong together"),
        (lambda kit, other, stranger: {"key": key_text(new_key())}, "do not belong together"),
        (lambda kit, other, stranger: {"ca": stranger.ca}, "not from the authority"),
        (lambda kit, other, stranger: {"certificate": stranger.certificate, "key": stranger.key}, "not from the auth"),
        (lambda kit, other, stranger: {"certificate": other.certificate, "key": other.key}, 'is for "party-2"'),
        (lambda kit, other, stranger: {"certificate": "nonsense"}, "cannot be read"),
        (lambda kit, other, stranger: {"key": key_text(Ed25519PrivateKey.generate())}, "cannot be read"),
    ],
)
def test_mixed_up_pieces_are_found(keyring, kit, tmp_path, change, words):
    # the stranger's federation has the same name, so that only signatures can tell
    elsewhere = keyring_of(tmp_path / "keys")
    mixed = replace(kit, **change(kit, keyring.invite("party-2"), elsewhere.invite("party-1")))
    assert words in sentence(PeerFailed, mixed.check)


def test_unpacked_pieces_are_its_owner_s_alone(kit, tmp_path):
    (tmp_path / "home").mkdir(mode=0o755)
    found = kit.unpack(tmp_path / "home")
    assert mode(tmp_path / "home") == 0o700
    assert {mode(path) for path in (tmp_path / "home").iterdir()} == {0o600}
    assert [p.name for p in (found.ca, found.certificate, found.key)] == ["ca.pem", "site.crt", "site.key"]
    pieces = [path.read_text() for path in (found.ca, found.certificate, found.key)]
    assert pieces == [kit.ca, kit.certificate, kit.key]
    assert kit.unpack(tmp_path / "home") == found  # again, over what is there
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot be unpacked"):
        kit.unpack(tmp_path / "file")


def value(certificate: x509.Certificate, extension: type) -> object:
    return certificate.extensions.get_extension_for_class(extension).value


def test_certificates_allow_what_they_are_for_and_no_more(keyring, kit):
    ca, site = read_certificate(kit.ca), read_certificate(kit.certificate)
    server = read_certificate((keyring.folder / "coordinator.crt").read_text())
    assert [value(c, x509.BasicConstraints).ca for c in (ca, site, server)] == [True, False, False]
    assert value(ca, x509.BasicConstraints).path_length == 0
    assert [value(c, x509.KeyUsage).key_cert_sign for c in (ca, site, server)] == [True, False, False]
    assert list(value(site, x509.ExtendedKeyUsage)) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    assert list(value(server, x509.ExtendedKeyUsage)) == both  # it is a client of the proxy
    assert value(site, x509.SubjectAlternativeName).get_values_for_type(x509.DNSName) == ["party-1"]
    assert value(server, x509.SubjectAlternativeName).get_values_for_type(x509.DNSName) == ["localhost"]
    assert value(site, x509.AuthorityKeyIdentifier).key_identifier == value(ca, x509.SubjectKeyIdentifier).digest


def test_an_address_is_named_as_one(tmp_path):
    for k, host in enumerate(["127.0.0.1", "::1"]):
        folder = keyring_of(tmp_path / f"keys-{k}", host=host).folder
        named = value(read_certificate((folder / "coordinator.crt").read_text()), x509.SubjectAlternativeName)
        assert [str(one) for one in named.get_values_for_type(x509.IPAddress)] == [host]
