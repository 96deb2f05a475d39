"""The coordinator's lobby: whoever says hello is let in or told why not, and whoever only looks is shown the offer."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tacit.boundary.wire import Value
from tacit.deploy.certificates import identity_text
from tacit.deploy.hello import greeted
from tacit.deploy.keys import Keyring
from tacit.deploy.logs import Log
from tacit.deploy.status import Peer, Status
from tacit.engine.cells import COORDINATOR
from tacit.engine.envelope import Place, failure_content, sealed
from tacit.errors import PeerFailed, TacitError, TamperingFound


class Lobby:
    """Who is there, by which signing keys.

    Parameters
    ----------
    keyring : the federation's
    tell : gets a sentence about who came, and who was not let in
    """

    def __init__(self, keyring: Keyring, log: Log, status: Status, tell: Callable[[str], None]) -> None:
        self._keyring, self._log, self._status, self._tell = keyring, log, status, tell
        self.identities: dict[str, str] = {}
        self.shown: Mapping[str, Value] | None = None  # the offer, as it will be made
        self._turned_away: dict[str, str] = {}  # by name, what was said last to a hello that was refused

    def hello(self, sender: str, body: bytes) -> tuple[bytes, str | None]:
        """The reply to a hello, and by which start of its service the sender is in; None for one that is not."""
        try:
            start, identity = greeted(self._keyring, sender, body, COORDINATOR)
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
            self._status.set(peers={sender: Peer.CONNECTED})
        self.identities[sender] = identity
        return b"{}", start

    def looked(self, sender: str, body: bytes, run: str) -> bytes:
        """Show the offer of a run to a site that does not join yet; nothing is kept of its visit."""
        content: Mapping[str, Value]
        try:
            greeted(self._keyring, sender, body, COORDINATOR, joins=False)
            if self.shown is None:
                raise PeerFailed("The coordinator has no run to offer yet; look again later.")
            pinned = self._keyring.identity_of(sender)
            known = "" if pinned is None else identity_text(pinned)
            content = {**self.shown, "clock": time.time(), "version": version("tacit"), "pinned": known}
        except TacitError as error:
            content = failure_content(error, tell=True)
        return sealed(Place(COORDINATOR, sender, "look", run), content, self._keyring.identity)

    def key(self, name: str) -> Ed25519PublicKey:
        """What somebody who is in signs with."""
        if name not in self.identities:
            raise TamperingFound(f"{name} speaks before it has said hello; what it says is not taken.")
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.identities[name]))
