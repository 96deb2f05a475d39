"""A role's part in one run: it has no ratings and no ledger, and answers by code that is installed here."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tacit.boundary.wire import Array, Value
from tacit.deploy.certificates import identity_text
from tacit.deploy.offer import Offer, read_facts
from tacit.deploy.site_run import Home, answer_request, read_identities
from tacit.engine.envelope import TimedRequest
from tacit.engine.serve import Memory
from tacit.errors import BadMessage
from tacit.federation import Role
from tacit.federation.messages import Answer
from tacit.prepare.prepared import Keys, PreparedRun


class RoleRun:
    """One role's part in one run, with the methods of a `SiteRun`."""

    private = False  # no person's data is here, so that errors may be sent
    unfit = ""

    def __init__(self, home: Home, run: str, content: Mapping[str, Any]) -> None:
        """Check an offer; raises where it does not name this role, or the code installed here has no such role."""
        self._home, self.offer = home, Offer.of(run, content)
        home.policy.check(self.offer, home.name)
        self.party: Role | None = None
        self._prepared: PreparedRun | None = None
        self._memory = Memory(home.folder / "memory.tct", run)

    def sizes(self) -> dict[str, Value]:
        return {}

    def align(self, content: Mapping[str, Any]) -> dict[str, Value]:
        raise BadMessage(f"{self._home.name} has no users to align; nothing was done.")

    def begin(self, content: dict[str, Any]) -> dict[str, Value]:
        """Make the role from the agreed facts; the hash of the terms, as this service computes them."""
        home, offer = self._home, self.offer
        identities = read_identities(content.pop("identities", "{}"))
        content.pop("head", None)
        facts = read_facts(offer, content)
        prepared = offer.prepared(facts)
        wants = prepared.roles[home.name].own_columns(prepared.parameters)
        brought = None
        if home.brings is not None:
            brought = home.brings.catalogue(facts.item_ids, offer.run, home.folder, wants)
        role = prepared.role(home.name, brought, Keys(self._others(prepared, identities), home.identity))
        self._memory.recall(role.home)
        self.party, self._prepared = role, prepared
        return {"bound": hashlib.sha256(prepared.bound.encode()).hexdigest()}

    def answer(self, ask: TimedRequest) -> Answer:
        """Answer one request, or repeat the earlier answer."""
        return answer_request(self.party, self._prepared, ask, self._memory, self._home.policy.local)

    def spent(self, now: bool = False) -> dict[str, float]:
        return {}

    def save(self, shared: Mapping[str, Array]) -> dict[str, Value]:
        return {}

    def leave(self) -> None:
        self.party = None

    def _others(self, prepared: PreparedRun, identities: Mapping[str, str]) -> dict[str, Ed25519PublicKey]:
        """The parties' signing keys as their owners gave them; in an experiment, as the coordinator reports them."""
        home, names = self._home, tuple(member.name for member in prepared.facts.roster)
        if not home.policy.local and home.policy.peers is None:
            return {}
        known = {**home.policy.peer_keys(identities, names), home.name: identity_text(home.identity.public_key())}
        return {name: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key)) for name, key in known.items()}
