"""The gate of a role that holds nobody's ratings: what it computes is public, or was public or noised before."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from tacit.boundary.door import Door
from tacit.boundary.endpoint import Peers, Sealing
from tacit.boundary.events import Public
from tacit.boundary.randomness import Secure, SecureStream, Seeded, Source
from tacit.boundary.release import Kind, Release
from tacit.boundary.spec import Terms
from tacit.boundary.wire import Value
from tacit.errors import PrivacyRefused, UsageError
from tacit.rng import derive, stream_key


class RoleGate(Door):
    """One role's door.

    Parameters
    ----------
    role : the role's name
    seed : the run's seed
    home : what the role keeps between steps
    terms : what the run promises
    how : the run's aggregation, which answers its own exchanges
    peers : the parties, and the keys by which everybody is known
    seeded : whether this is a simulation, whose private draws come from the seed

    Guarantee
    ---------
    A role is given no ratings: its answers are computed from requests, which hold public and noised values alone, and
    from what it brought, which is nobody's record. So they cost nothing, and there is no ledger. Every answer is held
    to its step's schema, one leaves per request, and in a deployment private draws come from the operating system.
    """

    ways = "gate.tell"

    def __init__(
        self,
        role: str,
        seed: int,
        home: dict[str, Any],
        terms: Terms | None = None,
        how: Sealing | None = None,
        peers: Peers | None = None,
        seeded: bool = True,
    ) -> None:
        super().__init__(role, seed, home, terms=terms, how=how, peers=peers)
        self._seeded = seeded

    def tell(self, **blocks: Value) -> Release:
        """What the role computed, by its step's schema."""
        return self._let_out(Kind.PUBLIC, blocks, Public())

    def exchange(self, name: str, payload: Mapping[str, Any]) -> Release:
        """One exchange in the course of a hidden sum, answered by the run's aggregation."""
        try:
            answer = self.how.answer(name, payload, self._endpoint(1, str(payload.get("context", ""))))
        except UsageError as wrong:  # asked in the wrong order, or for what there is not
            raise PrivacyRefused(f"{self.party} refuses an exchange: {wrong}") from None
        return self._let_out(Kind.PUBLIC, answer, Public())

    def stream(self, *purpose: str | int) -> np.random.Generator:
        """The role's private randomness for one purpose within the present request."""
        request = self._serving()
        if not self._seeded:
            return cast(np.random.Generator, SecureStream())
        return derive(self._seed, self.party, request.round, *purpose, request.hash)

    # -- inside -----------------------------------------------------------------------------------------------

    def _source(self, purpose: str, *more: str | int) -> Source:
        request = self._serving()
        if not self._seeded:
            return Secure()
        return Seeded(stream_key(self._seed, self.party, request.round, purpose, *more, request.hash))

    def _key(self, *purpose: str | int) -> bytes:
        return stream_key(self._seed, self.party, *purpose) if self._seeded else os.urandom(32)

    def _only_simulated(self, what: str) -> None:
        if not self._seeded:
            raise PrivacyRefused(
                f"{self.party} was about to {what}, which a simulation may and a deployment may not; nothing was "
                "released."
            )
