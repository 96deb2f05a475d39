"""The handshake: a site's hello proves who it is, and the coordinator checks it, admits it, and knows who is present.

A site proves that it holds its certificate's key, and sends its own signing key, its version and its clock; the first
signing key with a certificate is pinned.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from datetime import datetime, timedelta
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
from tacit.deploy.keyring import OWN, Keyring
from tacit.deploy.kit import Kit
from tacit.deploy.logs import ServiceLog
from tacit.deploy.service_status import PeerState, Status
from tacit.engine.cells import COORDINATOR
from tacit.engine.coordinator_channel import CoordinatorChannel
from tacit.engine.envelope import Address, failure_content, open_message, sign_message, unverified
from tacit.errors import BadMessage, PeerFailed, TacitError, TamperingFound

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


class Admission:
    """The admitted services and their signing keys; `report` gets a sentence about each that comes, goes or is refused.

    Attributes
    ----------
    identities : by name of admitted services, their public signing keys
    offer : the content of the offer that visitors are shown
    """

    def __init__(self, keyring: Keyring, log: ServiceLog, status: Status, report: Callable[[str], None]) -> None:
        self._keyring, self._log, self._status, self._report = keyring, log, status, report
        self.identities: dict[str, str] = {}
        self.offer: Mapping[str, Value] | None = None
        self._present: dict[str, bool] = {}  # by name of admitted services, whether they were present at the last check
        self._refusals: dict[str, str] = {}  # by name, the latest refusal

    def hello(self, sender: str, body: bytes) -> tuple[bytes, str | None]:
        """The reply to a hello, and the start of the admitted service; None for one that is refused.

        Raises one of `OWN` where the coordinator itself has a problem.
        """
        try:
            start, identity = check_hello(self._keyring, sender, body, COORDINATOR)
        except OWN:
            raise
        except TacitError as error:
            self._log.warning("refused", peer=sender[:60], error=type(error).__name__)
            if self._refusals.get(sender) != str(error):
                self._refusals[sender] = str(error)
                self._report(f"{sender[:60]} is not admitted: {error}")
            self.identities.pop(sender, None)
            return json.dumps(failure_content(error, reveal=True)).encode(), None
        if sender not in self.identities:
            self._log.info("connected", peer=sender)
            self._report(f"{sender} has joined.")
            self._status.set(peers={sender: PeerState.CONNECTED})
        self.identities[sender] = identity
        return b"{}", start

    def look(self, sender: str, body: bytes, run: str) -> bytes:
        """The offer of a run for a site that does not join yet; the visit is not recorded."""
        content: Mapping[str, Value]
        try:
            check_hello(self._keyring, sender, body, COORDINATOR, joins=False)
            if self.offer is None:
                raise PeerFailed("The coordinator has no run to offer yet; try again later.")
            pinned = self._keyring.identity_of(sender)
            known = "" if pinned is None else identity_text(pinned)
            content = {**self.offer, "clock": time.time(), "version": version("tacit"), "pinned": known}
        except OWN:
            content = failure_content(PeerFailed("The coordinator cannot answer now; try again later."), reveal=True)
        except TacitError as error:
            content = failure_content(error, reveal=True)
        return sign_message(Address(COORDINATOR, sender, "look", run), content, self._keyring.identity)

    def key(self, name: str) -> Ed25519PublicKey:
        """The signing key of an admitted service, as long as its invitation is valid."""
        if name not in self.identities:
            raise TamperingFound(f"{name} sent a message before its hello; the message was dropped.")
        pinned = self._keyring.identity_of(name)
        if pinned is None or identity_text(pinned) != self.identities[name]:
            self._remove(name)
            raise PeerFailed(f"The invitation of {name} has ended; its message was dropped.")
        return pinned

    def check_presence(self, channel: CoordinatorChannel, refused: Container[str]) -> None:
        """Notice whose invitation has ended, who is absent and who is back; those that refused the run may leave."""
        for name in self.ended():
            channel.disconnected(name)
        here, present = channel.present(), {}
        for name in [name for name in list(self.identities) if name not in refused]:
            present[name] = here.get(name, False)
            if present[name] is not self._present.get(name, True):
                self._changed(name, present[name], channel.seconds_left(name))
        self._present = present

    def ended(self) -> list[str]:
        """Whose invitation has ended since its hello; they are no longer admitted."""
        valid = {one.name: one.identity for one in self._keyring.invitations if one.state == "valid"}
        ended = [name for name, identity in list(self.identities.items()) if valid.get(name) != identity]
        for name in ended:
            self._remove(name)
        return ended

    def _changed(self, name: str, here: bool, seconds: float) -> None:
        """Record and report that a service is back, or absent; `seconds` are left for its answer."""
        self._status.set(peers={name: PeerState.CONNECTED if here else PeerState.ABSENT})
        if here:
            self._log.info("connected", peer=name)
            self._report(f"{name} is back.")
            return
        self._log.warning("absent", peer=name)
        until = datetime.now() + timedelta(seconds=seconds)
        self._report(f"{name} is absent{f'; waiting for its answer until {until:%H:%M:%S}' if seconds else ''}.")

    def _remove(self, name: str) -> None:
        self.identities.pop(name, None)
        self._log.warning("refused", peer=name)
        self._status.set(peers={name: PeerState.ABSENT})
        self._report(f"{name} is no longer admitted: its invitation was revoked or replaced, or has expired.")
