"""A proxy's kit: for connecting to, with its own address, and refused where it would not do."""

import json

import pytest

from tacit.cli import proxy as command
from tacit.deploy import certificates as x509
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.deploy.site_run import proxy_line
from tacit.errors import BadMessage, PrivacyRefused, UsageError

AT = ("proxy.example.org", 8104)


@pytest.fixture
def keyring(tmp_path):
    return Keyring.make(tmp_path / "keys", federation="hearts", host="localhost", port=8102)


def test_a_proxys_kit_has_its_own_address_and_a_certificate_that_others_connect_to(keyring):
    assert keyring.proxy is None
    kit = keyring.invite("proxy", at=AT)
    assert (kit.host, kit.port) == keyring.proxy == AT
    assert x509.serves(x509.read_certificate(kit.certificate))
    assert not x509.serves(x509.read_certificate(keyring.invite("party-1").certificate))
    kit.check()
    keyring.revoke("proxy")
    assert keyring.proxy is None


@pytest.mark.parametrize("at", [("no host!", 8104), ("localhost", 0), ("localhost", 70_000)])
def test_an_impossible_address_is_refused_and_nobody_is_invited(keyring, at):
    with pytest.raises(UsageError, match="no address of a proxy"):
        keyring.invite("proxy", at=at)
    assert keyring.invited == ()


def test_only_a_proxy_has_an_address_and_only_with_tls(keyring, tmp_path):
    with pytest.raises(UsageError, match="party-1 is none"):
        keyring.invite("party-1", at=AT)
    bare = Keyring.make(tmp_path / "bare", federation="a", host="localhost", port=8102, insecure=True)
    with pytest.raises(UsageError, match="without --insecure"):
        bare.invite("proxy", at=AT)


def test_the_command_refuses_a_kit_that_nobody_could_connect_to(keyring, tmp_path):
    for name in ("party-1", "proxy"):  # a role named so, without an address
        keyring.invite(name).write(tmp_path / f"{name}.kit")
        with pytest.raises(UsageError, match="--role proxy --at"):
            command.read_proxy_kit(tmp_path / f"{name}.kit")
    keyring.invite("proxy", at=AT).write(tmp_path / "good.kit")
    assert command.read_proxy_kit(tmp_path / "good.kit").port == 8104


def test_the_key_of_reports_is_the_same_when_a_run_is_resumed_and_another_for_another_run(keyring):
    first, again, other = (keyring.report_key(run).private_bytes_raw() for run in ("run-1", "run-1", "run-2"))
    assert first == again != other


@pytest.mark.parametrize(
    "said",
    [None, "{}", "[]", "not json", json.dumps({"host": "a b", "port": 1, "key": "00" * 32}),
     json.dumps({"host": "a", "port": 1, "key": "00"}), json.dumps({"host": "a", "port": 2**20, "key": "00" * 32})],
)  # fmt: skip
def test_a_proxy_that_cannot_be_read_is_refused(keyring, tmp_path, said):
    with pytest.raises(BadMessage, match="damaged or forged"):
        proxy_line(said, keyring.invite("party-1"), tmp_path)


def test_a_site_without_tls_hands_no_reports_to_anybody(tmp_path):
    kit = Kit("party-1", "hearts", "localhost", 8102, True, "", "", "", "0" * 64)
    with pytest.raises(PrivacyRefused, match="needs TLS"):
        proxy_line("{}", kit, tmp_path)
