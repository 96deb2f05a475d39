"""X.509 certificates for a federation's TLS connections.

A federation has its own authority. It signs the coordinator's certificate, for its host, and one certificate per site,
whose common name is the site's name: FLARE requires it of the cell on that connection. Keys are ECDSA on P-256. A
certificate is valid from some minutes before it was made, because clocks differ.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from tacit.engine.cells import COORDINATOR
from tacit.errors import UsageError

#: By how much a site's clock may be behind the operator's.
SKEW = timedelta(minutes=5)
#: The longest that a certificate may be valid.
MOST_DAYS = 3650
#: What a certificate is for: to be connected to, and to connect.
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")


def is_host(host: str) -> bool:
    """Whether it is a name such as hearts.example.org, or an address."""
    return _is_address(host) or _HOST.fullmatch(host) is not None


def check_days(days: int) -> None:
    if not 1 <= days <= MOST_DAYS:
        raise UsageError(f"A certificate cannot be valid for {days} days; give 1 to {MOST_DAYS}.")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def new_key() -> EllipticCurvePrivateKey:
    return generate_private_key(SECP256R1())


def authority(federation: str, key: EllipticCurvePrivateKey, days: int) -> x509.Certificate:
    """The self-signed certificate of a federation's authority, which may sign no further authority."""
    subject = _subject("Tacit authority", federation)
    return (
        _builder(subject, subject, key, now() + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def coordinator_certificate(
    host: str, key: EllipticCurvePrivateKey, ca: x509.Certificate, ca_key: EllipticCurvePrivateKey
) -> x509.Certificate:
    """The coordinator's certificate, at `host` and towards a proxy, as long as the authority's."""
    where = x509.IPAddress(ipaddress.ip_address(host)) if _is_address(host) else x509.DNSName(host)
    return _signed(COORDINATOR, where, BOTH, key, ca, ca_key, ca.not_valid_after_utc)


def site_certificate(
    name: str,
    key: EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
    days: int,
    serves: bool = False,
) -> x509.Certificate:
    """A site's certificate, which ends with the authority's at the latest; others connect to one that `serves`."""
    end = min(now() + timedelta(days=days), ca.not_valid_after_utc)
    return _signed(name, x509.DNSName(name), BOTH if serves else BOTH[1:], key, ca, ca_key, end)


def now() -> datetime:
    """This moment, to the second, as in certificates."""
    return datetime.now(UTC).replace(microsecond=0)


def _signed(
    name: str,
    where: x509.GeneralName,
    purposes: Sequence[ObjectIdentifier],
    key: EllipticCurvePrivateKey,
    ca: x509.Certificate,
    ca_key: EllipticCurvePrivateKey,
    end: datetime,
) -> x509.Certificate:
    federation = ca.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _builder(_subject(name, str(federation)), ca.subject, key, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.SubjectAlternativeName([where]), critical=False)
        .add_extension(issuer, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePrivateKey, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() - SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _subject(name: str, federation: str) -> x509.Name:
    values = {NameOID.ORGANIZATION_NAME: federation, NameOID.COMMON_NAME: name}
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in values.items()])


def _usage(authority: bool) -> x509.KeyUsage:
    unused = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    never = dict.fromkeys((*unused, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority, **never)


def read_certificate(text: str) -> x509.Certificate:
    """One PEM certificate; ValueError if it is not one."""
    return x509.load_pem_x509_certificate(text.encode())


def read_key(text: str) -> EllipticCurvePrivateKey:
    """A PEM key for TLS; ValueError if it is not one."""
    key = _read_private(text)
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ValueError("not an elliptic-curve key")
    return key


def read_identity(text: str) -> Ed25519PrivateKey:
    """A PEM signing key; ValueError if it is not one."""
    key = _read_private(text)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError("not a signing key")
    return key


def serves(certificate: x509.Certificate) -> bool:
    """Whether others may connect to the holder of a certificate."""
    return BOTH[0] in certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value


def common_name(certificate: x509.Certificate) -> str:
    """A certificate's common name; empty if it has none."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def fingerprint(certificate: x509.Certificate) -> str:
    """SHA-256 of a certificate, hex."""
    return certificate.fingerprint(hashes.SHA256()).hex()


def belongs(key: EllipticCurvePrivateKey, certificate: x509.Certificate) -> bool:
    """Whether a certificate is for this key."""
    return key.public_key() == certificate.public_key()


def is_issued(certificate: x509.Certificate, ca: x509.Certificate) -> bool:
    """Whether this authority signed a certificate."""
    try:
        certificate.verify_directly_issued_by(ca)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _read_private(text: str) -> object:
    try:
        return serialization.load_pem_private_key(text.encode(), password=None)
    except (TypeError, UnsupportedAlgorithm) as error:  # it has a password, or is of an unknown kind
        raise ValueError(str(error)) from None


def certificate_text(certificate: x509.Certificate) -> str:
    """A certificate as PEM."""
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def key_text(key: EllipticCurvePrivateKey | Ed25519PrivateKey) -> str:
    """A private key as PEM, unencrypted."""
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def identity_text(identity: Ed25519PublicKey) -> str:
    """A public signing key as 64 hexadecimal digits."""
    return identity.public_bytes_raw().hex()
