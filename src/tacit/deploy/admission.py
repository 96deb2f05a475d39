"""The coordinator's lobby: whoever says hello is let in or told why not, and whoever only looks is shown the offer."""

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
    """Who is there, by which signing keys.

    Parameters
    ----------
    keyring : the federation's
    tell : gets a sentence about who came, and who was not let in
    """

    def __init__(self, keyring: Keyring, log: ServiceLog, status: Status, tell: Callable[[str], None]) -> None:
        self._keyring, self._log, self._status, self._tell = keyring, log, status, tell
        self.identities: dict[str, str] = {}
        self.shown: Mapping[str, Value] | None = None  # the offer, as it will be made
        self._there: dict[str, bool] = {}  # by name of those that are in, whether they were there at the last look
        self._turned_away: dict[str, str] = {}  # by name, what was said last to a hello that was refused

    def hello(self, sender: str, body: bytes) -> tuple[bytes, str | None]:
        """The reply to a hello, and by which start of its service the sender is in; None for one that is not.

        Raises the coordinator's own trouble, one of `OWN`.
        """
        try:
            start, identity = check_hello(self._keyring, sender, body, COORDINATOR)
        except OWN:
            raise
        except TacitError as error:
            self._log.warning("refused", peer=sender[:60], error=type(error).__name__)
            if self._turned_away.get(sender) != str(error):
                self._turned_away[sender] = str(error)
                self._tell(f"{sender[:60]} is not let in: {error}")
            self.identities.pop(sender, None)
            return json.dumps(failure_content(error, tell=True)).encode(), None
        if sender not in self.identities:
            self._log.info("connected", peer=sender)
            self._tell(f"{sender} has joined.")
            self._status.set(peers={sender: PeerState.CONNECTED})
        self.identities[sender] = identity
        return b"{}", start

    def looked(self, sender: str, body: bytes, run: str) -> bytes:
        """Show the offer of a run to a site that does not join yet; nothing is kept of its visit."""
        content: Mapping[str, Value]
        try:
            check_hello(self._keyring, sender, body, COORDINATOR, joins=False)
            if self.shown is None:
                raise PeerFailed("The coordinator has no run to offer yet; look again later.")
            pinned = self._keyring.identity_of(sender)
            known = "" if pinned is None else identity_text(pinned)
            content = {**self.shown, "clock": time.time(), "version": version("tacit"), "pinned": known}
        except OWN:
            content = failure_content(
                PeerFailed("The coordinator cannot see to this now; look again later."), tell=True
            )
        except TacitError as error:
            content = failure_content(error, tell=True)
        return sign_message(Address(COORDINATOR, sender, "look", run), content, self._keyring.identity)

    def key(self, name: str) -> Ed25519PublicKey:
        """What somebody who is in signs with, as long as its invitation is valid."""
        if name not in self.identities:
            raise TamperingFound(f"{name} speaks before it has said hello; what it says is not taken.")
        pinned = self._keyring.identity_of(name)
        if pinned is None or identity_text(pinned) != self.identities[name]:
            self._turn_out(name)
            raise PeerFailed(f"The invitation of {name} has ended; what it says is not taken.")
        return pinned

    def look_around(self, desk: CoordinatorChannel, refused: Container[str]) -> None:
        """Notice whose invitation has ended, who went away and who is back; those that refused may go."""
        for name in self.ended():
            desk.gone(name)
        here, there = desk.present(), {}
        for name in [name for name in list(self.identities) if name not in refused]:
            there[name] = here.get(name, False)
            if there[name] is not self._there.get(name, True):
                self._noticed(name, there[name], desk.patience(name))
        self._there = there

    def ended(self) -> list[str]:
        """Whose invitation has ended since it said hello; they are not in any more."""
        valid = {one.name: one.identity for one in self._keyring.invitations if one.state == "valid"}
        ended = [name for name, identity in list(self.identities.items()) if valid.get(name) != identity]
        for name in ended:
            self._turn_out(name)
        return ended

    # -- inside ------------------------------------------------------------------------------------------------------

    def _noticed(self, name: str, here: bool, patience: float) -> None:
        """Write down and say that somebody is back, or away and waited for that many seconds."""
        self._status.set(peers={name: PeerState.CONNECTED if here else PeerState.ABSENT})
        if here:
            self._log.info("connected", peer=name)
            self._tell(f"{name} is back.")
            return
        self._log.warning("absent", peer=name)
        until = datetime.now() + timedelta(seconds=patience)
        self._tell(f"{name} is away{f'; its answer is waited for until {until:%H:%M:%S}' if patience else ''}.")

    def _turn_out(self, name: str) -> None:
        self.identities.pop(name, None)
        self._log.warning("refused", peer=name)
        self._status.set(peers={name: PeerState.ABSENT})
        self._tell(f"{name} is not in any more: its invitation was revoked or replaced, or has expired.")
