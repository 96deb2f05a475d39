"""The gate: the only door out of a party.

A *chain* is a number of queries with a pure update between them, a *sum* is one linear contribution, a *report* is a
set of single reports for the shuffler, a *public* fact has no data in it, and *disclose* hands out data as it is.
Without a mechanism every one of them is NON-PRIVATE and says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tacit.boundary import release as _release
from tacit.boundary.query import Query, Update
from tacit.boundary.release import Kind, Release
from tacit.boundary.wire import Array, Value, encode
from tacit.errors import PrivacyRefused
from tacit.guarantee import NON_PRIVATE
from tacit.rng import derive

#: Facts that no data goes into, and the only values they can have. Keys and shares will join them.
PUBLIC_FACTS: Mapping[str, frozenset[object]] = {"done": frozenset({True})}


class Gate:
    """One party's door, one cohort's door.

    Parameters
    ----------
    party : the party's name
    seed : the run's seed; streams derive from (seed, party, round, purpose, hash of the request)
    home : what the party keeps between steps; a chain leaves its final state there

    Guarantee
    ---------
    None: this gate carries no mechanism, and what it lets out is stamped NON-PRIVATE. What it does enforce is that
    a payload leaves as recorded bytes, once per step, and that a public fact is one of `PUBLIC_FACTS`.
    """

    def __init__(self, party: str, seed: int, home: dict[str, Any], devices: int = 0) -> None:
        self.party, self.home = party, home
        self._seed, self._devices = seed, devices
        self._request: tuple[int, str] | None = None
        self._made: Release | None = None

    @contextmanager
    def serving(self, round: int, request_hash: str) -> Iterator[None]:
        """While one request is served: streams derive from it, and one release can be made."""
        self._request, self._made = (round, request_hash), None
        try:
            yield
        finally:
            self._request = None

    def made(self, thing: object) -> bool:
        """Whether `thing` is the release that this gate made for the request it served last."""
        return thing is not None and thing is self._made

    def stream(self, *purpose: str | int) -> np.random.Generator:
        """The party's private randomness for one purpose within the present request."""
        round, request_hash = self._serving()
        return derive(self._seed, self.party, round, *purpose, request_hash)

    # -- the ways out -----------------------------------------------------------------------------------------

    def chain(
        self, query: Query, update: Update, state: Mapping[str, Any], steps: int, lets_out: Sequence[str]
    ) -> Release:
        """`steps` times state ← update(state, query(state)); the blocks named in `lets_out` leave, all stay at home."""
        current = dict(state)
        for step in range(steps):
            answer = query(current, self.stream("sample", step))
            current = update(current, answer, step)
        self.home.update(current)
        return self._let_out(Kind.CHAIN, {name: current[name] for name in lets_out})

    def sum(self, query: Query, contributors: int = 1) -> Release:
        """One contribution to a sum over parties; `contributors` devices or parties are in it."""
        return self._let_out(Kind.SUM, query({}, self.stream("sample", 0)), contributors)

    def report(self, query: Query, contributors: int = 1) -> Release:
        """Single reports, one per entry of the arrays' first axis, that a shuffler may part from their sender."""
        return self._let_out(Kind.REPORT, query({}, self.stream("sample", 0)), contributors)

    def public(self, fact: str, value: object = True) -> Release:
        """A fact that no data went into, by schema."""
        if fact not in PUBLIC_FACTS or value not in PUBLIC_FACTS[fact] or type(value) is not bool:
            raise PrivacyRefused(
                f'{self.party} tried to pass "{fact}" as a public fact; only {", ".join(PUBLIC_FACTS)} can leave so: '
                "let anything computed from data leave through gate.chain or gate.sum."
            )
        return self._let_out(Kind.PUBLIC, {fact: True}, max(1, self._devices))

    def disclose(self, **payload: Value) -> Release:
        """Data as it is. It exists for the baselines that pool data, and its name is meant to be noticed."""
        return self._let_out(Kind.DISCLOSE, payload, max(1, self._devices))

    # -- inside -----------------------------------------------------------------------------------------------

    def _serving(self) -> tuple[int, str]:
        if self._request is None:
            raise PrivacyRefused(
                f"{self.party}'s gate was used outside a request; only a step of the party may use it."
            )
        return self._request

    def _let_out(self, kind: Kind, payload: Mapping[str, Value | Array], contributors: int = 1) -> Release:
        self._serving()
        if self._made is not None:
            raise PrivacyRefused(f"{self.party} tried to let out two releases for one request; end a step in one.")
        self._made = Release(self.party, kind, encode(payload), NON_PRIVATE, contributors, seal=_release._SEAL)
        return self._made
