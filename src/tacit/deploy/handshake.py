"""The handshake: a site's hello proves who it is, and the coordinator checks it.

A site proves that it holds its certificate's key, and sends its own signing key, its version and its clock; the first
signing key with a certificate is pinned.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

import numpy as np
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from tacit.boundary.wire import Value, reading
from tacit.deploy.certificates import SKEW, fingerprint, identity_text, read_key
from tacit.deploy.keyring import Keyring
from tacit.deploy.kit import Kit
from tacit.engine.envelope import open_message, unverified
from tacit.errors import BadMessage, PeerFailed

#: The reply to a hello that the coordinator cannot check now; its sender repeats it.
LATER = b'{"later": true}'
_CONTEXT = "tacit hello 1"

version = cache(metadata.version)  # a hello comes every two seconds


def hello_content(kit: Kit, identity: Ed25519PrivateKey, start: str, now: float | None = None) -> dict[str, Value]:
    """The content of a site's hello."""
    words: dict[str, Value] = {
        "start": start,
        "version": version("tacit"),
        "clock": round(time.time() if now is None else now, 3),
        "identity": identity_text(identity.public_key()),
        "certificate": kit.certificate,
    }
    proof = read_key(kit.key).sign(_proven(kit.name, words), ec.ECDSA(hashes.SHA256()))
    return {**words, "proof": np.frombuffer(proof, np.uint8)}


def check_hello(
    keyring: Keyring, name: str, message: bytes, to: str, now: float | None = None, joins: bool = True
) -> tuple[str, str]:
    """The start and the signing key in a valid hello; raises why it is refused, which the site is sent.

    A visitor (`joins` is False) is checked in the same way, and its signing key is not pinned.
    """
    with reading(name):
        look = unverified(message)
    identity, certificate = look.get("identity"), look.get("certificate")
    if type(identity) is not str or len(identity) != 64 or type(certificate) is not str:
        raise BadMessage(f"The hello of {name} is not valid; it was damaged or forged.")
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(identity))
        known = x509.load_pem_x509_certificate(certificate.encode())
        _run, content = open_message(message, key, name, to, "hello" if joins else "look")
        channel = known.public_key()
        assert isinstance(channel, ec.EllipticCurvePublicKey)
        channel.verify(content["proof"].tobytes(), _proven(name, content), ec.ECDSA(hashes.SHA256()))
    except (ValueError, KeyError, AttributeError, AssertionError, InvalidSignature, UnsupportedAlgorithm):
        raise BadMessage(f"The hello of {name} is not signed with its certificate's key.") from None
    clock = content["clock"]
    known_time = type(clock) in (int, float) and abs(clock) < 1e12
    if not known_time or not all(type(content[word]) is str for word in ("start", "version")):
        raise BadMessage(f"The hello of {name} is not valid; it was damaged or forged.")
    refusal = keyring.status_of(name, fingerprint(known))
    if refusal is not None:
        raise PeerFailed(refusal)
    away = float(clock) - (time.time() if now is None else now)
    if abs(away) > SKEW.total_seconds():
        raise PeerFailed(
            f"The clock of {name} is {abs(away) / 60:,.0f} minutes {'ahead' if away > 0 else 'behind'} the "
            "coordinator's; set both by the same time server and join again."
        )
    if content["version"] != version("tacit"):
        raise PeerFailed(
            f"{name} runs tacit {content['version'][:20]}, the coordinator {version('tacit')}; install the same."
        )
    if joins:
        keyring.enrol(name, identity, fingerprint=fingerprint(known))
    return content["start"], identity


def _proven(name: str, words: Mapping[str, Any]) -> bytes:
    parts = (name, *(words[word] for word in ("start", "version", "clock", "identity")))
    return "|".join((_CONTEXT, *map(str, parts))).encode()
