"""Who is admitted to a federation: the coordinator's side of the handshake, and its view of who is present."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Container, Mapping
from datetime import datetime, timedelta
from importlib.metadata import version

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tacit.boundary.wire import Value
from tacit.deploy.certificates import identity_text
from tacit.deploy.handshake import check_hello
from tacit.deploy.invitations import OWN
from tacit.deploy.keyring import Keyring
from tacit.deploy.logs import ServiceLog
from tacit.deploy.service_status import PeerState, Status
from tacit.engine.cells import COORDINATOR
from tacit.engine.coordinator_channel import CoordinatorChannel
from tacit.engine.envelope import Address, failure_content, sign_message
from tacit.errors import PeerFailed, TacitError, TamperingFound


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
