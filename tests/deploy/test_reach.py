"""Whom a site takes for its coordinator, over real TLS: only a server's certificate of its own federation, in time."""

import socket
import ssl
import threading
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from tacit.deploy import certificates as made
from tacit.deploy.keyring import Keyring
from tacit.deploy.preflight import NotThere, check_connection
from tacit.errors import PeerFailed


@pytest.fixture(scope="module")
def keyring(tmp_path_factory) -> Keyring:
    return Keyring.make(tmp_path_factory.mktemp("reach") / "keys", federation="hearts", host="localhost", port=8102)


@contextmanager
def listening(ca, certificate, key):
    """A server with this certificate that lets in whom the authority vouches for; the port that it listens at."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(ca)
    context.load_cert_chain(certificate, key)
    context.set_alpn_protocols(["h2"])

    def serve():
        try:
            visitor, _address = server.accept()
            with visitor, context.wrap_socket(visitor, server_side=True) as line:
                line.send(b"\0")
        except OSError:  # whoever came did not stay
            pass

    with socket.create_server(("localhost", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
    thread.join(10)


def coordinators(keyring, _folder):
    return keyring.folder / "coordinator.crt", keyring.folder / "coordinator.key"


def expired(keyring, folder, days=-1):
    """What a coordinator of this federation would have once its own time is over."""
    ca, ca_key = (keyring.folder / name for name in ("ca.pem", "ca.key"))
    key, begin = made.new_key(), made.now() + timedelta(days=days - 1)
    with pytest.MonkeyPatch.context() as then:
        then.setattr(made, "now", lambda: begin)
        certificate = made._signed(
            "coordinator",
            x509.DNSName("localhost"),
            ExtendedKeyUsageOID.SERVER_AUTH,
            key,
            made.read_certificate(ca.read_text()),
            made.read_key(ca_key.read_text()),
            begin + timedelta(days=1),
        )
    return written(folder, made.certificate_text(certificate), made.key_text(key))


def not_yet(keyring, folder):
    return expired(keyring, folder, days=3)


def another_sites(keyring, folder):
    """Another site's: of this federation, but for a client."""
    kit = keyring.invite("party-2")
    paths = kit.unpack(folder / "tls")
    return paths.certificate, paths.key


def another_federations(_keyring, folder):
    return coordinators(Keyring.make(folder / "keys", federation="hearts", host="localhost", port=8102), folder)


def written(folder, certificate, key):
    (folder / "c.crt").write_text(certificate)
    (folder / "c.key").write_text(key)
    return folder / "c.crt", folder / "c.key"


def test_the_coordinator_itself_is_reached(keyring, tmp_path):
    kit = keyring.invite("party-1")
    with listening(keyring.folder / "ca.pem", *coordinators(keyring, tmp_path)) as port:
        assert "both certificates are valid" in check_connection(replace(kit, port=port), 10.0)


@pytest.mark.parametrize(
    ("whose", "why"),
    [
        (expired, "certificate has expired"),
        (not_yet, "certificate is not yet valid"),
        (another_sites, "unsuitable certificate purpose"),
        (another_federations, "certificate"),
    ],
)
def test_nobody_else_is_taken_for_it(keyring, tmp_path, whose, why):
    kit = keyring.invite("party-1")
    with (
        listening(keyring.folder / "ca.pem", *whose(keyring, tmp_path)) as port,
        pytest.raises(PeerFailed, match=f"is not valid: .*{why}.*check this machine's clock") as refusal,
    ):
        check_connection(replace(kit, port=port), 10.0)
    assert not isinstance(refusal.value, NotThere)  # it is not waited for: a certificate does not mend


def test_a_kit_that_the_coordinator_does_not_know_is_told_so(keyring, tmp_path):
    stranger = Keyring.make(tmp_path / "other", federation="hearts", host="localhost", port=8102).invite("party-1")
    kit = replace(stranger, ca=(keyring.folder / "ca.pem").read_text())
    with (
        listening(keyring.folder / "ca.pem", *coordinators(keyring, tmp_path)) as port,
        pytest.raises(PeerFailed, match="refuses this kit's certificate"),
    ):
        check_connection(replace(kit, port=port), 10.0)


def test_nobody_at_all_may_still_come(keyring):
    kit = keyring.invite("party-1")
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(NotThere, match="There is no coordinator"):
        check_connection(replace(kit, port=port), 2.0)
